#!/usr/bin/env bash
# On each worker of a TPU VM: starts worker.sh ARGUMENTS as a service, or finds it running, and
# waits for its end; its exit code. The service outlives the connection that started it.
set -uo pipefail
readonly UNIT=tumorchain
readonly POLL_SECONDS=${POLL_SECONDS:-5}
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)

property() { systemctl show "$UNIT" --property="$1" --value; }
has_ended() { [[ $(property ActiveState) =~ ^(inactive|failed)$ ]]; }

if has_ended; then
  sudo systemctl reset-failed "$UNIT" 2>/dev/null
  sudo systemd-run --quiet --unit="$UNIT" --uid="$(id -u)" --gid="$(id -g)" \
    --working-directory="$root" --setenv=HOME="$HOME" --property=TimeoutStopSec=600 \
    bash launch/worker.sh "$@" || exit 1
fi
journalctl --unit="$UNIT" --follow --lines=20 --output=cat &
follower=$!
until has_ended; do
  sleep "$POLL_SECONDS"
done
kill "$follower"
# A service that ended well is forgotten, and then this is 0.
exit "$(property ExecMainStatus)"

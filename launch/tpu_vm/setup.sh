#!/usr/bin/env bash
# On each worker of a TPU VM: Python, the package with its pins, libtpu; mounts BUCKET on /mnt/BUCKET if given.
#
#   bash launch/tpu_vm/setup.sh [BUCKET]
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/../setup.sh"

# Waits for the machine's own updates, which hold apt's lock after the first boot.
apt() { sudo DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 "$@"; }

if ! command -v python3.11 >/dev/null; then
  apt update
  apt install --yes python3.11 python3.11-venv
fi
set_up ""
python -m pip install --quiet --disable-pip-version-check \
  --constraint "$root/launch/constraints.txt" 'jax[tpu]'

bucket=${1:-}
if [[ -n $bucket ]] && ! mountpoint --quiet "/mnt/$bucket"; then
  command -v gcsfuse >/dev/null || apt install --yes gcsfuse
  sudo install -d -o "$(id -u)" -g "$(id -g)" "/mnt/$bucket"
  # Checkpoints become visible by renaming their folder, which a flat bucket does file by file.
  gcsfuse --implicit-dirs --rename-dir-limit=100000 "$bucket" "/mnt/$bucket"
fi

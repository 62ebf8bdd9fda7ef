#!/usr/bin/env bash
# What each process of a training runs, whichever launcher starts it: the checks, then the training.
#
#   worker.sh --config FILE --workdir DIR [--coordinator ...] [--config.a.b=value ...]
#
# The arguments are those of `tumorchain train`. Exit codes: 0 trained and exported; 75 stopped by
# a signal, the same command resumes it; 2 bad input or usage; anything else failed.
set -uo pipefail
readonly STOPPED=75 # sysexits' EX_TEMPFAIL

root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
[[ -d $root/.venv/bin ]] && PATH=$root/.venv/bin:$PATH

# In a container this shell is process 1, the only one that gets the signal.
child="" signalled="" interrupted=""
# shellcheck disable=SC2329 # the trap invokes it
pass_on() {
  signalled=yes interrupted=yes
  [[ -z $child ]] || kill -TERM "$child" 2>/dev/null
}
trap pass_on TERM

# Runs a command to its end, also when a signal interrupts the waiting; its exit code.
run() {
  local code again
  "$@" &
  child=$!
  wait "$child"
  code=$?
  while [[ -n $interrupted ]]; do
    interrupted=""
    wait "$child"
    again=$?
    ((again == 127)) || code=$again # 127: it had ended
  done
  child=""
  return "$code"
}

run tumorchain preflight "$@"
code=$?
if [[ $code == 0 && -z $signalled ]]; then
  run tumorchain train --preempted-exit-code "$STOPPED" "$@"
  code=$?
elif [[ $code == 0 ]]; then
  code=$STOPPED
fi
# 143: the signal came before training listened to it.
[[ -z $signalled || $code != 143 ]] || exit "$STOPPED"
exit "$code"

#!/usr/bin/env bash
# What each process of a training runs, whichever launcher starts it: the checks, then the training.
#
#   worker.sh --config FILE --workdir DIR [--coordinator ...] [--config.a.b=value ...]
#
# The arguments are those of `tumorchain train`. Exit codes: 0 trained and exported; 75 stopped by
# a signal, the same command goes on from there; 2 bad input or usage; anything else failed.
set -uo pipefail
readonly STOPPED=75 # sysexits' EX_TEMPFAIL

root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
[[ -d $root/.venv/bin ]] && PATH=$root/.venv/bin:$PATH

workdir=""
words=("$@")
for ((i = 0; i < $#; i++)); do
  case ${words[i]} in
    --workdir) workdir=${words[i + 1]:-} ;;
    --workdir=*) workdir=${words[i]#*=} ;;
  esac
done
if [[ -z $workdir ]]; then
  printf 'worker.sh: error: --workdir: found none, expected a folder that all hosts share\n' >&2
  exit 2
fi

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

run tumorchain preflight "$@" && [[ -z $signalled ]] && run tumorchain train "$@"
code=$?
[[ -z $signalled ]] || exit "$STOPPED"
# The signal may have been another host's: all of them save, and end as if all were well.
[[ $code != 0 || -d $workdir/export ]] || exit "$STOPPED"
exit "$code"

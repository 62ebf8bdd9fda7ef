#!/usr/bin/env bash
# Checks style, structure, types and tests, up to the first that fails. Tests that start or kill
# processes or run for long (`system`) are left out unless --all is given. Other arguments go to
# pytest: `bash launch/test.sh tests/scan`.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/setup.sh"

check() {
  printf '\n== %s\n' "$*"
  "$@"
}

all=
if [[ ${1:-} == --all ]]; then
  all=1
  shift
fi

set_up "[test,parity]"
cd "$root"
check ruff check
check ruff format --check
check lint-imports --no-logo
check mypy

# Two workers with one thread each: programs this small gain nothing from more threads.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
export XLA_FLAGS="--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1 ${XLA_FLAGS:-}"
# A file stays with a worker; tests/conftest.py has put them in order.
workers=(--numprocesses 2 --dist loadfile --no-loadscope-reorder)
if [[ -n $all ]]; then
  check pytest "${workers[@]}" "$@"
else
  check pytest "${workers[@]}" -m "not system" "$@"
fi

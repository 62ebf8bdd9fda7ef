#!/usr/bin/env bash
# Every check, up to the first that fails: style, types, tests. Arguments go to pytest.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/setup.sh"

check() {
  printf '\n== %s\n' "$*"
  python -m "$@"
}

set_up "[test,parity]"
cd "$root"
check ruff check
check ruff format --check
check mypy
check pytest "$@"

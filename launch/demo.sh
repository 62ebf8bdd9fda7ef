#!/usr/bin/env bash
# From a CT to its chain of thought: sets everything up, then runs `tumorchain demo ARGUMENTS`.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/setup.sh"

set_up ""
exec tumorchain demo "$@"

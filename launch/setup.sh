# Sourced by demo.sh and test.sh: `set_up EXTRAS` installs the package with its pins into the
# checkout's .venv and puts that first on PATH. Sets `root`, the checkout.
#
# What was set up stays until a pin, the package's metadata or the checkout's place changes. A
# set-up that was cut short starts over. PYTHON may name the interpreter.

root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
# Without bytecode files each of the many processes of a test run compiles every module again.
unset PYTHONHOME PYTHONPATH PYTHONDONTWRITEBYTECODE

say() { printf '%s\n' "$*" >&2; }

python_version() { "$1" -c 'import sys; print(sys.version)' 2>/dev/null; }

# Prints the interpreter to build on; never that of an active virtual environment.
find_python() {
  local check='
import sys
if sys.version_info < (3, 11):
    sys.exit("is Python %d.%d" % sys.version_info[:2])
try:
    import ensurepip, venv
except ImportError:
    sys.exit("has no venv module (on Debian and Ubuntu: apt install python3-venv)")
print(sys._base_executable)'
  local candidate found problems=""
  if [[ -n ${PYTHON:-} ]]; then
    set -- "$PYTHON"
  else
    set -- python3.11 python3 python3.12 python3.13
  fi
  for candidate; do
    if ! command -v -- "$candidate" >/dev/null; then
      found="is not there"
    elif found=$("$candidate" -c "$check" 2>&1); then
      printf '%s\n' "$found"
      return
    fi
    problems+=$'\n'"  $candidate ${found%%$'\n'*}"
  done
  say "This needs Python 3.11 or newer with its venv module. Found:$problems"
  say "PYTHON=/path/to/python names another."
  return 1
}

# A checkout that cannot be written is copied to the user's cache, and the copy is used.
find_writable_root() {
  [[ -w $root ]] && return
  local copy
  copy=${XDG_CACHE_HOME:-$HOME/.cache}/tumorchain/checkout-$(cksum <<<"$root" | cut -d ' ' -f 1)
  say "$root cannot be written: a copy in $copy is used."
  export TUMORCHAIN_TEST_DATA=${TUMORCHAIN_TEST_DATA:-${root%/*}/shared/data}
  mkdir -p "$copy"
  find "$copy" -mindepth 1 -maxdepth 1 ! -name .venv -exec rm -rf {} +
  tar -C "$root" --exclude=./.venv --exclude=./.git -cf - . | tar -C "$copy" -xf -
  chmod -R u+w "$copy"
  root=$copy
}

is_usable() {
  [[ -x $1/bin/python && ! -e $1/.unfinished ]] || return
  [[ -z ${PYTHON:-} || $(python_version "$PYTHON") == $(python_version "$1/bin/python") ]]
}

set_up() {
  find_writable_root
  local extras=$1 venv=$root/.venv python wanted
  local stamp=$venv/.ready$extras
  wanted=$(cd "$root" && cat launch/constraints.txt pyproject.toml setup.cfg - <<<"$root" | cksum)

  if ! is_usable "$venv"; then
    python=$(find_python)
    say "Making $venv with $python"
    rm -rf "$venv"
    mkdir -p "$venv"
    touch "$venv/.unfinished"
    "$python" -m venv "$venv"
  fi
  export PATH=$venv/bin:$PATH
  [[ -e $stamp && $(<"$stamp") == "$wanted" ]] && return
  say "Installing the package and its pins: minutes the first time, seconds after that."
  touch "$venv/.unfinished"
  # Bytecode is written when a module is first imported: of most of these, never.
  "$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check --no-compile \
    --constraint "$root/launch/constraints.txt" --editable "$root$extras"
  if [[ $extras == *parity* ]]; then
    # nnU-Net and timm without what they ask for: a torchvision that is of use only beside the same
    # build of torch, and breaks transformers beside another.
    "$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check --no-compile \
      --no-deps \
      --constraint "$root/launch/constraints.txt" \
      acvl_utils batchgenerators batchgeneratorsv2 dynamic_network_architectures nnunetv2 timm
  fi
  printf '%s\n' "$wanted" >"$stamp"
  rm "$venv/.unfinished"
}

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Sets up a working tree: tools, .venv with the pinned Python packages, the native parts in build/ and
# python/collage/{lib,bin}, the package itself in .venv. May be run as often as one likes: what is there
# and up to date is left as it is.
#
#   PYTHON=PATH   the interpreter to make .venv with (3.10 to 3.13); default: the first that fits
#   JOBS=N        compile jobs; default: one for each processor
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# CMake's make is its own, not a child of the one that called this script.
unset MAKEFLAGS MFLAGS MAKELEVEL

started=$SECONDS
say() { printf 'setup: %-9s %s\n' "$1" "$2"; }
die() {
  printf 'setup: error: %s\n' "$1" >&2
  exit 2
}

# Runs a command whose output matters only if it fails.
mkdir -p build
log=build/setup.log
quietly() {
  if ! "$@" >"$log" 2>&1 </dev/null; then
    tail -n 40 "$log" >&2
    die "this failed: $* (all of its output: $log)"
  fi
}

# --- tools ---------------------------------------------------------------------------------------------

have() { command -v "$1" >/dev/null 2>&1; }

# Is this a Python that the TVM wheel is made for, able to make a virtual environment?
fits() {
  "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 14))' >/dev/null 2>&1
}

find_python() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3.12 python3.13 python3.10 python3; do
    if fits "$candidate"; then
      command -v "$candidate"
      return
    fi
    if [[ -n ${PYTHON:-} ]]; then
      die "PYTHON=$PYTHON is not a Python 3.10 to 3.13 with the modules venv and ensurepip"
    fi
  done
}

# Debian packages for what is absent; nothing is asked for where all is there.
wanted=()
have g++ || wanted+=(g++)
have cmake || wanted+=(cmake)
have make || wanted+=(make)
have git || wanted+=(git)
python=
if [[ ! -x .venv/bin/python ]]; then
  python=$(find_python)
  [[ -n $python ]] || wanted+=(python3 python3-venv)
fi
if ((${#wanted[@]})); then
  if have apt-get && [[ $(id -u) == 0 ]]; then
    say tools "installing ${wanted[*]}"
    export DEBIAN_FRONTEND=noninteractive
    quietly apt-get update -q
    quietly apt-get install -q -y --no-install-recommends "${wanted[@]}"
  else
    die "missing: ${wanted[*]}. On Debian, as root: apt-get install ${wanted[*]}"
  fi
fi
if [[ ! -x .venv/bin/python && -z $python ]]; then
  python=$(find_python)
  [[ -n $python ]] || die "no Python 3.10 to 3.13 with venv was found; install one, or name it: make setup PYTHON=PATH"
fi

have go || { [[ -x /usr/local/go/bin/go ]] && PATH=$PATH:/usr/local/go/bin; }
have go || die "Go was not found; install Go 1.26 or newer and put it in PATH"
go_version=$(go env GOVERSION 2>&1 </dev/null) || die "this Go does not work here: $go_version"
[[ $(printf '%s\n' go1.26 "$go_version" | sort -V | head -n 1) == go1.26 ]] ||
  die "$(command -v go) is ${go_version#go}; Go 1.26 or newer is needed"
version_of() { sed -n '1s/[^0-9]*\([0-9][0-9.]*\).*/\1/p'; }
say tools "Go ${go_version#go}, g++ $(g++ -dumpfullversion), CMake $(cmake --version | version_of)"

# --- Python --------------------------------------------------------------------------------------------

requirements=(scripts/requirements.txt scripts/requirements-dev.txt)
stamp=.venv/collage-requirements
if [[ -x .venv/bin/python ]] && ! .venv/bin/python -c '' 2>/dev/null; then
  # Its interpreter is gone or the tree has been moved.
  rm -rf .venv
  python=$(find_python)
  [[ -n $python ]] || die "no Python 3.10 to 3.13 with venv was found; install one, or name it: make setup PYTHON=PATH"
fi
if [[ ! -x .venv/bin/python ]]; then
  say Python "making .venv with $("$python" --version 2>&1)"
  "$python" -m venv .venv
fi
hash=$(cat "${requirements[@]}" | sha256sum | cut -d ' ' -f 1)
if [[ -f $stamp && $(<"$stamp") == "$hash" ]]; then
  say Python ".venv is up to date: $(.venv/bin/python --version)"
else
  say Python "installing TVM, LLVM, oneDNN and the rest into .venv (200 MB to fetch, a minute or two)"
  quietly .venv/bin/python -m pip install --no-input --disable-pip-version-check --require-hashes --only-binary :all: \
    "${requirements[@]/#/--requirement=}"
  echo "$hash" >"$stamp"
fi

# --- native parts --------------------------------------------------------------------------------------

say native "building libcollage, collage and the runtime plug-ins"
quietly cmake -S . -B build -DCMAKE_BUILD_TYPE=Release -DCOLLAGE_DEV_RPATH=ON -DCOLLAGE_GO=ON -DCOLLAGE_DNNL=ON \
  -DPython_EXECUTABLE="$PWD/.venv/bin/python" -DGO_EXECUTABLE="$(command -v go)"
quietly cmake --build build --parallel "${JOBS:-$(nproc)}"
quietly cmake --install build --prefix python --component python

# --- the package itself --------------------------------------------------------------------------------

# A path file and a script are all that an editable installation comes to, and cost no second build.
site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$PWD/python" >"$site/collage-source.pth"
cat >.venv/bin/collage <<SCRIPT
#!$PWD/.venv/bin/python
import sys

from collage.__main__ import main

sys.exit(main())
SCRIPT
chmod +x .venv/bin/collage

say done "in $((SECONDS - started)) s; .venv/bin/collage is the command, 'collage doctor' looks it over"

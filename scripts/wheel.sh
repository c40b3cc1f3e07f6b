#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the wheel and the source archive of this tree into dist/ (or the folder that is given): in an environment of its
# own, build/venv-package, from locked requirements. auditwheel gives the wheel the manylinux tag that the symbols it
# needs deserve. Nothing is copied into it: what it takes from other wheels is found by name when it is loaded.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=wheel column=9
source scripts/steps.sh
unset MAKEFLAGS MFLAGS MAKELEVEL

started=$SECONDS
(($# <= 1)) || die "usage: wheel.sh [FOLDER]"
dist=$(realpath -m -- "${1:-dist}")
mkdir -p build "$dist"
exec 9>build/wheel.lock
command -v flock >/dev/null && flock 9
log=build/wheel.log

python=${PYTHON:-.venv/bin/python}
command -v "$python" >/dev/null || die "there is no .venv; run make wheel, or make setup first"
# Where scripts/setup.sh looks for Go, too.
command -v go >/dev/null || PATH=$PATH:/usr/local/go/bin
command -v go >/dev/null || die "Go was not found; install Go 1.26 or newer and put it in PATH"

# --- tools ---------------------------------------------------------------------------------------------

venv=$PWD/build/venv-package
requirements=(scripts/requirements.txt scripts/requirements-package.txt)
hash=$(cat "${requirements[@]}" | cat - <("$python" --version) | sha256sum | cut -d ' ' -f 1)
if [[ -f $venv/stamp && $(<"$venv/stamp") == "$hash" ]]; then
  say tools "build/venv-package is up to date"
else
  say tools "installing TVM, oneDNN and what builds wheels into build/venv-package"
  rm -rf "$venv"
  quietly "$python" -m venv "$venv"
  quietly "$venv/bin/python" -m pip install --no-input --disable-pip-version-check --require-hashes --only-binary :all: \
    "${requirements[@]/#/--requirement=}"
  echo "$hash" >"$venv/stamp"
fi

# --- wheel ---------------------------------------------------------------------------------------------

plain=$(mktemp -d "$PWD/build/wheel.XXXXXX")
trap 'rm -rf "$plain"' EXIT
say build "the source archive, and the wheel from it"
# Without --wheel and --sdist the wheel is built from the archive: what the archive lacks, shows.
quietly env PATH="$venv/bin:$PATH" "$venv/bin/python" -m build --no-isolation --skip-dependency-check --outdir "$plain" .
[[ -f $(echo "$plain"/*.whl) ]] || die "no wheel came out (all of the output: $log)"

# By name, from the wheels of TVM, oneDNN, oneTBB and Intel's compiler. libcollage_runtime.so lies in the wheel itself.
taken=(libtvm.so libtvm_runtime.so libLLVM.so libdnnl.so.2 libtbb.so.12 libsvml.so libimf.so libintlc.so.5 libirng.so)
quietly env PATH="$venv/bin:$PATH" "$venv/bin/auditwheel" repair "${taken[@]/#/--exclude=}" --wheel-dir "$plain/repaired" \
  "$plain"/*.whl
rm -f "$dist"/collage_tvm-*
mv "$plain"/repaired/*.whl "$plain"/*.tar.gz "$dist"
for file in "$dist"/collage_tvm-*; do
  say "done" "${file#"$PWD"/}, $(($(stat -c %s "$file") >> 10)) KB"
done
say "done" "in $((SECONDS - started)) s"

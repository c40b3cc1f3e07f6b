#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The quick Python tests (those marked `fast`) on other Pythons than that of .venv: test_python.sh VERSION..., as in
# test_python.sh 3.10 3.12. For each an environment build/venv-VERSION is made from the locked requirements; what was
# built for .venv serves it, too. A version that is not on this machine is named and passed over; with none there, fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=test_python column=5
source scripts/steps.sh

(($#)) || die "name a version of Python: test_python.sh 3.12"
[[ -x python/collage/bin/collage ]] || die "the native parts are not built; run make setup first"
# doctor and the documents' tests ask for Go.
export PATH=$PATH:/usr/local/go/bin

# The interpreter of a version: the first in PATH that runs, or pyenv's newest.
find_version() {
  local candidate root
  root=$(pyenv root 2>/dev/null || true)
  for candidate in "python$1" $(printf '%s\n' "$root/versions/$1".*/bin/"python$1" | sort -rV); do
    if [[ $("$candidate" -c 'import sys, venv, ensurepip; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) == "$1" ]]; then
      command -v "$candidate"
      return
    fi
  done
}

requirements=(scripts/requirements.txt scripts/requirements-dev.txt)
mkdir -p build/reports
ran=() failed=()
for version in "$@"; do
  [[ $version =~ ^3\.[0-9]+$ ]] || die "$version is no version of Python such as 3.12"
  base=$(find_version "$version")
  if [[ -z $base ]]; then
    say "$version" "not on this machine, passed over"
    continue
  fi
  venv=$PWD/build/venv-$version
  log=build/venv-$version.log
  hash=$(cat "${requirements[@]}" <("$base" --version) | sha256sum | cut -d ' ' -f 1)
  if ! [[ -f $venv/stamp && $(<"$venv/stamp") == "$hash" ]]; then
    say "$version" "installing TVM, LLVM, oneDNN and the rest into build/venv-$version"
    rm -rf "$venv"
    "$base" -m venv "$venv"
    subject="the requirements"
    quietly "$venv/bin/python" -m pip install --no-input --disable-pip-version-check --require-hashes --only-binary :all: \
      "${requirements[@]/#/--requirement=}"
    echo "$hash" >"$venv/stamp"
  fi
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
  ran+=("$version")
  say "$version" "pytest -m fast"
  COLLAGE_TEST_LIBTVM=$site/tvm/libtvm.so COLLAGE_TEST_LIBTVM_RUNTIME=$site/tvm/libtvm_runtime.so \
    COLLAGE_PYTHON=$venv/bin/python COLLAGE_PLUGIN_DIR=$PWD/python/collage/lib COLLAGE_REQUIRE_BACKENDS=dnnl \
    TOPHUB_LOCATION=NONE "$venv/bin/python" -m pytest -q -r fE -p no:cacheprovider -m fast \
    --numprocesses "${JOBS:-$(nproc)}" --dist worksteal --junitxml "build/reports/python-$version.xml" </dev/null ||
    failed+=("$version")
done
((${#ran[@]})) || die "none of these is on this machine: $*"
((${#failed[@]} == 0)) || {
  printf 'test_python: FAILED: %s\n' "${failed[@]}" >&2
  exit 1
}

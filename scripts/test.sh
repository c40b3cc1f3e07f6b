#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of a tree that is set up:
#
#   scripts/test.sh fast           under a minute: Go without TVM, small graphs through TVM
#   scripts/test.sh                what every change must pass: Go under the race detector, C++, Python
#   scripts/test.sh ARGUMENT...    pytest with these arguments and nothing else: -k name, tests/test_pass.py, ...
#
# Python's tests run side by side, those marked `alone` one after the other when the rest is done; one that hangs or
# dies costs itself only. JUnit files come to lie in build/reports; scripts/verdict.py sums them up.
#
#   JOBS=N                         processes of Python's tests; default: three for two processors, since a test waits a
#                                  third of its time: for programs that it has started, and for time to go by
#   COLLAGE_REQUIRE_BACKENDS=A,B   backends that must work here (make test demands those that it installs)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ -x .venv/bin/python ]] || { echo "test: error: there is no .venv; run make test, or make setup first" >&2; exit 2; }
export PATH=$PATH:/usr/local/go/bin

python=$PWD/.venv/bin/python
jobs=${JOBS:-$((($(nproc) * 3 + 1) / 2))}
reports=build/reports
mkdir -p "$reports"

failed=()
step() {
  local name=$1 started=$SECONDS
  shift
  echo "test: $name"
  "$@" </dev/null || failed+=("$name")
  echo "test: $name: $((SECONDS - started)) s"
}

# go_tests NAME GO-TEST-ARGUMENT...: one line a package, and build/reports/NAME.xml.
go_tests() {
  local name=$1
  shift
  go tool gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg --hide-summary=skipped \
    --junitfile "$reports/$name.xml" --junitfile-hide-empty-pkg -- "$@" ./...
}

# py_tests NAME PROCESSES PYTEST-ARGUMENT...
py_tests() {
  local name=$1 processes=$2
  shift 2
  "$python" -m pytest -q -r fE -p no:cacheprovider --numprocesses "$processes" --dist worksteal \
    --junitxml "$reports/$name.xml" "$@"
}

with_tvm() {
  local tvm
  tvm=$("$python" -c 'import importlib.util, os; print(os.path.dirname(importlib.util.find_spec("tvm").origin))')
  export COLLAGE_TEST_LIBTVM=$tvm/libtvm.so
  export COLLAGE_TEST_LIBTVM_RUNTIME=$tvm/libtvm_runtime.so
  export COLLAGE_PYTHON=$python
  export COLLAGE_PLUGIN_DIR=$PWD/python/collage/lib
  # TVM would fetch tuning logs otherwise.
  export TOPHUB_LOCATION=NONE
}

case ${1:-} in
fast)
  (($# == 1)) || { echo "test: error: fast takes no further arguments" >&2; exit 2; }
  rm -f "$reports"/fast-*.xml
  step "Go, without TVM" go_tests fast-go -short
  with_tvm
  step "Python, small graphs" py_tests fast-python "$jobs" -m "fast and not long"
  step "verdict" "$python" scripts/verdict.py --partial "$reports"/fast-*.xml
  ;;
"")
  rm -f "$reports"/test-*.xml "$reports"/native-plain.xml
  with_tvm
  step "Go, under the race detector" go_tests test-go -race -timeout 15m
  step "C++" scripts/test_native.sh plain
  step "Python, side by side" py_tests test-python "$jobs" -m "not alone and not long"
  step "Python, one by one" py_tests test-python-alone 1 -m "alone and not long"
  step "verdict" "$python" scripts/verdict.py "$reports"/{test-go,native-plain,test-python,test-python-alone}.xml
  ;;
*)
  with_tvm
  exec "$python" -m pytest "$@" </dev/null
  ;;
esac

if ((${#failed[@]})); then
  printf 'test: FAILED: %s\n' "${failed[@]}" >&2
  exit 1
fi

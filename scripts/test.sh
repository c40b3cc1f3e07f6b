#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# All tests of a tree that is set up. Go's come first, under the race detector; those that need TVM find it
# in .venv. Then the Python ones, end to end. The last line is pytest's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ -x .venv/bin/python ]] || { echo "test: error: there is no .venv; run make test, or make setup first" >&2; exit 2; }
export PATH=$PATH:/usr/local/go/bin

tvm=$(.venv/bin/python -c 'import importlib.util, os; print(os.path.dirname(importlib.util.find_spec("tvm").origin))')
export COLLAGE_TEST_LIBTVM=$tvm/libtvm.so
export COLLAGE_TEST_LIBTVM_RUNTIME=$tvm/libtvm_runtime.so
export COLLAGE_PYTHON=$PWD/.venv/bin/python
export COLLAGE_PLUGIN_DIR=$PWD/python/collage/lib
# TVM would fetch tuning logs otherwise.
export TOPHUB_LOCATION=NONE

# Both run, whatever the first says.
failed=0
echo "test: go test -race ./..."
go test -race -timeout 15m ./... </dev/null || failed=1
echo "test: pytest"
.venv/bin/python -m pytest -q "$@" </dev/null || failed=1
exit $failed

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests the tests: scripts/mutate.sh [FLAGS] PACKAGE... makes small changes in the code of packages, one at a time and
# never in the tree, and lists those that the package's own tests do not notice. Without packages it takes those on
# which the placement's promises rest. --json FILE writes the result, --help lists the flags.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$PATH:/usr/local/go/bin
packages=0
for argument; do
  [[ $argument == ./* || $argument == --help ]] && packages=1
done
((packages)) || set -- "$@" ./pass/place ./pass/candidate ./relay
# Half of relay's code reads TVM's objects: its tests find TVM as in scripts/test.sh, where there is one.
where='import importlib.util, os; print(os.path.dirname(importlib.util.find_spec("tvm").origin))'
tvm=$(.venv/bin/python -c "$where" 2>/dev/null) &&
  export COLLAGE_TEST_LIBTVM=$tvm/libtvm.so COLLAGE_TEST_LIBTVM_RUNTIME=$tvm/libtvm_runtime.so TOPHUB_LOCATION=NONE
exec nice go run ./scripts/mutate "$@"

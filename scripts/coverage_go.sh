#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Which share of Go's statements Go's own tests run: in all, and for each room. scripts/coverage_go.sh [GO TEST FLAGS...]
# writes build/reports/go.cover, which `go tool cover -html` shows. Tests that need TVM find it as in scripts/test.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$PATH:/usr/local/go/bin
where='import importlib.util, os; print(os.path.dirname(importlib.util.find_spec("tvm").origin))'
if [[ -x .venv/bin/python ]] && tvm=$(.venv/bin/python -c "$where" 2>/dev/null); then
  export COLLAGE_TEST_LIBTVM=$tvm/libtvm.so COLLAGE_TEST_LIBTVM_RUNTIME=$tvm/libtvm_runtime.so TOPHUB_LOCATION=NONE
  export COLLAGE_PYTHON=$PWD/.venv/bin/python COLLAGE_PLUGIN_DIR=$PWD/python/collage/lib
fi
rooms=(bridge relay byoc pass cmd)
profile=build/reports/go.cover
mkdir -p "${profile%/*}"
patterns=("${rooms[@]/%//...}")
patterns=("${patterns[@]/#/./}")
packages=$(printf "%s," "${patterns[@]}")
go test "$@" -coverpkg="${packages%,}" -coverprofile="$profile" "${patterns[@]}" </dev/null >&2
# A statement counts as run where any package's tests run it.
awk -v rooms="${rooms[*]}" '
  NR > 1 { split($1, part, "/"); room[$1] = part[4]; size[$1] = $2; run[$1] += $3 }
  END {
    for (block in size) {
      total[room[block]] += size[block]; all += size[block]
      if (run[block]) { covered[room[block]] += size[block]; hit += size[block] }
    }
    count = split(rooms, names, " ")
    for (i = 1; i <= count; i++)
      printf "%-8s %6d statements  %5.1f %%\n", names[i], total[names[i]], 100 * covered[names[i]] / total[names[i]]
    printf "%-8s %6d statements  %5.1f %%\n", "all", all, 100 * hit / all
  }' "$profile"

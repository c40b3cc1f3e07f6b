#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds scripts/bench_blocking.cc with the kernels alone, as they are built for plug-ins, and runs it:
#
#   scripts/bench_blocking.sh [--threads N] [--rounds N] [--only WORD]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ -x .venv/bin/python ]] || { echo "bench-blocking: error: there is no .venv; run make setup first" >&2; exit 2; }
build=build/bench-blocking
mkdir -p "$build"
{
  cmake -S . -B "$build" -DCOLLAGE_GO=OFF -DCOLLAGE_BENCH_BLOCKING=ON -DPython_EXECUTABLE="$PWD/.venv/bin/python" &&
    cmake --build "$build" --parallel "${JOBS:-$(nproc)}" --target bench_blocking
} >"$build/build.log" 2>&1 </dev/null || {
  tail -n 40 "$build/build.log" >&2
  echo "bench-blocking: error: the build failed; all of its output: $build/build.log" >&2
  exit 1
}
exec "$build/byoc/runtime/bench_blocking" "$@"

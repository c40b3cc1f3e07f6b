#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Fuzzes what reads exported models in C++ (tests/native/fuzz): builds the targets with Clang and runs each from its
# seeds in tests/native/fuzz/corpus.
#
#   scripts/fuzz_native.sh [TARGET ...]      dnnl_program, region_constants, ...; default: all
#
#   SECONDS_EACH=N   how long each runs (60)
#
# New inputs that reach more code are kept in build/native-fuzz/corpus for the next time. A finding fails the script,
# which says where the input lies; `build/native-fuzz/tests/native/TARGET_fuzz FILE` runs it again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${SECONDS_EACH:-60}
scripts/test_native.sh fuzz

bin=build/native-fuzz/tests/native
targets=("$@")
if ((!${#targets[@]})); then
  for file in tests/native/fuzz/*_fuzz.cc; do
    name=$(basename "$file" _fuzz.cc)
    targets+=("$name")
  done
fi

# oneDNN and oneTBB keep what they have made; a library that was not compiled with Clang counts nothing.
export ASAN_OPTIONS=allocator_may_return_null=0:detect_leaks=1:detect_container_overflow=0
export UBSAN_OPTIONS=print_stacktrace=1
export LSAN_OPTIONS=suppressions=$PWD/tests/native/fuzz/leaks.supp:print_suppressions=0
failed=()
for name in "${targets[@]}"; do
  seeds=tests/native/fuzz/corpus/$name
  [[ -x $bin/${name}_fuzz ]] || { echo "fuzz: error: there is no target $name" >&2; exit 2; }
  found=build/native-fuzz/findings/$name
  kept=build/native-fuzz/corpus/$name
  log=build/native-fuzz/$name.log
  mkdir -p "$found" "$kept" "$seeds"
  options=(-max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -artifact_prefix="$found/" -print_final_stats=1)
  case $name in
    dnnl_*) options+=(-dict=tests/native/fuzz/dnnl.dict -max_len=8192) ;;
    *) options+=(-max_len=4096) ;;
  esac
  if "$bin/${name}_fuzz" "${options[@]}" "$kept" "$seeds" >"$log" 2>&1 </dev/null; then
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    covered=$(grep -oE 'cov: [0-9]+' "$log" | tail -n 1)
    echo "fuzz: $name: $runs inputs, $covered edges, nothing found"
  else
    echo "fuzz: $name: FINDING" >&2
    grep -m 1 -E 'ERROR|runtime error|libFuzzer: |an error without' "$log" >&2 || tail -n 5 "$log" >&2
    grep -E 'Test unit written to' "$log" >&2 || true
    echo "fuzz: all of its output: $log" >&2
    failed+=("$name")
  fi
done
if ((${#failed[@]})); then
  echo "fuzz: error: found something in ${failed[*]}" >&2
  exit 1
fi

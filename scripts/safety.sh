#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What is done to the runtime to see whether it is safe, and what came of it: callers that load, run and unload models
# under sanitizers and without, and fuzzed readers.
#
#   scripts/safety.sh [asan|tsan|python|fuzz ...]     default: all of them, about 25 minutes
#
#   STRESS_SECONDS=N   how long the callers go on under each sanitizer (180)
#   SECONDS_EACH=N     how long each fuzz target runs (60)
#
# Writes docs/results/safety.txt: what these runs said, and behind it what stands there of earlier findings and of
# suppressions, which is written by hand. A part that is not run now stands there as it was when it ran last in this
# tree (build/safety). What fails ends the script, and nothing is written.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
seconds=${STRESS_SECONDS:-180} each=${SECONDS_EACH:-60}
result=docs/results/safety.txt
kept=build/safety
mkdir -p "$kept"

# part NAME LINES COMMAND ...: runs a command and keeps the lines of its output that say what it was.
part() {
  local name=$1 lines=$2
  shift 2
  echo "safety: $name"
  env "$@" >"$kept/$name.log" 2>&1 </dev/null || {
    tail -n 30 "$kept/$name.log" >&2
    echo "safety: error: $name failed; all of its output: $kept/$name.log" >&2
    exit 1
  }
  {
    echo "\$ ${*/$PWD\//}"
    grep -E "$lines" "$kept/$name.log" | sed 's/^\.*/  /' # pytest's dots stand before what a test prints
  } >"$kept/$name.txt"
}

parts=("$@")
((${#parts[@]})) || parts=(asan tsan python fuzz)
for name in "${parts[@]}"; do
  case $name in
    asan | tsan)
      part "$name" '^native: stress|tests passed' COLLAGE_STRESS_SECONDS="$seconds" scripts/test_native.sh "$name"
      ;;
    python)
      part python 'models loaded|^[0-9]+ passed' scripts/test.sh tests/test_stress.py -m 'long or not long' -q -s
      ;;
    fuzz)
      part fuzz '^fuzz: .* inputs' SECONDS_EACH="$each" scripts/fuzz_native.sh
      ;;
    *)
      echo "safety: error: '$name' is no part; see the head of scripts/safety.sh" >&2
      exit 2
      ;;
  esac
done

marker="Found so far"
{
  sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1 | tr '\n' ','
  echo " $(nproc) threads (make safety)"
  for name in asan tsan python fuzz; do
    [[ -e $kept/$name.txt ]] || continue
    echo
    cat "$kept/$name.txt"
  done
  echo
  sed -n "/^$marker/,\$p" "$result"
} >"$kept/safety.txt"
cp "$kept/safety.txt" "$result"
echo "safety: $result"

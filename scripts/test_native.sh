#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Unit tests of the runtime's C++ (tests/native), each kind in a build folder of its own:
#
#   scripts/test_native.sh                 asan, then tsan
#   scripts/test_native.sh plain|asan|tsan|coverage|fuzz [ctest's arguments, as -R strips]
#
#   plain      no sanitizer
#   asan       AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan       ThreadSanitizer, of the tests labelled threads
#   coverage   gcov: how many lines of our own the tests run, by file and in all
#   fuzz       only builds the fuzz targets, into build/native-fuzz/tests/native
#
#   JOBS=N     compile jobs and tests side by side; default: one for each processor
#
# JUnit reports go to build/reports/native-KIND.xml.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ -x .venv/bin/python ]] || { echo "native: error: there is no .venv; run make setup first" >&2; exit 2; }
jobs=${JOBS:-$(nproc)}

# Installs Debian packages where that can be done, else asks for them.
need() {
  local wanted=() package
  for package in "$@"; do
    dpkg -s "$package" >/dev/null 2>&1 || wanted+=("$package")
  done
  ((${#wanted[@]})) || return 0
  if command -v apt-get >/dev/null && [[ $(id -u) == 0 ]]; then
    echo "native: installing ${wanted[*]}"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -q && apt-get install -q -y --no-install-recommends "${wanted[@]}"; } </dev/null >&2
  else
    echo "native: error: missing: ${wanted[*]}. On Debian, as root: apt-get install ${wanted[*]}" >&2
    exit 2
  fi
}

build() {
  local kind=$1
  shift
  mkdir -p "build/native-$kind" build/reports
  local log=build/native-$kind/build.log
  {
    cmake -S . -B "build/native-$kind" -DCOLLAGE_GO=OFF -DCOLLAGE_WERROR=ON -DCMAKE_BUILD_TYPE=Native \
      -DCMAKE_CXX_FLAGS_NATIVE="-O1 -g1" -DPython_EXECUTABLE="$PWD/.venv/bin/python" "$@" &&
      cmake --build "build/native-$kind" --parallel "$jobs"
  } >"$log" 2>&1 </dev/null || {
    grep -A 8 -E 'error|FAILED|undefined reference' "$log" | head -n 60 >&2 || tail -n 40 "$log" >&2
    echo "native: error: the build failed; all of its output: $log" >&2
    exit 1
  }
}

run() {
  local kind=$1
  shift
  (cd "build/native-$kind" &&
    ctest --output-on-failure --no-tests=error --parallel "$jobs" --timeout 900 \
      --output-junit "$OLDPWD/build/reports/native-$kind.xml" "$@" </dev/null)
}

run_kind() {
  local kind=$1
  shift
  local started=$SECONDS
  echo "native: $kind"
  need libgtest-dev
  case $kind in
    plain)
      build plain -DCOLLAGE_NATIVE_TESTS=ON
      run plain "$@"
      ;;
    asan)
      build asan -DCOLLAGE_NATIVE_TESTS=ON -DCOLLAGE_SANITIZE=address,undefined
      ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 run asan "$@"
      ;;
    tsan)
      build tsan -DCOLLAGE_NATIVE_TESTS=ON -DCOLLAGE_SANITIZE=thread
      TSAN_OPTIONS="suppressions=$PWD/tests/native/tsan.supp halt_on_error=1 second_deadlock_stack=1" \
        run tsan -L threads "$@"
      ;;
    fuzz)
      need clang libclang-rt-14-dev
      build fuzz -DCOLLAGE_FUZZ=ON -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++
      ;;
    *)
      echo "native: error: '$kind' is no kind of test; see the head of scripts/test_native.sh" >&2
      exit 2
      ;;
  esac
  echo "native: $kind done in $((SECONDS - started)) s"
}

if (($#)); then
  run_kind "$@"
else
  run_kind asan
  run_kind tsan
fi

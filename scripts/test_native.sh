#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Unit tests of the runtime's C++ (tests/native), each kind in a build folder of its own:
#
#   scripts/test_native.sh                 asan, then tsan
#   scripts/test_native.sh plain|asan|tsan|coverage|tidy|fuzz|aarch64 [ctest's arguments, as -R strips]
#
#   plain      no sanitizer
#   asan       AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan       ThreadSanitizer, of the tests labelled threads
#   coverage   gcov: how many lines of our own the tests run, by file and in all
#   tidy       clang-tidy over the runtime's sources (.clang-tidy); runs nothing
#   aarch64    the kernels alone (tests/native/portable), cross-compiled and run under qemu
#   fuzz       only builds the fuzz targets, into build/native-fuzz/tests/native
#
#   JOBS=N              compile jobs and tests side by side; default: one for each processor
#   NATIVE_TARGETS=A,B  compile these tests only
#
# JUnit reports go to build/reports/native-KIND.xml. What is absent of Debian's packages is installed where that can be
# done, else asked for.
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

configure() {
  local kind=$1
  shift
  cmake -S . -B "build/native-$kind" -DCOLLAGE_GO=OFF -DCMAKE_BUILD_TYPE=Native \
    -DCMAKE_CXX_FLAGS_NATIVE="-O1 -g1" -DPython_EXECUTABLE="$PWD/.venv/bin/python" "$@" </dev/null
}

build() {
  local kind=$1
  mkdir -p "build/native-$kind" build/reports
  local log=build/native-$kind/build.log
  { configure "$@" && cmake --build "build/native-$kind" --parallel "$jobs" \
    ${NATIVE_TARGETS:+--target ${NATIVE_TARGETS//,/ }}; } >"$log" 2>&1 </dev/null || {
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
  sed -n 's/^stress: /native: stress: /p' "build/native-$kind/Testing/Temporary/LastTest.log"
}

# How many of our lines were run, by file and in all: on the terminal and in build/reports/native-coverage.json.
coverage() {
  local venv=build/native-coverage/venv
  if [[ ! -x $venv/bin/gcovr ]]; then
    .venv/bin/python -m venv "$venv"
    "$venv/bin/python" -m pip install --no-input --disable-pip-version-check --quiet gcovr==8.3
  fi
  # The objects know their sources as collage/... (-ffile-prefix-map). A loop that is unrolled many times counts more
  # than fits into gcov's own numbers.
  ln -sfn "$PWD" build/native-coverage/collage
  "$venv/bin/gcovr" --root . --filter '.*byoc/runtime/' --gcov-ignore-parse-errors=suspicious_hits.warn_once_per_file \
    --merge-mode-functions=separate --json-summary build/reports/native-coverage.json build/native-coverage \
    2>build/native-coverage/gcovr.log
  .venv/bin/python - <<'PYTHON'
import json

report = json.load(open("build/reports/native-coverage.json"))
for file in sorted(report["files"], key=lambda file: file["line_percent"]):
    name = file["filename"].rpartition("/")[2]
    print(f"{file['line_percent']:6.1f} %  {file['line_covered']:5} of {file['line_total']:5}  {name}")
print(f"{report['line_percent']:6.1f} %  {report['line_covered']:5} of {report['line_total']:5}  lines in all")
PYTHON
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
      UBSAN_OPTIONS=print_stacktrace=1 run asan "$@"
      ;;
    tsan)
      need dpkg-dev  # for sources
      local tbb
      tbb=$(scripts/tsan_tbb.sh)
      build tsan -DCOLLAGE_NATIVE_TESTS=ON -DCOLLAGE_SANITIZE=thread -DTBB_ROOT="$tbb"
      TSAN_OPTIONS="suppressions=$PWD/tests/native/tsan.supp history_size=7 halt_on_error=1 second_deadlock_stack=1" \
        run tsan -L threads "$@"
      ;;
    coverage)
      build coverage -DCOLLAGE_NATIVE_TESTS=ON -DCOLLAGE_COVERAGE=ON
      find build/native-coverage -name '*.gcda' -delete
      run coverage --quiet "$@"
      coverage
      ;;
    tidy)
      need clang-tidy
      configure tidy -DCOLLAGE_NATIVE_TESTS=ON -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null
      # Clang has no __builtin_shuffle; what the shuffles give does not matter here.
      find byoc/runtime -maxdepth 1 -name '*.cc' ! -name 'dnnl_tvm_*' -print0 | sort -z |
        xargs -0 -n 3 -P "$jobs" clang-tidy -p build/native-tidy --quiet '--extra-arg=-D__builtin_shuffle(a,b,c)=(a)' \
          2> >(grep -vE '^[0-9]+ warnings? (generated|treated)' >&2)
      ;;
    aarch64)
      # Needs neither the wheels nor the rest of the runtime.
      need cmake googletest g++-aarch64-linux-gnu qemu-user
      mkdir -p build/reports
      cmake -S tests/native/portable -B build/native-aarch64 -DCMAKE_BUILD_TYPE=Native \
        -DCMAKE_TOOLCHAIN_FILE="$PWD/tests/native/portable/aarch64.cmake" -DCMAKE_CXX_FLAGS_NATIVE="-O1 -g1" \
        </dev/null >build/native-aarch64.log 2>&1 &&
        cmake --build build/native-aarch64 --parallel "$jobs" \
          ${NATIVE_TARGETS:+--target ${NATIVE_TARGETS//,/ }} </dev/null >>build/native-aarch64.log 2>&1 || {
        grep -A 8 -E 'error|undefined reference' build/native-aarch64.log | head -n 60 >&2
        echo "native: error: the build failed; all of its output: build/native-aarch64.log" >&2
        exit 1
      }
      run aarch64 "$@"
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

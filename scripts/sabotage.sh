#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Deliberate faults, each of which must make the gate fail:
#
#   scripts/sabotage.sh           all of them
#   scripts/sabotage.sh NAME...   these
#   scripts/sabotage.sh --list    what there is
#
# Works in a copy of the tree under build/sabotage. For each fault, the part of the gate that is to see it runs twice:
# on the copy as it is, where it must pass, and on the copy with the fault, where it must fail. What both printed is
# kept in build/reports/sabotage.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ -x .venv/bin/python ]] || { echo "sabotage: error: there is no .venv; run make sabotage, or make setup first" >&2; exit 2; }
export PATH=$PATH:/usr/local/go/bin

tree=$PWD
copy=$tree/build/sabotage
logs=$tree/build/reports/sabotage
names=() says=() files=() olds=() news=() checks=()

# fault NAME WHAT FILE OLD NEW CHECK: where the gate fails, OLD has become NEW in FILE. CHECK is a command of the copy.
# FILE may be a library of the package; OLD is then empty and all but its first bytes are cut off.
fault() {
  names+=("$1") says+=("$2") files+=("$3") olds+=("$4") news+=("$5") checks+=("$6")
}

# libcollage anew: what most commands print comes from there.
build_library='go build -trimpath -buildvcs=false -buildmode=c-shared -o python/collage/lib/libcollage.so ./cmd/libcollage'

fault plug-in "a backend's plug-in does not load" \
  python/collage/lib/libcollage_openblas.so "" "" \
  'COLLAGE_REQUIRE_BACKENDS=openblas scripts/test.sh -q tests/test_errors.py'

fault skip "a test is skipped that was not before" \
  tests/test_workloads.py $'\nimport pytest' $'\nimport pytest\n\npytest.skip("some day", allow_module_level=True)' \
  'rm -f build/one.xml; scripts/test.sh -q --junitxml build/one.xml tests/test_workloads.py tests/test_errors.py &&
   COLLAGE_REQUIRE_BACKENDS=dnnl .venv/bin/python scripts/verdict.py build/one.xml'

fault kernel-tail "a kernel is off by one at its tail" \
  byoc/runtime/native/row_kernels.cc 'for (; k < length; ++k) sum +=' 'for (; k + 1 < length; ++k) sum +=' \
  'NATIVE_TARGETS=row_kernels_test scripts/test_native.sh plain -R "^row_kernels_test"'

fault race "a race: the workspace's pool is left without its lock" \
  byoc/runtime/native/workspace.cc \
  $'  {\n    std::lock_guard<std::mutex> lock(pool.mutex);\n    for' $'  {\n    for' \
  'NATIVE_TARGETS=engine_test scripts/test_native.sh tsan -R "^engine_test"'

fault border-count "borders are counted in one direction only" \
  pass/border/border.go $'\tif p.Out {\n\t\treturn out' $'\tif p.Out {\n\t\treturn 0 * out' \
  'go test -count=1 ./pass/placing ./pass/border'

fault swapped-region "a plan gives a region to another backend than was chosen" \
  pass/plan/builder.go 'Backend: annotate.BackendNames(set, chosen)}' 'Backend: annotate.BackendNames(set, nil) + b.plan.Backends[0].Name}' \
  'go test -count=1 ./pass/placing ./pass/network ./pass/plan'

fault torn-store "a torn last line of the cost store is taken for a whole one" \
  pass/cost/store.go $'\tif !whole {\n\t\tif err' $'\tif false {\n\t\tif err' \
  'go test -count=1 ./pass/cost'

fault dearer-placement "the solver keeps the dearer of two placements" \
  pass/place/branches.go 'if cost > s.cost ||' 'if cost < s.cost ||' \
  'go test -count=1 -short ./pass/place'

fault unchecked-result "a backend's wrong result is taken for right" \
  python/collage/check.py 'if wrong.any():' 'if False and wrong.any():' \
  'scripts/test.sh -q tests/test_worker.py tests/test_backend_registration.py -k "wrong or differ or check"'

fault readme-typo "a command in the README has a typo" \
  README.md 'collage doctor' 'collage docter' \
  'scripts/test.sh -q -m fast tests/test_documents.py tests/test_document_claims.py'

fault schema "a field of --json is called otherwise than its schema says" \
  byoc/backend.go '`json:"usable"`' '`json:"works"`' \
  "$build_library && scripts/test.sh -q tests/test_json.py -k backends"

fault unchecked-program "a region program that reads what is not made yet is not refused" \
  byoc/runtime/dnnl_check_program.cc 'if (!made_[op_->in[i]]) Fail(' 'if (false) Fail(' \
  'NATIVE_TARGETS=dnnl_program_test,dnnl_compile_test scripts/test_native.sh plain -R "^dnnl_"'

# --- the copy ------------------------------------------------------------------------------------------------------

# As the working tree is: what git knows and what it would take, and what set-up has built. Build folders of an earlier
# run stay, so that little is compiled anew.
make_copy() {
  mkdir -p "$copy" "$logs"
  find "$copy" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
  git ls-files -z --cached --others --exclude-standard |
    while IFS= read -r -d '' file; do [[ -e $file ]] && printf '%s\0' "$file"; done |
    tar --create --null --files-from=- | tar --extract --directory "$copy"
  cp -r --parents python/collage/lib python/collage/bin "$copy"
  ln -s "$tree/.venv" "$copy/.venv"
  mkdir -p "$copy/build"
}

# put INDEX: put the fault in.
put() {
  local file=$copy/${files[$1]}
  if [[ -z ${olds[$1]} ]]; then
    truncate --size 4096 "$file"
    return
  fi
  OLD=${olds[$1]} NEW=${news[$1]} python3 - "$file" <<'PYTHON'
import os, sys
path, old, new = sys.argv[1], os.environ["OLD"], os.environ["NEW"]
text = open(path).read()
if old not in text:
    sys.exit(f"sabotage: error: {path} has no longer what is to be spoilt: {old!r}")
open(path, "w").write(text.replace(old, new, 1))
PYTHON
}

# check INDEX LOG: the part of the gate, in the copy.
check() {
  (
    cd "$copy"
    tvm=$(.venv/bin/python -c 'import importlib.util, os; print(os.path.dirname(importlib.util.find_spec("tvm").origin))')
    export COLLAGE_TEST_LIBTVM=$tvm/libtvm.so COLLAGE_TEST_LIBTVM_RUNTIME=$tvm/libtvm_runtime.so
    export COLLAGE_PYTHON=$PWD/.venv/bin/python
    timeout 1200 bash -euc "${checks[$1]}"
  ) >"$2" 2>&1 </dev/null
}

wanted=("$@")
if [[ ${1:-} == --list ]]; then
  for i in "${!names[@]}"; do printf '%-18s %s (%s)\n' "${names[$i]}" "${says[$i]}" "${files[$i]}"; done
  exit
fi
for name in "${wanted[@]}"; do
  [[ " ${names[*]} " == *" $name "* ]] || { echo "sabotage: error: there is no fault $name; --list says which there are" >&2; exit 2; }
done

make_copy
seen=0 unseen=0
for i in "${!names[@]}"; do
  name=${names[$i]}
  ((${#wanted[@]} == 0)) || [[ " ${wanted[*]} " == *" $name "* ]] || continue
  started=$SECONDS
  if ! check "$i" "$logs/$name-whole.log"; then
    tail -n 20 "$logs/$name-whole.log"
    echo "sabotage: $name: the gate fails WITHOUT the fault (build/reports/sabotage/$name-whole.log)"
    unseen=$((unseen + 1))
    continue
  fi
  cp -p "$copy/${files[$i]}" "$copy/build/original"
  put "$i"
  verdict=seen
  check "$i" "$logs/$name.log" && verdict=UNSEEN
  cp "$copy/build/original" "$copy/${files[$i]}"
  cp python/collage/lib/libcollage.so "$copy/python/collage/lib/libcollage.so"
  if [[ $verdict == seen ]]; then seen=$((seen + 1)); else unseen=$((unseen + 1)); fi
  echo "sabotage: $name: $verdict: ${says[$i]} ($((SECONDS - started)) s)"
done
echo "$seen passed, $unseen failed"
((unseen == 0))

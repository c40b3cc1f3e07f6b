#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs Go's fuzz targets one after the other, each for SECONDS_EACH (60): scripts/fuzz_go.sh [--list] [NAME...]. A NAME
# is a target ("FuzzDecode"), a package ("pass/plan") or a package's target ("pass/plan:FuzzDecode"). Without names it
# runs all that `go test -list` finds. What a target fails on is written to its package's testdata/fuzz, where `go test`
# runs it from then on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH=$PATH:/usr/local/go/bin
each=${SECONDS_EACH:-60}s
list=0
if [[ ${1:-} == --list ]]; then
  list=1
  shift
fi

# Stores and archives are written and synced thousands of times: in memory, where there is room.
if [[ -z ${TMPDIR:-} && -d /dev/shm && -w /dev/shm ]]; then
  TMPDIR=$(mktemp -d /dev/shm/collage-fuzz-XXXXXX)
  trap 'rm -rf "$TMPDIR"' EXIT
  export TMPDIR GOTMPDIR=/tmp
fi

# All targets, as "package:target".
mapfile -t packages < <(git ls-files --cached --others --exclude-standard '*_test.go' | xargs grep -l '^func Fuzz' |
  xargs -n 1 dirname | sort -u)
targets=()
for package in "${packages[@]}"; do
  while read -r line; do
    [[ $line == Fuzz* ]] && targets+=("$package:$line")
  done < <(go test -list '^Fuzz' "./$package")
done
if (($#)); then
  chosen=()
  for name; do
    name=${name#./}
    found=0
    for t in "${targets[@]}"; do
      if [[ $t == "$name" || ${t#*:} == "$name" || ${t%:*} == "${name%/}" ]]; then
        chosen+=("$t")
        found=1
      fi
    done
    ((found)) || { echo "fuzz: error: no target and no package with targets is called $name (see --list)" >&2; exit 2; }
  done
  targets=("${chosen[@]}")
fi
((${#targets[@]})) || { echo "fuzz: error: there are no targets" >&2; exit 2; }
if ((list)); then
  printf '%s\n' "${targets[@]}"
  exit 0
fi

corpora() { git ls-files --others --exclude-standard -- '*/testdata/fuzz/*' | sort; }
failed=()
for t in "${targets[@]}"; do
  echo "fuzz: $t for $each"
  before=$(corpora)
  log=$(mktemp)
  # Seeds and regressions run first, by themselves: a target that hangs on one is a failure with a name.
  if go test -run "^${t#*:}\$" -timeout 5m "./${t%:*}" >"$log" 2>&1 &&
    go test -run '^$' -fuzz "^${t#*:}\$" -fuzztime "$each" -fuzzminimizetime 50x -timeout 30m "./${t%:*}" \
      >"$log" 2>&1; then
    grep -E '^fuzz: elapsed' "$log" | tail -n 1
  elif grep -qE '^ +context deadline exceeded$' "$log" && [[ $before == "$(corpora)" ]]; then
    # Go's own (golang/go#75804, mended in 1.27): the end of -fuzztime is told as a failure, of no input.
    grep -E '^fuzz: elapsed' "$log" | tail -n 1
  else
    failed+=("$t")
    grep -vE '^fuzz: elapsed' "$log" | head -n 60 >&2
    comm -13 <(echo "$before") <(corpora) | sed 's/^/fuzz: written: /' >&2
  fi
  rm -f "$log"
done
if ((${#failed[@]})); then
  printf 'fuzz: FAILED: %s\n' "${failed[@]}" >&2
  exit 1
fi
echo "fuzz: ok (${#targets[@]} targets)"

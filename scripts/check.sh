#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Formats in place, vets, lints, and fails where anything is wrong or the tree is dirty afterwards: what the
# formatters changed shows as a difference to commit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ -x .venv/bin/python ]] || { echo "check: error: there is no .venv; run make check, or make setup first" >&2; exit 2; }
export PATH=$PATH:/usr/local/go/bin
bin=$PWD/.venv/bin

failed=()
step() {
  echo "check: $*"
  "$@" </dev/null || failed+=("$1 ${2:-}")
}

step gofmt -l -s -w .
step go mod tidy
step go vet ./...
step go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
step "$bin/ruff" format --quiet python tests scripts
step "$bin/ruff" check --quiet python tests scripts
mapfile -t sources < <(git ls-files '*.cc' '*.h' '*.c')
step "$bin/clang-format" -i "${sources[@]}"
if [[ -n $(git grep -l '^//go:generate' -- '*.go') ]]; then
  step go generate ./...
fi

if ((${#failed[@]})); then
  printf 'check: FAILED: %s\n' "${failed[@]}" >&2
  exit 1
fi
dirty=$(git status --porcelain)
if [[ -n $dirty ]]; then
  git --no-pager diff --stat >&2
  printf 'check: FAILED: the tree is not clean:\n%s\n' "$dirty" >&2
  exit 1
fi
echo "check: ok"

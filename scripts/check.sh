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

# The files of the project: what git knows and what it would take, as far as it is there.
files() {
  git ls-files --cached --others --exclude-standard -- "$@" | while read -r file; do
    [[ -e $file ]] && echo "$file"
  done
}

failed=()
step() {
  local name=$1
  shift
  echo "check: $name"
  "$@" </dev/null || failed+=("$name")
}

mapfile -t go_files < <(files '*.go')
mapfile -t c_files < <(files '*.c' '*.cc' '*.h')
step "gofmt" gofmt -s -w "${go_files[@]}"
step "go mod tidy" go mod tidy
step "go vet" go vet ./...
step "staticcheck" go tool staticcheck ./...
# No tool line of go.mod: it would raise versions of what Collage itself links.
step "actionlint" go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12 .github/workflows/*.yml
step "ruff format" "$bin/ruff" format --quiet python tests scripts examples
step "ruff check" "$bin/ruff" check --quiet python tests scripts examples
step "mypy" "$bin/mypy" --no-error-summary
step "clang-format" "$bin/clang-format" -i "${c_files[@]}"
for script in scripts/*.sh .ci/run; do
  step "bash -n $script" bash -n "$script"
done
if grep -q '^//go:generate' "${go_files[@]}"; then
  step "go generate" go generate ./...
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

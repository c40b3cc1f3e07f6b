#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs the server that make bench-serve sets collage serve beside (MLServer with ONNX Runtime), and Triton's client,
# into .venv-serve, an environment of its own. May be run as often as one likes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=serve column=7
source scripts/steps.sh

requirements=scripts/requirements-serve.txt

[[ -x .venv/bin/python ]] || die "there is no .venv; run make bench-serve, or make setup first"
stamp=.venv-serve/collage-serve
hash=$(sha256sum <"$requirements" | cut -d ' ' -f 1)
if [[ -f $stamp && $(<"$stamp") == "$hash" ]]; then
  say server "is up to date"
  exit
fi
say server "installing MLServer, ONNX Runtime and Triton's client into .venv-serve (100 MB to fetch)"
[[ -x .venv-serve/bin/python ]] || .venv/bin/python -m venv .venv-serve
mkdir -p build
log=build/serve.log
subject="the server"
quietly .venv-serve/bin/python -m pip install --no-input --disable-pip-version-check --require-hashes \
  --only-binary :all: --requirement "$requirements"
echo "$hash" >"$stamp"
say "done" "scripts/bench_serve.py finds it"

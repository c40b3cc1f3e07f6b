#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs the server that make bench-serve sets collage serve beside (MLServer with ONNX Runtime), and Triton's client,
# into .venv-serve, an environment of its own. May be run as often as one likes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=serve column=7
source scripts/steps.sh

needed_apart bench-serve server
say server "installing MLServer, ONNX Runtime and Triton's client into .venv-serve (100 MB to fetch)"
make_apart
subject="the server"
install_apart
say "done" "scripts/bench_serve.py finds it"

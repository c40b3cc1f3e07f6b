#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs PyTorch for `collage bench all` into .venv-peers, an environment of its own beside .venv, whose packages it
# sees. PyPI's wheel for Linux wants NVIDIA's libraries to be imported at all, also where only the CPU is used: 3 GB to
# fetch, 6 GB on the disk. OpenVINO and ONNX Runtime come with `make backends`. May be run as often as one likes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=peers column=7
source scripts/steps.sh

if [[ -x .venv-peers/bin/python ]] && ! .venv-peers/bin/python -c "import torch" 2>/dev/null; then
  say PyTorch "what stands in .venv-peers cannot be imported, and is installed anew"
  rm -rf .venv-peers
fi
needed_apart peers PyTorch
free=$(df --output=avail -k . | tail -n 1)
((free > 10 * 1024 * 1024)) || die "PyTorch needs 10 GB of disk while it is installed; $((free >> 20)) GB are free here"
say PyTorch "installing into .venv-peers (3 GB to fetch; some minutes)"
make_apart
subject=PyTorch
# Before it sees .venv: a library of NVIDIA's that pip finds there would be left out here, beside those that load it.
install_apart
sees_venv
.venv-peers/bin/python -c "import torch" || die "PyTorch was installed into .venv-peers, but cannot be imported"
say "done" "collage bench all finds it"

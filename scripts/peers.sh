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

needed_apart peers PyTorch
free=$(df --output=avail -k . | tail -n 1)
((free > 10 * 1024 * 1024)) || die "PyTorch needs 10 GB of disk while it is installed; $((free >> 20)) GB are free here"
say PyTorch "installing into .venv-peers (3 GB to fetch; some minutes)"
make_apart
sees_venv
subject=PyTorch
install_apart
say "done" "collage bench all finds it"

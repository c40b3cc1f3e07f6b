#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the site of the documents (mkdocs.yml) into build/docs-site, or the folder given. What it needs lies in a
# folder of its own, build/docs-tools: mkdocs and its theme, and what lets the search work in pages that are opened as
# files (scripts/docs-libraries.txt, by npm). Exit code 3: these cannot be had here, for the reason that is printed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/npm.sh

site=${1:-build/docs-site}
python=${COLLAGE_PYTHON:-.venv/bin/python}
requirements=scripts/requirements-docs.txt
libraries=scripts/docs-libraries.txt
tools=build/docs-tools
absent() {
  printf 'docs: %s\n' "$1"
  exit 3
}

mkdir -p "$tools" "$(dirname "$site")"
# Tests that run side by side fetch them once.
exec 9>"$tools/lock"
flock 9
hash=$(cat "$requirements" "$libraries" <("$python" --version) | sha256sum | cut -d ' ' -f 1)
if [[ ! -f $tools/stamp || $(<"$tools/stamp") != "$hash" ]]; then
  rm -rf "$tools/site" "$tools/stamp" "$tools"/*.tgz
  command -v npm >/dev/null || absent "npm was not found. Install it (on Debian: apt-get install npm)"
  echo "docs: fetching mkdocs and its theme into $tools (15 MB)"
  "$python" -m pip install --quiet --no-input --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
    --target "$tools/site" --requirement "$requirements" >"$tools/log" 2>&1 </dev/null ||
    absent "mkdocs cannot be fetched: $(tail -n 1 "$tools/log")"
  while read -r name version file && read -r integrity; do
    npm_archive "$tools" "$name@$version" >"$tools/log" 2>&1 </dev/null ||
      absent "$name cannot be fetched: $(tail -n 1 "$tools/log")"
    archive=$tools/$name-$version.tgz
    is_what_npm_told "$archive" "$integrity" || {
      echo "docs: error: $name $version is not what $libraries says: its hash is another one" >&2
      exit 2
    }
    tar -xzf "$archive" -O "package/$file" >"$tools/$name.js"
  done < <(grep -v '^#' "$libraries")
  echo "$hash" >"$tools/stamp"
fi
flock -u 9
# Nothing is written beside the sources; what the theme says of another program's future is left out.
PYTHONPATH=$tools/site PYTHONDONTWRITEBYTECODE=1 NO_MKDOCS_2_WARNING=1 \
  "$python" -m mkdocs build --quiet --strict --clean --site-dir "$(realpath -m "$site")"
echo "docs: they are in $site; open $site/index.html"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Fetches the libraries that draw the page of --report (scripts/report-libraries.txt) with npm, holds each archive
# against its hash, and lays what is taken of it into pass/report/page/libraries, from where Go's compiler embeds it.
# What is there in these versions is left as it is. Without npm, or where it reaches no registry, it fails with what to
# do; set-up then goes on without: only --report needs them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=report column=9
source scripts/steps.sh
source scripts/npm.sh

list=scripts/report-libraries.txt
folder=pass/report/page/libraries
stamp=$folder/versions.txt
wanted=$(grep -v '^#' "$list")
if [[ -f $stamp && $(<"$stamp") == "$wanted" ]]; then
  say libraries "are up to date"
  exit 0
fi
command -v npm >/dev/null ||
  die "npm was not found. Install it (on Debian: apt-get install npm) and call make report"

fetched=$(mktemp -d)
trap 'rm -rf "$fetched"' EXIT
mkdir -p build
log=build/report.log
rm -f "$stamp"
while read -r name version files && read -r integrity; do
  say "$name" "fetching $version"
  subject="$name $version"
  quietly npm_archive "$fetched" "$name@$version"
  archive=$fetched/$name-$version.tgz
  is_what_npm_told "$archive" "$integrity" ||
    die "$name $version is not what $list says: its hash is another one"
  for file in $files; do
    case $file in
    LICENSE*) target=$name.LICENSE.txt ;;
    *) target=$(basename "$file") ;;
    esac
    tar -xzf "$archive" -O "package/$file" >"$folder/$target"
  done
done <<<"$wanted"
printf '%s\n' "$wanted" >"$stamp"
say "done" "they are in $folder; make build puts them into collage"

# SPDX-License-Identifier: Apache-2.0
#
# Packages of npm's, held against their hashes; to be sourced.

# npm_archive FOLDER NAME@VERSION: fetches the package's archive into the folder. What a package would run of its own
# when it is installed is not run: it is not installed.
npm_archive() { npm pack --silent --ignore-scripts --pack-destination "$1" "$2"; }

# is_what_npm_told ARCHIVE INTEGRITY: whether it has the hash that npm tells of it (sha512-...).
is_what_npm_told() {
  local sum
  sum=$(sha512sum "$1" | cut -d ' ' -f 1)
  [[ $sum == "$(base64 -d <<<"${2#sha512-}" | od -An -v -tx1 | tr -d ' \n')" ]]
}

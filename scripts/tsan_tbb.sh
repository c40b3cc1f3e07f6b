#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds oneTBB with ThreadSanitizer into build/tsan-tbb and prints that folder: scripts/tsan_tbb.sh
#
# The sanitizer has to see how oneTBB's tasks wait for one another. With the oneTBB of the wheel, which was not
# compiled for it, whatever is handed from one task to the next looks like a race, and to excuse that is to excuse
# every race within tasks. The sources are Debian's (2 MB to fetch), of a version whose binary interface is the one
# that the wheels' oneDNN wants, too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
prefix=$PWD/build/tsan-tbb
if [[ -e $prefix/lib/libtbb.so.12 ]]; then
  echo "$prefix"
  exit
fi
work=$prefix/work
mkdir -p "$work"/{parts,lists/partial,cache/archives/partial,source}

# The package's sources, by the distribution's own list of places, without a change to the system's lists.
fetch() {
  if compgen -G '/etc/apt/sources.list.d/*.sources' >/dev/null; then
    for file in /etc/apt/sources.list.d/*.sources; do
      sed 's/^Types:.*/Types: deb-src/' "$file" >"$work/parts/${file##*/}"
    done
  fi
  { cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null || true; } |
    sed -n 's/^deb /deb-src /p' >"$work/parts/plain.list"
  local apt=(apt-get -q -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$work/parts"
    -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache")
  "${apt[@]}" update
  (cd "$work/source" && "${apt[@]}" source --download-only onetbb)
}
{
  [[ -n $(compgen -G "$work/source/onetbb_*.orig.tar.*" || true) ]] || fetch
  tar -C "$work/source" -xf "$work"/source/onetbb_*.orig.tar.*
  cmake -S "$work"/source/oneTBB-* -B "$work/build" -DTBB_SANITIZE=thread -DTBB_TEST=OFF -DTBBMALLOC_BUILD=OFF \
    -DTBB_STRICT=OFF -DTBB_DISABLE_HWLOC_AUTOMATIC_SEARCH=ON -DCMAKE_INSTALL_LIBDIR=lib \
    -DCMAKE_BUILD_TYPE=Native -DCMAKE_CXX_FLAGS_NATIVE="-O1 -g1"
  cmake --build "$work/build" --parallel "${JOBS:-$(nproc)}"
  cmake --install "$work/build" --prefix "$prefix"
} >"$prefix/log" 2>&1 </dev/null || {
  tail -n 20 "$prefix/log" >&2
  echo "native: error: oneTBB could not be built for ThreadSanitizer; all of the output: $prefix/log" >&2
  exit 1
}
echo "$prefix"

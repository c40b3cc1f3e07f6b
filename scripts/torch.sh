#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Fetches a PyTorch for the tests of TorchScript into a folder (build/test-torch, or the one given) and changes nothing
# else: Debian's CPU build with the libraries that it needs, and a NumPy that both it and TVM can use (170 MB to fetch,
# 700 MB on the disk; PyPI's wheel would be 3 GB). It fits the Python of .venv where that has the minor version of
# Debian's. Afterwards FOLDER/environment has what to put into PYTHONPATH and LD_LIBRARY_PATH. Exit code 3: it cannot be
# had here, for the reason that is printed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=${1:-build/test-torch}
numpy="numpy==1.26.4 --hash=sha256:666dbfb6ec68962c033a450943ded891bed2d54e6755e35e5835d63f4f6931d5"
python=${COLLAGE_PYTHON:-.venv/bin/python}
absent() {
  printf 'torch: %s\n' "$1"
  exit 3
}

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
# Tests that run side by side fetch it once.
exec 9>"$folder/lock"
flock 9
[[ -f $folder/environment ]] && exit
for tool in apt-get dpkg-deb; do
  command -v "$tool" >/dev/null || absent "there is no $tool: only Debian's PyTorch is small enough to be fetched for a test"
done
tag=$("$python" -c 'import sys; print(f"cpython-{sys.version_info.major}{sys.version_info.minor}")')
[[ $tag == cpython-311 ]] || absent "Debian's PyTorch is for Python 3.11, and $python is $tag"

work=$(mktemp -d "$folder/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
# What is installed already is not listed, and is found in the system's folders.
packages=$(apt-get -s install --no-install-recommends python3-torch 2>"$work/log" | awk '/^Inst /{print $2}') ||
  absent "apt does not know python3-torch (apt-get update may help): $(tail -n 1 "$work/log")"
mkdir -p "$work/root" "$work/packages"
if [[ -n $packages ]]; then
  # shellcheck disable=SC2086
  (cd "$work/packages" && apt-get download $packages >"$work/log" 2>&1) ||
    absent "Debian's packages cannot be fetched: $(tail -n 1 "$work/log")"
fi
for package in "$work"/packages/*.deb; do
  [[ -e $package ]] && dpkg-deb -x "$package" "$work/root"
done

mkdir -p "$work/site"
torch=$(find "$work/root/usr/lib/python3/dist-packages/torch" /usr/lib/python3/dist-packages/torch \
  -maxdepth 0 2>/dev/null | head -n 1 || true)
[[ -n $torch ]] || absent "Debian's python3-torch holds no package torch"
echo "$numpy" >"$work/numpy.txt"
"$python" -m pip install --quiet --no-input --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
  --target "$work/site" -r "$work/numpy.txt" >"$work/log" 2>&1 </dev/null ||
  absent "NumPy 1.26 cannot be fetched: $(tail -n 1 "$work/log")"

rm -rf "$folder/root" "$folder/site"
mv "$work/root" "$work/site" "$folder"
for name in torch torchgen functorch; do
  ln -s "${torch/#"$work"/"$folder"}/../$name" "$folder/site/$name"
done
# oneDNN and oneTBB come before Debian's, which have the same names: the plug-ins were built with these.
own=$("$python" -c 'import sys; print(sys.prefix)')/lib
root=$folder/root/usr/lib
libraries=$own:$root/x86_64-linux-gnu:$root/x86_64-linux-gnu/blas:$root/x86_64-linux-gnu/lapack:$root:$folder/root/lib/x86_64-linux-gnu
printf '%s\n%s\n' "$folder/site" "$libraries" >"$folder/environment"

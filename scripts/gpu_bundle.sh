#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Packs what a machine with an NVIDIA card needs to try all of CUDA (gpu_check.py), where there is no package index: TVM
# without what only its developers need, LLVM, oneTBB and this tree's build, stripped. There must be Python 3.10 or
# newer with NumPy there, a C++ compiler, the driver, and NVRTC (PyTorch brings it); cuBLAS is used where it is.
#
#   gpu_bundle.sh [FILE]     writes build/gpu-bundle.tar.xz, or FILE; there:
#   tar xf gpu-bundle.tar.xz && python3 gpu-bundle/scripts/gpu_check.py --json gpu.json
set -euo pipefail
file=$(realpath -m "${1:-$(dirname "${BASH_SOURCE[0]}")/../build/gpu-bundle.tar.xz}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
program=bundle column=12
source scripts/steps.sh

for tool in xz strip; do
  command -v "$tool" >/dev/null || die "there is no $tool (apt-get install xz-utils binutils)"
done
python=$root/.venv/bin/python
[[ -x $python && -f $root/python/collage/lib/libcollage_cuda.so ]] || die "nothing is built yet; run make setup first"
site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["platlib"])')

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
to=$folder/gpu-bundle
mkdir -p "$to/python/llvm/lib" "$to/scripts" "$to/tests"

say copying "TVM, LLVM, oneTBB, this tree's build"
# Sources, headers and other languages of TVM are not needed to build and run models.
tar -C "$site" --exclude='tvm/src' --exclude='tvm/3rdparty' --exclude='tvm/include' --exclude='tvm/golang' \
  --exclude='tvm/jvm' --exclude='tvm/rust' --exclude='tvm/web' --exclude='tvm/docs' --exclude='__pycache__' \
  -cf - tvm decorator typing_extensions.py attr psutil | tar -C "$to/python" -xf -
cp "$site/llvm/lib/libLLVM.so" "$to/python/llvm/lib/"
tar -C "$root/python" --exclude='__pycache__' --exclude='collage/bin' --exclude='collage/lib' -cf - collage |
  tar -C "$to/python" -xf -
mkdir "$to/python/collage/lib"
cp "$root"/python/collage/lib/libcollage{,_runtime,_cuda}.so "$to/python/collage/lib/"
# The plug-ins look for it beside themselves.
cp -L "$root/.venv/lib/libtbb.so.12" "$to/python/collage/lib/"
cp "$root"/scripts/{gpu_check,bench_devices}.py "$to/scripts/"
cp -r "$root"/tests/{device_operators.py,emulated_card.py,cuda_emulator} "$to/tests/"
find "$to" -name '*.so*' -type f -exec strip --strip-unneeded {} +

say packing "$(du -sm "$to" | cut -f 1) MB; this takes minutes"
mkdir -p "$(dirname "$file")"
tar -C "$folder" --sort=name --owner=0 --group=0 --numeric-owner -cf - gpu-bundle | xz --x86 --lzma2=preset=8 -T 0 >"$file.part"
mv "$file.part" "$file"
say done "$file, $(du -m "$file" | cut -f 1) MB"

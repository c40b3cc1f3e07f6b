#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Gets an OpenCL device: where there is no driver, as root on Debian pocl is installed, which runs on the processor
# itself. Prints the drivers. opencl.sh clblast gets the library CLBlast as well, in the same way. Exit code 3: it cannot
# be had here, for the reason that is printed.
set -euo pipefail

absent() {
  printf '%s\n' "$1"
  exit 3
}

drivers() { cat "${OCL_ICD_VENDORS:-/etc/OpenCL/vendors}"/*.icd 2>/dev/null || true; }
# The whole list is read first: a pipe into `grep -q` fails where ldconfig is still writing when the name is found.
found() { [[ $(ldconfig -p) =~ $1 ]]; }

# install WHAT PACKAGE...: what it is called, and Debian's packages of it.
install() {
  local what=$1 packages=("${@:2}")
  command -v apt-get >/dev/null && [[ $(id -u) == 0 ]] ||
    absent "there is no $what, and only root on Debian installs one (apt-get install ${packages[*]})"
  log=${log:-$(mktemp)}
  trap 'rm -f "$log"' EXIT
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update -q && apt-get install -q -y --no-install-recommends "${packages[@]}"; } \
    >"$log" 2>&1 </dev/null || absent "Debian's ${packages[0]} cannot be installed: $(tail -n 1 "$log")"
}

if [[ -z $(drivers) ]] || ! found 'libOpenCL\.so\.1'; then
  install "OpenCL driver" pocl-opencl-icd ocl-icd-libopencl1
  [[ -n $(drivers) ]] && found 'libOpenCL\.so\.1' || absent "Debian's pocl has no driver in it"
fi
if [[ ${1:-} == clblast ]] && ! found 'libclblast\.so\.1'; then
  install "CLBlast" libclblast1
  found 'libclblast\.so\.1' || absent "Debian's libclblast1 has no CLBlast in it"
fi
drivers

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Gets an OpenCL device: where there is no driver, as root on Debian pocl is installed, which runs on the processor
# itself. Prints the drivers. Exit code 3: it cannot be had here, for the reason that is printed.
set -euo pipefail

absent() {
  printf '%s\n' "$1"
  exit 3
}

drivers() { cat "${OCL_ICD_VENDORS:-/etc/OpenCL/vendors}"/*.icd 2>/dev/null || true; }
loader() { ldconfig -p | grep -q 'libOpenCL\.so\.1'; }

if [[ -z $(drivers) ]] || ! loader; then
  command -v apt-get >/dev/null && [[ $(id -u) == 0 ]] ||
    absent "there is no OpenCL driver, and only root on Debian installs one (apt-get install pocl-opencl-icd ocl-icd-libopencl1)"
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update -q && apt-get install -q -y --no-install-recommends pocl-opencl-icd ocl-icd-libopencl1; } \
    >"$log" 2>&1 </dev/null || absent "Debian's pocl cannot be installed: $(tail -n 1 "$log")"
  [[ -n $(drivers) ]] && loader || absent "Debian's pocl has no driver in it"
fi
drivers

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs the libraries of optional backends into .venv: backends.sh NAME[,NAME...]. A name is one of those below, whose
# files are requirements-NAME.txt in this folder, or "all" for every one of them but "cublas", which is large; or
# "opencl", for which the system gets a driver where it has none (opencl.sh), or "clblast", for which it gets CLBlast, too. The runtime plug-ins are built by
# setup.sh whether the libraries are there or not, so nothing is compiled here. May be run as often as one
# likes: what is there in the pinned version is left as it is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=backends column=12
source scripts/steps.sh

started=$SECONDS

# What may be installed, and what has to be fetched for it: compressed, in megabytes. Other files requirements-NAME.txt
# are for developers.
declare -A megabytes=([cublas]=581 [cuda]=90 [mkl]=195 [onnxruntime]=24 [openblas]=8 [openvino]=59 [tune]=200)
known=(cuda mkl onnxruntime openblas openvino tune)
list="$(printf '%s, ' "${known[@]}")all, cublas, opencl, clblast"

IFS=', ' read -r -a names <<<"$*"
((${#names[@]})) || die "name what to install, as in: make backends BACKENDS=openvino,openblas (known: $list)"
wanted=()
for name in "${names[@]}"; do
  case $name in
  "") ;;
  all) wanted=("${known[@]}") ;;
  opencl | tvm_opencl)
    drivers=$(scripts/opencl.sh) || die "$drivers"
    say opencl "drivers: ${drivers//$'\n'/ }"
    ;;
  clblast)
    drivers=$(scripts/opencl.sh clblast) || die "$drivers"
    say clblast "is there; drivers: ${drivers//$'\n'/ }"
    ;;
  # These two come with make setup.
  tvm | dnnl | dnnl_tvm) say "$name" "needs nothing beyond make setup" ;;
  cublas) wanted+=(cublas) ;;
  tvm_cuda) [[ " ${wanted[*]} " == *" cuda "* ]] || wanted+=(cuda) ;;
  *)
    [[ " ${known[*]} " == *" $name "* ]] ||
      die "there is no backend $name to install (known: $list)"
    [[ " ${wanted[*]} " == *" $name "* ]] || wanted+=("$name")
    ;;
  esac
done
[[ -x .venv/bin/python ]] || die "there is no .venv; run make backends, or make setup first"

mkdir -p build
# Set-up and this work on one .venv.
exec 9>build/setup.lock
if command -v flock >/dev/null && ! flock --nonblock 9; then
  say waiting "a set-up of this tree is at work"
  flock 9
fi
log=build/backends.log
for name in "${wanted[@]}"; do
  file=scripts/requirements-$name.txt
  stamp=.venv/collage-backend-$name
  hash=$(cat "$file" .venv/collage-requirements 2>/dev/null | sha256sum | cut -d ' ' -f 1)
  if [[ -f $stamp && $(<"$stamp") == "$hash" ]]; then
    say "$name" "is up to date"
    continue
  fi
  say "$name" "installing into .venv (${megabytes[$name]:-some} MB to fetch)"
  # The files name all that is needed; what else the packages ask for (another oneTBB, an OpenMP, a package that
  # reports to the network) must not come with them.
  subject=$name
  quietly .venv/bin/python -m pip install --no-input --disable-pip-version-check --require-hashes --no-deps \
    --only-binary :all: --requirement "$file"
  echo "$hash" >"$stamp"
done
say done "in $((SECONDS - started)) s; .venv/bin/collage backends says what can be used"

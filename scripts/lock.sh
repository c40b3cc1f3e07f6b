#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes scripts/requirements*.txt from the files *.in beside them: each package that is needed, those that others ask
# for too, in one version with the hashes of its files, for Linux and Python 3.10 to 3.13. Versions stay as they are
# where the files *.in allow them; what it is given goes to uv, as in: lock.sh --upgrade-package numpy.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
die() {
  printf 'lock: error: %s\n' "$1" >&2
  exit 2
}

# uv itself comes from the lock, too.
venv=../build/venv-lock
python=../.venv/bin/python
[[ -x $python ]] || die "there is no .venv; run make setup first"
if ! [[ -x $venv/bin/uv && $venv/stamp -nt requirements-package.txt ]]; then
  mkdir -p ../build
  rm -rf "$venv"
  "$python" -m venv "$venv"
  sed -n '/^uv==/,/^[^ ]*$/p' requirements-package.txt | sed '/^    #/,$d' >"$venv/uv.txt"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
    --requirement "$venv/uv.txt" || die "uv could not be installed"
  touch "$venv/stamp"
fi

lock() {
  local name=$1
  shift
  printf 'lock: %s\n' "$name.txt"
  # The command is given, so that no file names options of uv or an index. Windows alone needs colorama, but for the
  # theme of the documents' site.
  local windows=(--no-emit-package colorama)
  [[ $name != requirements-docs ]] || windows=()
  "$venv/bin/uv" pip compile --quiet --no-config --no-python-downloads --universal --python-version 3.10 \
    --only-binary :all: --generate-hashes --custom-compile-command scripts/lock.sh "${windows[@]}" "$@" \
    --output-file "$name.txt" "$name.in" >/dev/null || die "$name.in could not be resolved"
}

lock requirements "$@"
lock requirements-dev --constraints requirements.txt "$@"
lock requirements-package --constraints requirements.txt "$@"
lock requirements-peers --constraints requirements.txt "$@"
lock requirements-browser --constraints requirements.txt "$@"
lock requirements-docs --constraints requirements.txt --constraints requirements-dev.txt \
  --constraints requirements-peers.txt "$@"
lock requirements-serve "$@"
# Files of backends (and of trained models) name all that is needed; what else the packages ask for (another oneTBB, an OpenMP, a package that
# reports to the network) must not come with them.
for name in cublas cuda mkl onnxruntime openblas openvino trained tune; do
  lock "requirements-$name" --no-deps "$@"
done

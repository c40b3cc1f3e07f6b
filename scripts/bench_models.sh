#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The networks of make models, as PyTorch's default exporter writes them, each searched with every backend that is here:
# what Collage makes of them beside ONNX Runtime, OpenVINO and torch.compile, in turn. Where it was interrupted it goes
# on, as long as the machine is the same.
#
#   scripts/bench_models.sh [OPTION ...]        options of `collage bench all`: --search-time 1m, --rounds 9, ...
#
#   ONLY=REGEX                  networks whose name has it (all)
#   MODELS=FOLDER               where make models has written them (build/models)
#   EXECUTABLES=FOLDER          what was compiled and taken, or is to be (build/bench/models)
#   RESULTS=FOLDER              where the results go (docs/results)
#
# Writes models_speed.{txt,json,svg}.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=bench-models column=4
source scripts/steps.sh

models=${MODELS:-build/models}
executables=${EXECUTABLES:-build/bench/models}
results=${RESULTS:-docs/results}

files=()
for file in "$models"/*.new.onnx; do
  [[ -e $file && $(basename "$file") != part.* ]] || continue
  [[ $(basename "$file" .new.onnx) =~ ${ONLY:-.} ]] && files+=("$file")
done
((${#files[@]})) || die "no network in $models is to be run; make models writes some"
mkdir -p "$executables"
say all "${#files[@]} networks"
.venv/bin/collage bench all --networks none --peers onnxruntime,openvino,torch-compile --rounds 9 \
  --executables "$executables" --resume --json "$results/models_speed.json" --svg "$results/models_speed.svg" \
  "${files[@]}" "$@" | tee "$results/models_speed.txt"

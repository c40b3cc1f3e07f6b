#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Networks that come quantised, as ONNX Runtime's tool writes them (QDQ), and the same in float32: what Collage makes of
# them beside TVM, ONNX Runtime and OpenVINO on the same files, in turn.
#
#   scripts/bench_quantised.sh [OPTION ...]     options of `collage bench all`: --search-time 30s, --backends, ...
#
#   EXECUTABLES=FOLDER          models, and what was compiled, or is (build/bench/quantised)
#   NETWORKS="unet mobilenet_v2"    which networks (four)
#   RESULTS=FOLDER              where the results go (docs/results)
#
# Writes quantised.{txt,json}.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=bench-quantised column=16
source scripts/steps.sh

folder=${EXECUTABLES:-build/bench/quantised}
results=${RESULTS:-docs/results}
read -ra networks <<<"${NETWORKS:-resnext50_32x4d mobilenet_v2 efficientnet_b0 unet}"

mkdir -p "$folder"
models=()
for network in "${networks[@]}"; do
  if [[ ! -e $folder/$network.qdq.onnx ]]; then
    say "$network" "quantising"
    .venv/bin/python scripts/quantise.py "$network" "$folder" 2>"$folder/$network.log" || die "$(<"$folder/$network.log")"
  fi
  models+=("$folder/$network.qdq.onnx" "$folder/$network.f32.onnx")
done
.venv/bin/collage bench all --networks none --peers tvm,onnxruntime,openvino --executables "$folder" --resume \
  --json "$results/quantised.json" "${models[@]}" "$@" | tee "$results/quantised.txt"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Ten networks where parts may be computed in narrower types: what Collage makes of them within a limit of error, beside
# OpenVINO as it comes (which chooses its type) and in int8 by NNCF, ONNX Runtime in its own static int8, PyTorch's
# autocast to bfloat16, and the engines in float32; in turn.
#
#   scripts/bench_precision.sh [OPTION ...]     options of `collage bench all`: --search-time 30s, --backends, ...
#
#   ERRORS="1e-3 1e-2 3e-2"     the limits (the length of the difference from plain TVM's outputs over theirs)
#   EXECUTABLES=FOLDER          what was compiled, or is (build/bench/precision): NAME.tar in a folder for each limit
#   NETWORKS="dcgan unet"       which networks (ten)
#   RESULTS=FOLDER              where the results go (docs/results)
#
# Writes precision_LIMIT.{txt,json} for each limit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=bench-precision column=6
source scripts/steps.sh

executables=${EXECUTABLES:-build/bench/precision}
results=${RESULTS:-docs/results}
ten="bert_full dcgan nasneta resnet50_3d resnext50_32x4d bert_base_128 efficientnet_b0 mobilenet_v2 unet vit_b16"
read -ra networks <<<"${NETWORKS:-$ten}"

for limit in ${ERRORS:-1e-3 1e-2 3e-2}; do
  mkdir -p "$executables/$limit"
  say "$limit" "${#networks[@]} networks"
  list=$(IFS=,; echo "${networks[*]}")
  .venv/bin/collage bench all --networks "$list" --precision auto --max-error "$limit" \
    --peers tvm,onnxruntime,onnxruntime-int8,openvino,openvino-default,openvino-int8,torch-bf16 \
    --executables "$executables/$limit" \
    --json "$results/precision_$limit.json" "$@" | tee "$results/precision_$limit.txt"
done

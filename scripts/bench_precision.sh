#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Ten networks where parts may be computed in narrower types: what Collage makes of them within a limit of error, beside
# OpenVINO as it comes (which chooses its type) and in int8 by NNCF, ONNX Runtime in its own static int8, PyTorch's
# autocast to bfloat16, and the engines in float32; in turn.
#
#   scripts/bench_precision.sh [OPTION ...]     options of `collage bench all`: --search-time 30s, --backends, ...
#
#   PRECISIONS="f32 auto"       what is allowed (f32 bf16 int8 auto, all four): auto within each of the limits, bf16 and
#                               int8 within 0.1, f32 within its own tolerance
#   ERRORS="1e-3 1e-2 3e-2"     the limits of auto (the length of the difference from plain TVM's outputs over theirs)
#   EXECUTABLES=FOLDER          what was compiled, or is (build/bench/precision): NAME.tar in a folder for each result
#   NETWORKS="dcgan unet"       which networks (ten)
#   PEERS=openvino-default      beside which engines (all that are named above)
#   RESULTS=FOLDER              where the results go (docs/results)
#
# Writes precision_LIMIT.{txt,json} for each limit of auto, and precision_{f32,bf16,int8}.{txt,json}.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=bench-precision column=6
source scripts/steps.sh

executables=${EXECUTABLES:-build/bench/precision}
results=${RESULTS:-docs/results}
ten="bert_full dcgan nasneta resnet50_3d resnext50_32x4d bert_base_128 efficientnet_b0 mobilenet_v2 unet vit_b16"
read -ra networks <<<"${NETWORKS:-$ten}"

list=$(IFS=,; echo "${networks[*]}")

# measure NAME PRECISION [OPTION ...] [what was given to this script]
measure() {
  local name=$1 precision=$2
  shift 2
  mkdir -p "$executables/$name"
  say "$name" "${#networks[@]} networks"
  .venv/bin/collage bench all --networks "$list" --precision "$precision" \
    --peers "${PEERS:-tvm,onnxruntime,onnxruntime-int8,openvino,openvino-default,openvino-int8,torch-bf16}" \
    --executables "$executables/$name" \
    --json "$results/precision_$name.json" "$@" | tee "$results/precision_$name.txt"
}

for precision in ${PRECISIONS:-f32 bf16 int8 auto}; do
  case $precision in
    f32) measure f32 f32 "$@" ;;
    bf16 | int8) measure "$precision" "$precision" --max-error 0.1 "$@" ;;
    auto)
      for limit in ${ERRORS:-1e-3 1e-2 3e-2}; do
        measure "$limit" auto --max-error "$limit" "$@"
      done
      ;;
    *) die "$precision is none of f32, bf16, int8, auto" ;;
  esac
done

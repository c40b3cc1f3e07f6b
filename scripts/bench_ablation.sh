#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What each part of the search is worth: ten networks by the whole search, by its first parts alone, and by each backend
# alone, all from empty stores and with the same time; what was built is kept, so an interrupted run goes on.
#
#   scripts/bench_ablation.sh [OPTION ...]      options of `collage bench all`: --search-time 30s, --rounds 21, ...
#
#   EXECUTABLES=FOLDER          what was compiled, or is (build/bench/ablation); remove it to compile all anew
#   NETWORKS="dcgan unet"       which networks (ten)
#   BACKENDS=tvm,dnnl           which backends (tvm,dnnl,native,openvino, where they can be used)
#   RESULTS=FOLDER              where the results go (docs/results)
#
# Writes ablation.{txt,json,svg}.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

executables=${EXECUTABLES:-build/bench/ablation}
results=${RESULTS:-docs/results}
ten="bert_full dcgan nasneta resnet50_3d resnext50_32x4d bert_base_128 efficientnet_b0 mobilenet_v2 unet vit_b16"
read -ra networks <<<"${NETWORKS:-$ten}"
printf -v list "%s," "${networks[@]}"
mkdir -p "$executables"
.venv/bin/collage bench all --networks "${list%,}" --peers tvm --backends "${BACKENDS:-tvm,dnnl,native,openvino}" \
  --skip-unusable --search-time 60s --ablation --executables "$executables" --json "$results/ablation.json" \
  --svg "$results/ablation.svg" "$@" | tee "$results/ablation.txt"

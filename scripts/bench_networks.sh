#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Twelve networks at batch 1 on all processors, at batch 8 on all, and at batch 1 on one: what Collage makes of them,
# oneDNN alone, and the engines that people use, in turn.
#
#   scripts/bench_networks.sh [OPTION ...]      options of `collage bench all`: --before FOLDER, --search-time 30s, ...
#
#   ONLY="b8 t1"                which of b1, b8 and t1 are taken (all); without: what was kept at batch 1, without
#                               each kernel of native that it has (options of `collage bench without`)
#   EXECUTABLES=FOLDER          what was compiled, or is (build/bench/networks): NAME.tar in FOLDER/b1, b8 or t1
#   NETWORKS="dcgan unet"       which networks (twelve)
#   RESULTS=FOLDER              where the results go (docs/results)
#
# Writes networks_b1.{txt,json,svg}, networks_b8.* and networks_t1.*; without.* for ONLY=without.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=bench-networks column=4
source scripts/steps.sh

executables=${EXECUTABLES:-build/bench/networks}
results=${RESULTS:-docs/results}
twelve="bert_full dcgan nasneta resnet50_3d resnext50_32x4d bert_base_128 efficientnet_b0 mobilenet_v2 mobilenet_v3 unet vit_b16 yolov3"
read -ra networks <<<"${NETWORKS:-$twelve}"

# take NAME BATCH [OPTION ...]
take() {
  local name=$1 batch=$2 list
  shift 2
  printf -v list "%s$batch," "${networks[@]}"
  mkdir -p "$executables/$name"
  say "$name" "${#networks[@]} networks"
  .venv/bin/collage bench all --networks "${list%,}" --peers tvm,onnxruntime,openvino --alone dnnl \
    --executables "$executables/$name" --json "$results/networks_$name.json" --svg "$results/networks_$name.svg" "$@" |
    tee "$results/networks_$name.txt"
}

# leave_out [OPTION ...]
leave_out() {
  local list
  printf -v list "%s," "${networks[@]}"
  say without "${#networks[@]} networks"
  .venv/bin/collage bench without --networks "${list%,}" --executables "$executables/b1" \
    --json "$results/without.json" --svg "$results/without.svg" "$@" | tee "$results/without.txt"
}

for what in ${ONLY:-b1 b8 t1}; do
  case $what in
    b1) take b1 "" "$@" ;;
    b8) take b8 @8 "$@" ;;
    t1) take t1 "" --threads 1 "$@" ;;
    without) leave_out "$@" ;;
    *) die "ONLY=$what: it is b1 (batch 1), b8 (batch 8), t1 (one thread) or without" ;;
  esac
done

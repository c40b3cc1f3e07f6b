#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# How fast the fastest executable so far is, second by second, while collage compile works on eight networks from an
# empty store; what was taken is kept, so an interrupted run goes on.
#
#   scripts/bench_anytime.sh [OPTION ...]       options of `collage bench anytime`: --before FOLDER, --search-time 60s
#
#   EXECUTABLES=FOLDER          where it is kept (build/bench/anytime); remove it to take all anew
#   NETWORKS="dcgan unet"       which networks (eight)
#   RESULTS=FOLDER              where the results go (docs/results)
#
# Writes anytime.{txt,json,svg}.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

executables=${EXECUTABLES:-build/bench/anytime}
results=${RESULTS:-docs/results}
networks=()
if [[ ${NETWORKS:-} ]]; then
  read -ra names <<<"$NETWORKS"
  printf -v list "%s," "${names[@]}"
  networks=(--networks "${list%,}")
fi
mkdir -p "$executables"
.venv/bin/collage bench anytime "${networks[@]}" --skip-unusable --executables "$executables" \
  --json "$results/anytime.json" --svg "$results/anytime.svg" "$@" | tee "$results/anytime.txt"

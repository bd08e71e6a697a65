#!/usr/bin/env bash
# Speed and memory of a training step on this machine: full and LoRA, in float32 and bf16, on one rank and on two
# fully sharded ones.
# Prints one JSON object a case. MODEL may name a Hugging Face folder; else the quickstart's is taken.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh
model=${MODEL:-build/quickstart/SmolLM2-135M-Instruct}
[ -f "$model/config.json" ] || die "no model at $model: run ./dev quickstart once, or set MODEL"
for dtype in fp32 bf16; do
  for adapter in none lora; do
    for ranks in 1 2; do
      # The same 1,024 tokens a step in every case.
      printf '{"dtype": "%s", "adapter": "%s", "ranks": %d, "result": ' "$dtype" "$adapter" "$ranks"
      build/release/tessera bench train --model "$model" --micro-batch $((2 / ranks)) --seq 512 --steps 6 \
        --adapter "$adapter" --dtype "$dtype" --nproc "$ranks" --json "$@" | tail -n 1 | tr -d '\n'
      printf '}\n'
    done
  done
done

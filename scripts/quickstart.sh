#!/usr/bin/env bash
# Finetunes SmolLM2-135M-Instruct on two ranks and shows answers to the same questions before and after.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh
tessera=build/release/tessera
work=build/quickstart
base=$work/SmolLM2-135M-Instruct
questions=("What is Tessera?" "Why is it called Tessera?" "Which command finetunes a model with Tessera?")

mkdir -p "$work"
scripts/fetch_model.sh

say "before"
"$tessera" generate --model "$base" --chat --max-new-tokens 60 "${questions[@]}" 2>"$work/before.log" | tee "$work/before.txt"
say "finetuning with recipes/quickstart.yaml on 2 ranks"
"$tessera" train recipes/quickstart.yaml --nproc 2 "$@"
say "merging the adapter"
"$tessera" merge --overwrite "$work/adapter" "$work/merged"
say "after"
"$tessera" generate --model "$work/merged" --chat --max-new-tokens 60 "${questions[@]}" 2>"$work/after.log" | tee "$work/after.txt"

cat <<TEXT

== done
adapter        $work/adapter      (loads in PEFT)
merged model   $work/merged       (loads in Transformers, vLLM)
metrics        $work/adapter/metrics.jsonl and runs/ (TensorBoard)
program        build/release/tessera        (./dev install puts it on the PATH)
next           edit recipes/quickstart.yaml, or read docs/recipes.md
TEXT

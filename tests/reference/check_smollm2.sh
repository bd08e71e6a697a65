#!/usr/bin/env bash
# check_smollm2.sh TESSERA GGUF HF_FOLDER LORA_INITIAL PYTHON WORK [NPROC]
#
# Holds a build against Transformers and PEFT on a real model, from the GGUF file to finetuned folders; a few minutes.
#   TESSERA       the program
#   GGUF          SmolLM2-135M-Instruct.Q4_1.gguf
#   HF_FOLDER     the folder that make_smollm2_reference.py made of it
#   LORA_INITIAL  the adapter that data/smollm2/lora.json starts from (README.md)
#   PYTHON        an interpreter with requirements.txt
#   WORK          a folder for the outputs, about 3 GB
#   NPROC         1 (default), 2 or 4 ranks for the training
set -euo pipefail
[ $# -ge 6 ] || { sed -n 's/^# \{0,1\}//p' "$0" | sed 1d >&2; exit 2; }
tessera=$1 gguf=$2 hf_folder=$3 lora_initial=$4 python=$5 work=$6 nproc=${7:-1}
here=$(cd "$(dirname "$0")" && pwd)
data=$here/data/smollm2
export ONEDNN_MAX_CPU_ISA=${ONEDNN_MAX_CPU_ISA:-AVX512_CORE_FP16}
case $nproc in
  1) micro_batch=2 accumulation=2 ;;
  2) micro_batch=2 accumulation=1 ;;
  4) micro_batch=1 accumulation=1 ;;
  *) echo "NPROC must be 1, 2 or 4: a step has four rows" >&2; exit 2 ;;
esac
mkdir -p "$work"
say() { printf '\n== %s\n' "$*"; }

say "convert: the weights are those of Transformers' own reading of the file"
base=$work/base
"$tessera" convert --overwrite "$gguf" "$base"
"$python" "$here/compare_weights.py" "$base/model.safetensors" "$hf_folder/model.safetensors"

ids=504,3575,282,4649,314,7042,30,2,198,1,4093,198
# compare_logits MODEL [ADAPTER]
compare_logits() {
  "$tessera" debug logits --model "$1" ${2:+--adapter "$2"} --ids "$ids" --out "$work/logits.safetensors"
  "$python" "$here/check_output.py" --model "$1" ${2:+--adapter "$2"} --ids "$ids" --logits "$work/logits.safetensors" \
    --tolerance 1e-4
}
say "logits of the converted model"
compare_logits "$base"

say "logits of plain text, chats and control tokens, beside Transformers' own spread"
"$python" "$here/check_logits.py" --tessera "$tessera" --model "$base" --rows "$data/rows.jsonl" \
  --chats "$here/../../examples/data/tessera_chat.jsonl"

say "greedy answers"
"$python" - "$tessera" "$base" "$data/greedy.json" <<'PYTHON'
import json
import subprocess
import sys

tessera, base, file_name = sys.argv[1:]
with open(file_name, encoding="utf-8") as file:
    conversations = json.load(file)
for conversation in conversations:
    messages = conversation["messages"]
    system = ["--system", messages[0]["content"]] if messages[0]["role"] == "system" else []
    command = [tessera, "generate", "--model", base, "--chat", "--max-new-tokens", "40", *system]
    answer = subprocess.run([*command, messages[-1]["content"]], check=True, stdout=subprocess.PIPE, text=True).stdout
    print(repr(answer))
    if answer != conversation["answer"] + "\n":
        sys.exit(f"expected {conversation['answer']!r}")
PYTHON

# write_recipe FILE LEARNING_RATE OUTPUT
write_recipe() {
  cat >"$1" <<YAML
base_model: $base
datasets:
  - path: $data/rows.jsonl
shuffle_merged_datasets: false
sample_packing: false
sequence_len: 4096
micro_batch_size: $micro_batch
gradient_accumulation_steps: $accumulation
max_steps: 20
learning_rate: $2
lr_scheduler: cosine
warmup_steps: 3
optimizer: adamw_torch
weight_decay: 0.1
max_grad_norm: 1.0
logging_steps: 1
output_dir: $3
overwrite_output_dir: true
YAML
}

say "20 steps of LoRA on $nproc rank(s)"
write_recipe "$work/lora.yaml" 0.001 "$work/lora"
cat >>"$work/lora.yaml" <<YAML
adapter: lora
lora_model_dir: $lora_initial
lora_r: 4
lora_alpha: 8
lora_target_linear: true
YAML
"$tessera" train "$work/lora.yaml" --nproc "$nproc"
"$python" "$here/compare_curves.py" --reference "$data/lora.json" --metrics "$work/lora/metrics.jsonl"
compare_logits "$base" "$work/lora"

say "the merged model"
"$tessera" merge --overwrite "$work/lora" "$work/merged"
compare_logits "$work/merged"

say "20 steps of a full finetune on $nproc rank(s)"
write_recipe "$work/full.yaml" 5e-5 "$work/full"
"$tessera" train "$work/full.yaml" --nproc "$nproc"
"$python" "$here/compare_curves.py" --reference "$data/full.json" --metrics "$work/full/metrics.jsonl"
compare_logits "$work/full"

say "tokenizers of the folders load in Transformers"
"$python" - "$hf_folder" "$base" "$work/merged" "$work/full" "$work/lora" <<'PYTHON'
import sys

from transformers import AutoTokenizer

text = "<|im_start|>user\nGrüße, 12345 apples!  \n<|im_end|>\n"
expected, *others = [AutoTokenizer.from_pretrained(folder) for folder in sys.argv[1:]]
chat = [{"role": "user", "content": "Hello"}]
for folder, tokenizer in zip(sys.argv[2:], others):
    for one, other in ((expected(text), tokenizer(text)),
                       (expected.apply_chat_template(chat), tokenizer.apply_chat_template(chat))):
        if one["input_ids"] != other["input_ids"]:
            sys.exit(f"{folder}: {other['input_ids']} instead of {one['input_ids']}")
print("the same ids from all folders")
PYTHON
say "all as in the reference"

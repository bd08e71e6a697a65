#!/usr/bin/env python3
"""Compares the logits that Tessera wrote with those of Transformers or PEFT for the same folder.

usage: check_output.py --model DIR [--adapter DIR] --ids 1,2,3 [--logits F.safetensors] [--tolerance 1e-4]

--model is a full Hugging Face folder: a converted, finetuned or merged one, or the base of --adapter, a PEFT
folder. --logits holds a tensor `logits` of shape [tokens, vocab], as `tessera debug logits --ids` writes it;
without it the folder is only loaded and its best next tokens printed. Exits with 1 where the largest absolute
difference is above the tolerance, or the folder lacks or adds a tensor.
"""
import argparse
import sys

import reference_common  # noqa: F401

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def fail(text):
    print(f"check_output: {text}", file=sys.stderr)
    sys.exit(1)


def load(model_folder, adapter_folder):
    model, info = AutoModelForCausalLM.from_pretrained(
        model_folder, dtype=torch.float32, output_loading_info=True, local_files_only=True)
    wrong = {kind: names for kind, names in info.items() if names}
    if wrong:
        fail(f"{model_folder} does not hold exactly the tensors of the model: {wrong}")
    if not adapter_folder:
        return model.eval()
    from peft import PeftModel
    adapter = PeftModel.from_pretrained(model, adapter_folder)
    expected = {name.replace(".default.", ".") for name in adapter.state_dict()
                if "lora_" in name or ".modules_to_save.default." in name}
    stored = set(load_file(f"{adapter_folder}/adapter_model.safetensors"))
    # PEFT skips unknown names with no more than a warning.
    stored_lora, expected_lora = ({n for n in names if "lora_" in n} for names in (stored, expected))
    if not stored_lora or stored_lora != expected_lora:
        fail(f"adapter names differ: {sorted(stored_lora ^ expected_lora)[:10]}")
    return adapter.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--adapter")
    parser.add_argument("--ids", required=True, help="token ids, separated by commas")
    parser.add_argument("--logits", help="safetensors file with a tensor `logits`")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    arguments = parser.parse_args()
    ids = [int(part) for part in arguments.ids.split(",")]
    model = load(arguments.model, arguments.adapter)
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    top = expected[-1].topk(5)
    print("next tokens: " + ", ".join(f"{i} ({v:.4f})" for v, i in zip(top.values.tolist(), top.indices.tolist())))
    if not arguments.logits:
        return
    tensors = load_file(arguments.logits)
    if "logits" not in tensors:
        fail(f"{arguments.logits}: no tensor `logits`; it has {sorted(tensors)}")
    got = tensors["logits"]
    if got.shape != expected.shape or got.dtype != torch.float32:
        fail(f"{arguments.logits}: got {got.dtype} {list(got.shape)}, need float32 {list(expected.shape)}")
    difference = (got - expected).abs()
    worst = difference.max().item()
    position, column = divmod(int(difference.argmax()), expected.shape[1])
    agree = int((got.argmax(-1) == expected.argmax(-1)).sum())
    print(f"largest difference {worst:.3e} (token {position}, column {column}), mean {difference.mean().item():.3e}, "
          f"same argmax {agree} of {len(ids)}")
    if not worst <= arguments.tolerance:
        fail(f"largest difference {worst:.3e} is above {arguments.tolerance:.1e}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Follows ten finetuning steps of every tiny model of data/models/ with a plain loop of Transformers, both in float64.

usage: check_finetuning.py --tessera PROGRAM [NAME...]

A step is AdamW with weight decay of all but biases and norms, and clipped gradients, over two rows of token ids, padding
ones among them. A model passes if the losses of all steps agree to 1e-9 of their size. Models that Transformers does not train from such a folder are named as left out.
Exits with 1 if one differs.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

from make_model_reference import FAMILIES, model_class
from reference_common import DATA, everything_in_float64, label_loss_sum, num_label_tokens

import torch
from transformers import AutoConfig

STEPS, ROWS, RATE, DECAY = 10, 2, 1e-3, 0.01
LEFT_OUT = {"gpt_oss_mxfp4": "its files hold quantised weights"}


def make_rows(vocab_size):
    generator = torch.Generator().manual_seed(12)
    rows = []
    for index in range(STEPS * ROWS):
        ids = torch.randint(0, vocab_size, (5 + index % 7,), generator=generator)
        labels = ids.clone()
        labels[:1 + index % 3] = -100
        rows.append((ids, labels))
    return rows


def transformers_losses(folder, rows, attention):
    """Each row runs by itself, so that no padding and no packing is in these numbers."""
    auto = model_class(folder)
    stored = auto.from_pretrained(folder, dtype=torch.float32)
    state = {name: value.double() if value.is_floating_point() else value for name, value in stored.state_dict().items()}
    with everything_in_float64(type(stored)):
        model = auto.from_config(AutoConfig.from_pretrained(folder), attn_implementation=attention, dtype=torch.float64)
        model.load_state_dict(state)
        model.eval()  # without dropout, which Tessera does not apply either
        model.config._experts_implementation = "eager"
        named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        trained = list(named.values())
        decays = {name: p.dim() > 1 and not name.endswith("bias") for name, p in named.items()}
        optimizer = torch.optim.AdamW([{"params": [p for name, p in named.items() if decays[name]], "weight_decay": DECAY},
                                       {"params": [p for name, p in named.items() if not decays[name]], "weight_decay": 0.0}],
                                      lr=RATE)
        losses = []
        for step in range(STEPS):
            batch = rows[step * ROWS:(step + 1) * ROWS]
            total = sum(label_loss_sum(model(input_ids=ids[None], use_cache=False).logits[0], labels)
                        for ids, labels in batch) / sum(num_label_tokens(labels) for _, labels in batch)
            optimizer.zero_grad()
            total.backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            losses.append(total.item())
    return losses


def tessera_losses(program, folder, rows, work):
    data = os.path.join(work, "rows.jsonl")
    with open(data, "w", encoding="utf-8") as file:
        for ids, labels in rows:
            file.write(json.dumps({"input_ids": ids.tolist(), "attention_mask": [1] * len(ids),
                                   "labels": labels.tolist()}) + "\n")
    out = os.path.join(work, "out")
    recipe = {"base_model": folder, "datasets": [{"path": data, "type": ""}], "sequence_len": 16, "dtype": "float64",
              "micro_batch_size": ROWS, "max_steps": STEPS, "learning_rate": RATE, "lr_scheduler": "constant",
              "warmup_steps": 0, "weight_decay": DECAY, "max_grad_norm": 1.0, "shuffle_merged_datasets": False,
              "logging_steps": 1, "optimizer": "adamw", "router_aux_loss_coef": 0.0, "output_dir": out,
              "overwrite_output_dir": True, "save_strategy": "no"}
    path = os.path.join(work, "recipe.yaml")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(recipe, file)
    done = subprocess.run([program, "train", path], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return [line["loss"] for line in lines if "loss" in line]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tessera", required=True)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    models = os.path.join(DATA, "models")
    failed = []
    for name in options.names or sorted(os.listdir(models)):
        if name in LEFT_OUT:
            print(f"{name}: left out, {LEFT_OUT[name]}")
            continue
        folder = os.path.join(models, name)
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        family = FAMILIES.get(name, {})
        rows = make_rows(config.get("text_config", config)["vocab_size"] - family.get("num_other_ids", 0))
        try:
            want = transformers_losses(folder, rows, family.get("kind", "eager"))
            with tempfile.TemporaryDirectory() as work:
                got = tessera_losses(options.tessera, folder, rows, work)
            worst = max(abs(a - b) / b for a, b in zip(got, want, strict=True))
            text = f"loss {want[0]:.4f} to {want[-1]:.4f}, largest difference {worst:.1e}"
        except (RuntimeError, ValueError, KeyError, AttributeError) as error:
            worst, text = float("inf"), str(error)
        if not worst < 1e-9:
            failed.append(name)
        print(f"{name}: {text}{'' if worst < 1e-9 else '  <- differs'}", flush=True)
    if failed:
        sys.exit(f"check_finetuning: {', '.join(failed)}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Holds the logits of `tessera debug logits` against Transformers', as closely as Transformers defines them.

usage: check_logits.py --tessera PROGRAM --model DIR --rows ROWS.jsonl --chats CHATS.jsonl

Transformers' float32 logits depend on the attention function, the threads, and padding that a mask hides; its
float64 logits do not. For each input this prints how far these lie apart, and demands
  - of Tessera's model in LibTorch's operations: to be within TOLERANCE of Transformers in float32;
  - of Tessera's kernels in float64: Transformers' float64 logits, to float32's rounding of them (the method is the
    same);
  - of Tessera's kernels in float32: to be no more than FACTOR times as far from those as Transformers in float32 is.
--model is a Hugging Face folder; inputs are runs of control tokens, the `input_ids` of some of the rows, and
messages of some of the chats as plain text. Exits with 1 where a demand is not met.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import reference_common

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

TOLERANCE = 1e-4
FACTOR = 3.0
ROUNDING = 2.0 ** -23  # of the largest logit: `debug logits` writes float32
CONTROL_RUNS = [[1, 2, 3], [0, 0, 0, 5], [5, 6, 7, 8, 9, 10], [0, 1, 2], [2, 0], [4, 3, 2, 1], [42]]
NUM_ROWS, NUM_TEXTS = 6, 12
NUM_PADS = 5


class Reference:
    """Transformers' logits for one row of ids, computed in several ways that define the same thing."""

    def __init__(self, folder):
        def load(dtype, attention):
            return AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, attn_implementation=attention, local_files_only=True).eval()

        self.model = load(torch.float32, "sdpa")
        self.eager = load(torch.float32, "eager")
        with reference_common.everything_in_float64(type(self.model)):
            self.exact = load(torch.float64, "eager")

    @staticmethod
    def run(model, ids, before=0, after=0, threads=1):
        torch.set_num_threads(threads)
        mask = torch.tensor([[0] * before + [1] * len(ids) + [0] * after])
        padded = torch.tensor([[0] * before + ids + [0] * after])
        hidden = {"attention_mask": mask} if before + after else {}
        with torch.no_grad():
            return model(padded, use_cache=False, **hidden).logits[0, before:before + len(ids)].double()

    def float32(self, ids):
        return {
            "plain": self.run(self.model, ids),
            "eager": self.run(self.eager, ids),
            "2 threads": self.run(self.model, ids, threads=2),
            "padded before": self.run(self.model, ids, before=NUM_PADS),
            "padded after": self.run(self.model, ids, after=NUM_PADS),
        }

    def float64(self, ids):
        with reference_common.everything_in_float64(type(self.model)):
            return self.run(self.exact, ids)


def tessera_logits(program, folder, ids, dtype, ops="fused"):
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "logits.safetensors")
        subprocess.run([program, "debug", "logits", "--model", folder, "--dtype", dtype, "--ops", ops, "--ids",
                        ",".join(map(str, ids)), "--out", path], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        return load_file(path)["logits"].double()


def spread(size, count):
    return [size * i // count for i in range(count)]


def inputs(tokenizer, rows_file, chats_file):
    """(kind, name, ids) of everything that is compared."""
    for ids in CONTROL_RUNS:
        yield "control", ",".join(map(str, ids)), ids
    with open(rows_file, encoding="utf-8") as file:
        rows = [json.loads(line)["input_ids"] for line in file]
    for number in spread(len(rows), NUM_ROWS):
        yield "chat", f"row {number}", rows[number]
    with open(chats_file, encoding="utf-8") as file:
        texts = [message["content"] for line in file for message in json.loads(line)["messages"]
                 if message["role"] != "system"]
    for number in spread(len(texts), NUM_TEXTS):
        yield "text", f"message {number}", tokenizer(texts[number]).input_ids


def distance(one, other):
    return (one - other).abs().max().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for option in ("--tessera", "--model", "--rows", "--chats"):
        parser.add_argument(option, required=True)
    arguments = parser.parse_args()
    reference = Reference(arguments.model)
    tokenizer = AutoTokenizer.from_pretrained(arguments.model, local_files_only=True)
    failures = []
    columns = ["input", "tokens", "eager", "2 threads", "padded before", "padded after", "float64",
               "Tessera plain", "fused", "fused to float64", "in float64"]
    print("largest differences of a logit; the first seven from Transformers in float32")
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for kind, name, ids in inputs(tokenizer, arguments.rows, arguments.chats):
        ways = reference.float32(ids)
        plain, exact = ways.pop("plain"), reference.float64(ids)
        own = tessera_logits(arguments.tessera, arguments.model, ids, "fp32")
        own_plain = tessera_logits(arguments.tessera, arguments.model, ids, "fp32", "plain")
        own_exact = tessera_logits(arguments.tessera, arguments.model, ids, "fp64")
        to_plain, to_exact, method = distance(own, plain), distance(own, exact), distance(own_exact, exact)
        spread_of_float32 = distance(plain, exact)
        measured = [*(distance(plain, way) for way in ways.values()), spread_of_float32, distance(own_plain, plain), to_plain, to_exact, method]
        cells = " | ".join(f"{value:.1e}" for value in measured)
        print(f"| {kind} {name} | {len(ids)} | {cells} |", flush=True)
        demands = [("in float64", method, ROUNDING * exact.abs().max().item()),
                   ("from Transformers' float64", to_exact, FACTOR * spread_of_float32)]
        demands.append(("from Transformers' float32 in plain operations", distance(own_plain, plain), TOLERANCE))
        failures += [f"{kind} {name}: {value:.2e} {what}, more than {most:.2e}"
                     for what, value, most in demands if not value <= most]
    for failure in failures:
        print(f"check_logits: {failure}", file=sys.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

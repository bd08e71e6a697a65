#!/usr/bin/env python3
"""Compares the metrics.jsonl of a run with a reference curve (data/*/full.json, lora.json).

usage: compare_curves.py --reference F.json --metrics metrics.jsonl [--tolerance 1e-3]

Exits with 1 where a step is missing, counts other tokens, or deviates by more than the tolerance (relative) in
loss or learning rate, or ten times that in the gradient norm: data/smollm2/full.json lacks the lookups of
pad_token_id in it (README.md), which is up to 1.2e-3 of the norm, and torch sums its squares in float32.
"""
import argparse
import json
import sys


def relative(got, expected):
    return abs(got - expected) / max(abs(expected), 1e-12) if got != expected else 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference", required=True)
    parser.add_argument("--metrics", required=True)
    parser.add_argument("--tolerance", type=float, default=1e-3)
    arguments = parser.parse_args()
    with open(arguments.reference, encoding="utf-8") as file:
        expected = json.load(file)["steps"]
    with open(arguments.metrics, encoding="utf-8") as file:
        got = [line for line in map(json.loads, file) if "loss" in line]
    if [step["step"] for step in got] != [step["step"] for step in expected]:
        sys.exit(f"compare_curves: {arguments.metrics} has {len(got)} steps, {arguments.reference} {len(expected)}")
    bad = False
    for name, key in (("loss", "loss"), ("lr", "learning_rate"), ("grad_norm", "grad_norm")):
        errors = [relative(a[name], b[key]) for a, b in zip(got, expected)]
        worst = max(range(len(errors)), key=errors.__getitem__)
        print(f"{name}: largest relative deviation {errors[worst]:.2e} (step {worst + 1}: {got[worst][name]:.9g}, "
              f"reference {expected[worst][key]:.9g})")
        bad = bad or not errors[worst] <= arguments.tolerance * (10 if name == "grad_norm" else 1)
    for name in ("tokens", "label_tokens"):
        if [step[name] for step in got] != [step[name] for step in expected]:
            print(f"{name} differ")
            bad = True
    if bad:
        sys.exit(f"compare_curves: the run is not within {arguments.tolerance:.1e} of the reference")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares two safetensors files tensor by tensor; exits with 1 unless names, types and bits are equal.

usage: compare_weights.py A.safetensors B.safetensors
"""
import sys

import torch
from safetensors import safe_open


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with safe_open(sys.argv[1], "pt") as a, safe_open(sys.argv[2], "pt") as b:
        names = set(a.keys())
        if names != set(b.keys()):
            sys.exit(f"compare_weights: only one file has {sorted(names ^ set(b.keys()))[:10]}")
        for name in sorted(names):
            left, right = a.get_tensor(name), b.get_tensor(name)
            if left.dtype != right.dtype or not torch.equal(left, right):
                sys.exit(f"compare_weights: {name} differs")
    print(f"{len(names)} tensors are equal")


if __name__ == "__main__":
    main()

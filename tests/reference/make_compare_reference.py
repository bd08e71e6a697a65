#!/usr/bin/env python3
"""Writes what Transformers computes for one text, for `tessera debug compare`.

usage: make_compare_reference.py --model DIR --out FILE.safetensors [--ids 1,2,3,...] [--no-gradients]

The file holds input_ids [T], logits [T, vocabulary], hidden_states.N [T, hidden_size] before each block N and, for the mean
loss of the text, gradients.NAME of every parameter under the name that the folder's files have; all in float64.
"""
import argparse

import reference_common

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--ids", default="1,7,3,5,2,4,9,6,8,11,10,13")
    parser.add_argument("--no-gradients", action="store_true")
    arguments = parser.parse_args()
    ids = torch.tensor([[int(word) for word in arguments.ids.split(",")]])

    def load(dtype):
        return AutoModelForCausalLM.from_pretrained(
            arguments.model, dtype=dtype, attn_implementation="eager", local_files_only=True).eval()

    with reference_common.everything_in_float64(type(load(torch.float32))):
        model = load(torch.float64)
        model.get_input_embeddings().padding_idx = None  # else the padding token's row has no gradient
        output = model(ids, labels=ids, output_hidden_states=True, use_cache=False)
        tensors = {"input_ids": ids[0], "logits": output.logits[0].detach()}
        for number, hidden in enumerate(output.hidden_states[:-1]):
            tensors[f"hidden_states.{number}"] = hidden[0].detach()
        if not arguments.no_gradients:
            output.loss.backward()
            for name, parameter in model.named_parameters():
                if parameter.grad is not None:
                    tensors["gradients." + name] = parameter.grad
    save_file({name: value.contiguous() for name, value in tensors.items()}, arguments.out)
    print(f"{len(tensors)} tensors written to {arguments.out}")


main()

#!/usr/bin/env python3
"""Makes tests/reference/data/masked_lm/<name>/: a tiny random masked language model and Transformers' numbers for it.

Each folder is a Hugging Face model folder plus reference.safetensors: `ids.N` and `labels.N` (-100 where nothing is told)
of three texts, and in float64 `logits.N`, the sum `loss` over the labels of all texts, and `grad.PARAMETER` of that sum.
usage: make_masked_lm_reference.py [NAME...]
"""
import json
import os
import shutil
import sys

from make_classifier_reference import BERT, CLASSIFIERS, LENGTHS, randomize
from reference_common import DATA, everything_in_float64, save

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForMaskedLM

LABELS = ("id2label", "label2id")


def of_classifier(name, architecture, **more):
    config = {key: value for key, value in CLASSIFIERS[name]["config"].items() if key not in LABELS}
    return dict(config, architectures=[architecture], **more)


MODELS = {
    # The files are those of a pre-trained BERT: with a pooler and the head of the next sentence, and with the bias
    # under the name of the projection.
    "bert": dict(config=dict(BERT, architectures=["BertForPreTraining"], hidden_act="gelu_new"), is_pretrained=True),
    "roberta": dict(config=of_classifier("roberta", "RobertaForMaskedLM")),
    "distilbert": dict(config=of_classifier("distilbert", "DistilBertForMaskedLM")),
    "modernbert": dict(config=of_classifier("modernbert", "ModernBertForMaskedLM", classifier_bias=True)),
}


def pretrained_names(path, hidden, generator):
    state = load_file(path)
    bias = "cls.predictions.bias"
    state["cls.predictions.decoder.bias"] = state.pop(bias)
    state["cls.predictions.decoder.weight"] = state["bert.embeddings.word_embeddings.weight"].clone()
    for name, rows in (("bert.pooler.dense", hidden), ("cls.seq_relationship", 2)):
        state[name + ".weight"] = torch.randn(rows, hidden, generator=generator)
        state[name + ".bias"] = torch.randn(rows, generator=generator)
    save(state, path, format="pt")


def make(name, model_of):
    folder = os.path.join(DATA, "masked_lm", name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    config_file = os.path.join(folder, "config.json")
    config_json = json.dumps(model_of["config"], indent=2, sort_keys=True) + "\n"
    with open(config_file, "w", encoding="utf-8") as file:
        file.write(config_json)
    generator = torch.Generator().manual_seed(len(name))
    model = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(folder))
    randomize(model, generator)
    model.save_pretrained(folder)
    with open(config_file, "w", encoding="utf-8") as file:
        file.write(config_json)
    if model_of.get("is_pretrained"):
        pretrained_names(os.path.join(folder, "model.safetensors"), model.config.hidden_size, generator)

    state = {key: value.double() for key, value in model.state_dict().items()}
    with everything_in_float64(type(model)):
        config = AutoConfig.from_pretrained(folder)
        model = AutoModelForMaskedLM.from_config(config, dtype=torch.float64, attn_implementation="eager").eval()
        model.load_state_dict(state)
        tensors, total = {}, 0.0
        for index, length in enumerate(LENGTHS):
            ids = torch.randint(3, config.vocab_size, (length,), generator=generator)
            labels = torch.where(torch.rand(length, generator=generator) < 0.4,
                                 torch.randint(3, config.vocab_size, (length,), generator=generator), -100)
            labels[index] = 3  # one is told in any case, in the first text at the first position
            out = model(input_ids=ids[None], labels=labels[None])
            total = total + out.loss * (labels >= 0).sum()
            tensors |= {f"ids.{index}": ids, f"labels.{index}": labels, f"logits.{index}": out.logits[0]}
        total.backward()
    tensors["loss"] = total
    tensors |= {f"grad.{key}": value.grad for key, value in model.named_parameters() if value.grad is not None}
    assert all(value.dtype in (torch.float64, torch.int64) for value in tensors.values())
    save(tensors, os.path.join(folder, "reference.safetensors"), format="pt")
    for file in os.listdir(folder):
        os.chmod(os.path.join(folder, file), 0o644)
    size = sum(os.path.getsize(os.path.join(folder, file)) for file in os.listdir(folder))
    assert size < 300_000, f"{name} takes {size} bytes"
    print(f"{name}: {size} bytes, loss {total.item():.6f}", flush=True)


def main():
    torch.use_deterministic_algorithms(True)
    for name in sys.argv[1:] or list(MODELS):
        make(name, MODELS[name])


if __name__ == "__main__":
    main()

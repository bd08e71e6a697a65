#!/usr/bin/env python3
"""Makes tests/reference/data/classifiers/<name>/: a tiny random classifier of texts, or of tokens, and Transformers'
numbers for it.

Each folder is a Hugging Face model folder plus reference.safetensors: `ids.N`, `types.N` (models with token types) and
`target.N` of three texts (of tokens: a class for each, or -100), and in float64 `logits.N`, the sum `loss` of their losses, and `grad.PARAMETER` of that sum.
usage: make_classifier_reference.py [NAME...]
"""
import json
import os
import shutil
import sys

from reference_common import DATA, everything_in_float64, save

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoModelForTokenClassification

LENGTHS = (9, 2, 6)

SIZES = dict(hidden_size=12, intermediate_size=14, num_hidden_layers=2, num_attention_heads=3, vocab_size=31,
             max_position_embeddings=16, initializer_range=0.02)
BERT = dict(SIZES, architectures=["BertForSequenceClassification"], model_type="bert", hidden_act="gelu",
            hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1, layer_norm_eps=1e-12, type_vocab_size=2,
            pad_token_id=0)


def labels(*names):
    return dict(id2label={str(i): name for i, name in enumerate(names)},
                label2id={name: i for i, name in enumerate(names)})


CLASSIFIERS = {
    "bert": dict(config=dict(BERT, **labels("no", "yes", "maybe"), problem_type="single_label_classification")),
    # As files of the first release call the parameters of norms.
    "bert_multi": dict(old_names=True, config=dict(BERT, **labels("a", "b", "c", "d"),
                                                   problem_type="multi_label_classification")),
    # One label without a problem_type is a number.
    "bert_number": dict(config=dict(BERT, **labels("score"))),
    "roberta": dict(config=dict(
        BERT, architectures=["RobertaForSequenceClassification"], model_type="roberta", pad_token_id=1, bos_token_id=0,
        eos_token_id=2, max_position_embeddings=18, type_vocab_size=1, layer_norm_eps=1e-5)),
    "distilbert": dict(config=dict(
        architectures=["DistilBertForSequenceClassification"], model_type="distilbert", dim=12, hidden_dim=14,
        n_layers=2, n_heads=3, vocab_size=31, max_position_embeddings=16, activation="gelu", pad_token_id=0,
        **labels("x", "y", "z"))),
    # Layers 1 and 2 see two tokens on each side.
    "modernbert": dict(config=dict(
        SIZES, architectures=["ModernBertForSequenceClassification"], model_type="modernbert", num_hidden_layers=4,
        hidden_activation="gelu", norm_eps=1e-5, local_attention=4, global_attn_every_n_layers=3, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2, global_rope_theta=160000.0,
        local_rope_theta=10000.0, **labels("x", "y", "z"))),
    "llama_score": dict(config=dict(
        SIZES, architectures=["LlamaForSequenceClassification"], model_type="llama", num_key_value_heads=1,
        rms_norm_eps=1e-6, rope_theta=10000.0, pad_token_id=0, bos_token_id=1, eos_token_id=2, tie_word_embeddings=True,
        **labels("x", "y", "z"))),
    "gpt2_score": dict(config=dict(
        architectures=["GPT2ForSequenceClassification"], model_type="gpt2", n_embd=12, n_layer=2, n_head=3,
        n_positions=16, vocab_size=31, pad_token_id=0, bos_token_id=1, eos_token_id=2, **labels("p", "q"),
        problem_type="regression")),
}

TAGS = ("O", "B-x", "I-x", "B-y", "I-y")


def of_tokens(name, architecture, names=TAGS, **more):
    config = {key: value for key, value in CLASSIFIERS[name]["config"].items() if key != "problem_type"}
    return dict(config=dict(config, architectures=[architecture], **labels(*names), **more))


CLASSIFIERS |= {
    "bert_tokens": of_tokens("bert", "BertForTokenClassification"),
    "roberta_tokens": of_tokens("roberta", "RobertaForTokenClassification"),
    "distilbert_tokens": of_tokens("distilbert", "DistilBertForTokenClassification", ("noun", "verb", "other")),
    "modernbert_tokens": of_tokens("modernbert", "ModernBertForTokenClassification"),
    "llama_tokens": of_tokens("llama_score", "LlamaForTokenClassification"),
    "gpt2_tokens": of_tokens("gpt2_score", "GPT2ForTokenClassification"),
}


def is_of_tokens(classifier):
    return classifier["config"]["architectures"][0].endswith("ForTokenClassification")


def randomize(model, generator):
    """Gives every parameter, norms and biases too, values that matter."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 0.3 if parameter.dim() > 1 else 0.2
            around = 1.0 if "orm.weight" in name or "ln_" in name and name.endswith("weight") else 0.0
            parameter.copy_(around + scale * torch.randn(parameter.shape, generator=generator))


def make_texts(config, generator, of_tokens):
    count = config.num_labels
    for index, length in enumerate(LENGTHS):
        ids = torch.randint(3, config.vocab_size, (length,), generator=generator)
        types = (torch.arange(length) >= length // 2).long() if getattr(config, "type_vocab_size", 1) > 1 else None
        kind = config.problem_type or ("regression" if count == 1 else "single_label_classification")
        if of_tokens:
            target = torch.randint(0, count, (length,), generator=generator)
            target[torch.arange(length) % 4 == 2] = -100
        elif kind == "single_label_classification":
            target = torch.tensor([index % count])
        elif kind == "regression":
            target = torch.randint(-8, 8, (count,), generator=generator).double() / 4
        else:
            target = torch.randint(0, 2, (count,), generator=generator).double()
        yield ids, types, target


def make(name, classifier):
    folder = os.path.join(DATA, "classifiers", name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    config_file = os.path.join(folder, "config.json")
    config_json = json.dumps(classifier["config"], indent=2, sort_keys=True) + "\n"
    with open(config_file, "w", encoding="utf-8") as file:
        file.write(config_json)
    generator = torch.Generator().manual_seed(len(name))
    of_tokens = is_of_tokens(classifier)
    auto = AutoModelForTokenClassification if of_tokens else AutoModelForSequenceClassification
    model = auto.from_config(AutoConfig.from_pretrained(folder))
    randomize(model, generator)
    model.save_pretrained(folder)
    with open(config_file, "w", encoding="utf-8") as file:
        file.write(config_json)
    if classifier.get("old_names"):
        path = os.path.join(folder, "model.safetensors")
        old = {key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
               for key, value in load_file(path).items()}
        save(old, path, format="pt")

    state = {key: value.double() for key, value in model.state_dict().items()}
    with everything_in_float64(type(model)):
        config = AutoConfig.from_pretrained(folder)
        model = auto.from_config(config, dtype=torch.float64, attn_implementation="eager").eval()
        model.load_state_dict(state)
        tensors, total = {}, 0.0
        for index, (ids, types, target) in enumerate(make_texts(config, generator, of_tokens)):
            single = target.dtype == torch.int64
            inputs = dict(input_ids=ids[None], labels=target if single and not of_tokens else target[None])
            if types is not None:
                inputs["token_type_ids"] = tensors[f"types.{index}"] = types[None]
                tensors[f"types.{index}"] = types
            out = model(**inputs)
            total = total + out.loss * ((target >= 0).sum() if of_tokens else 1)
            tensors |= {f"ids.{index}": ids, f"target.{index}": target, f"logits.{index}": out.logits[0]}
        total.backward()
    tensors["loss"] = total
    # Transformers gives the padding token's embedding no gradient; it is not in the texts.
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
    for name in sys.argv[1:] or list(CLASSIFIERS):
        make(name, CLASSIFIERS[name])


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes tests/reference/data/embeddings/: embeddings of token ids by Transformers' models without a head.

expected.json holds, for some folders of data/models and data/classifiers, token ids of several texts, and in float64 the
hidden state behind the last layer of the first token (`cls`), of the last one (`last`), and the mean over all (`mean`) of
each text. bert_mean/ is classifiers/bert without its head, in the form in which sentence-transformers saves a model.
"""
import json
import os

from reference_common import DATA, everything_in_float64

import torch
from transformers import AutoConfig, AutoModel

FOLDERS = ("models/llama3", "models/gpt2", "models/gemma2", "models/qwen3_5",
           "classifiers/bert", "classifiers/roberta", "classifiers/distilbert", "classifiers/modernbert")
LENGTHS = (9, 1, 14)


def embed(folder):
    generator = torch.Generator().manual_seed(len(folder))
    with everything_in_float64(type(AutoModel.from_config(AutoConfig.from_pretrained(folder)))):
        model = AutoModel.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
        for length in LENGTHS:
            ids = torch.randint(3, 31, (length,), generator=generator)
            with torch.no_grad():
                hidden = model(input_ids=ids[None]).last_hidden_state[0]
            assert hidden.dtype == torch.float64
            yield {"ids": ids.tolist(), "cls": hidden[0].tolist(), "last": hidden[-1].tolist(),
                   "mean": hidden.mean(0).tolist()}


def save_body(folder):
    AutoModel.from_pretrained(os.path.join(DATA, "classifiers", "bert")).save_pretrained(folder)
    os.makedirs(os.path.join(folder, "1_Pooling"), exist_ok=True)
    types = ("Transformer", "Pooling", "Normalize")
    modules = [{"idx": i, "name": str(i), "path": "" if i == 0 else f"{i}_{name}",
                "type": f"sentence_transformers.models.{name}"} for i, name in enumerate(types)]
    pooling = {"word_embedding_dimension": 12, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True,
               "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False}
    for name, value in (("modules.json", modules), ("1_Pooling/config.json", pooling)):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(value, file, indent=2)
            file.write("\n")
    os.chmod(os.path.join(folder, "model.safetensors"), 0o644)


def main():
    torch.use_deterministic_algorithms(True)
    result = {folder: list(embed(os.path.join(DATA, folder))) for folder in FOLDERS}
    save_body(os.path.join(DATA, "embeddings", "bert_mean"))
    path = os.path.join(DATA, "embeddings", "expected.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(result, file, separators=(",", ":"))
        file.write("\n")
    print(f"{path}: {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()

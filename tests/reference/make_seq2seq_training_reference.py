#!/usr/bin/env python3
"""Trains a small random T5 on sources and targets by a plain loop of Transformers, in float64.

Without options it makes tests/reference/data/seq2seq/training/: the model with its Unigram tokenizer (spiece.model), rows of the project's own, and expected.json with the loss of each step, the evaluation loss, the
greedy targets of the evaluation's sources behind the last step, and the tokens of some texts. With --gsm8k it trains on
questions and answers of GSM8K instead and compares with the program:

  make_seq2seq_training_reference.py --gsm8k gsm8k_train.jsonl --tessera build/release/tessera

usage: make_seq2seq_training_reference.py [--gsm8k FILE --tessera PROGRAM]
"""
import argparse
import io
import json
import os
import shutil
import subprocess
import tempfile

from reference_common import DATA, IGNORE, everything_in_float64

import sentencepiece
import torch
from transformers import T5Config, T5ForConditionalGeneration, T5Tokenizer

TEXTS = ["the fox jumps over the fence", "Ｆｕｌｌ width, ﬁne  spaces\tand\nlines", "", "  <extra_id_0> and </s> twice</s>",
         "unknown: 漢字"]


def own_rows(count):
    """Sentences, and the same with the words of each in another order."""
    who = ["the fox", "a dog", "the old cat", "one bird", "my horse"]
    does = ["jumps over", "looks at", "runs from", "sleeps near"]
    what = ["the fence", "a river", "the house"]
    generator = torch.Generator().manual_seed(6)
    draw = lambda words: words[int(torch.randint(len(words), (1,), generator=generator))]  # noqa: E731
    for index in range(count):
        first, verb, last = draw(who), draw(does), draw(what)
        more = f", it is said of {draw(who)} and {draw(who)}" * (index % 4 == 1)
        yield {"input": f"swap: {first} {verb} {last}{more}", "target": f"{last} {verb} {first}."}


def gsm8k_rows(path, count):
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file][:count]
    return [{"input": row["question"], "target": row["answer"]} for row in rows]


def write_rows(rows, path):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def make_tokenizer(folder, texts, size):
    """A model file as T5's: padding 0, end 1, unknown 2, no beginning, the character map of nmt_nfkc."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, model_type="unigram", vocab_size=size, pad_id=0, eos_id=1,
        unk_id=2, bos_id=-1, normalization_rule_name="nmt_nfkc", num_threads=1, minloglevel=2, hard_vocab_limit=False)
    with open(os.path.join(folder, "spiece.model"), "wb") as file:
        file.write(model.getvalue())
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump({"tokenizer_class": "T5Tokenizer", "extra_ids": 3, "model_max_length": 512}, file)
    return T5Tokenizer.from_pretrained(folder, extra_ids=3)


def make_model(folder, tokenizer, **sizes):
    config = T5Config(vocab_size=len(tokenizer), dropout_rate=0.0, decoder_start_token_id=0, **sizes)
    torch.manual_seed(3)
    model = T5ForConditionalGeneration(config)
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    for file in os.listdir(folder):
        os.chmod(os.path.join(folder, file), 0o644)


def cut(ids, most):
    """Takes the last tokens before the end token."""
    most = max(1, most)
    return ids if len(ids) <= most else ids[:most - 1] + ids[-1:]


def encode_row(tokenizer, row, max_length):
    source, target = tokenizer(row["input"]).input_ids, tokenizer(row["target"]).input_ids
    source = cut(source, max_length - len(target) - 1)
    return source, cut(target, max_length - len(source) - 1)


def collate(tokenizer, rows, max_length):
    pairs = [encode_row(tokenizer, row, max_length) for row in rows]

    def pad(lists, value):
        length = max(map(len, lists))
        return torch.tensor([ids + [value] * (length - len(ids)) for ids in lists])

    sources = [source for source, _ in pairs]
    return dict(input_ids=pad(sources, 0), labels=pad([target for _, target in pairs], IGNORE),
                attention_mask=pad([[1] * len(source) for source in sources], 0))


def train(folder, tokenizer, train_rows, eval_rows, max_length, steps, batch, rate, num_generated, num_tokens):
    with everything_in_float64(T5ForConditionalGeneration):
        model = T5ForConditionalGeneration.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
        losses = []
        for step in range(steps):
            begin = step * batch % len(train_rows)
            loss = model(**collate(tokenizer, train_rows[begin:begin + batch], max_length)).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            total, count = 0.0, 0
            for begin in range(0, len(eval_rows), 32):
                inputs = collate(tokenizer, eval_rows[begin:begin + 32], max_length)
                labels = int((inputs["labels"] != IGNORE).sum())
                total, count = total + model(**inputs).loss.item() * labels, count + labels
            made = []
            for row in eval_rows[:num_generated]:
                ids = model.generate(torch.tensor([tokenizer(row["input"]).input_ids]), max_new_tokens=num_tokens,
                                     do_sample=False, num_beams=1, use_cache=False, decoder_start_token_id=0)[0]
                made.append(tokenizer.decode(ids, skip_special_tokens=True))
    return losses, total / count, made


def recipe_text(folder, max_length, steps, batch, rate):
    return "\n".join([
        f"base_model: {folder}", "task: seq2seq", "datasets:", f"  - path: {folder}/train.jsonl", "test_datasets:",
        f"  - path: {folder}/eval.jsonl", f"sequence_len: {max_length}", "excess_length_strategy: truncate",
        "shuffle_merged_datasets: false", "min_sample_len: 1", f"micro_batch_size: {batch}", f"max_steps: {steps}",
        f"learning_rate: {rate}", "lr_scheduler: constant", "warmup_steps: 0", "optimizer: adamw", "weight_decay: 0",
        "max_grad_norm: 1.0", "dtype: float64", "save_dtype: float32", "eval_strategy: steps", f"eval_steps: {steps}",
        "logging_steps: 1", ""])


def compare_gsm8k(path, program):
    rows = gsm8k_rows(path, 640)
    train_rows, eval_rows = rows[:512], rows[512:]
    max_length, steps, batch, rate = 224, 128, 8, 3e-3
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = make_tokenizer(folder, [row[key] for row in train_rows for key in ("input", "target")], 1000)
        make_model(folder, tokenizer, d_model=64, d_kv=12, d_ff=160, num_layers=3, num_decoder_layers=2, num_heads=4,
                   feed_forward_proj="gated-gelu")
        write_rows(train_rows, os.path.join(folder, "train.jsonl"))
        write_rows(eval_rows, os.path.join(folder, "eval.jsonl"))
        losses, eval_loss, made = train(folder, tokenizer, train_rows, eval_rows, max_length, steps, batch, rate, 3, 24)
        with open(os.path.join(folder, "recipe.yaml"), "w", encoding="utf-8") as file:
            file.write(recipe_text(folder, max_length, steps, batch, rate))
        out = os.path.join(folder, "out")
        subprocess.run([program, "train", os.path.join(folder, "recipe.yaml"), f"output_dir={out}"], check=True)
        with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        got = [line["loss"] for line in lines if "loss" in line]
        told = [line["eval_loss"] for line in lines if "eval_loss" in line][-1]
        worst = max(abs(a - b) / b for a, b in zip(got, losses, strict=True))
        print(f"{steps} steps: loss {losses[0]:.6f} to {losses[-1]:.6f}, largest relative difference {worst:.1e}")
        print(f"eval_loss: Transformers {eval_loss:.8f}, Tessera {told:.8f}")
        assert worst < 1e-6 and abs(told - eval_loss) < 1e-6 * eval_loss
        for row, want in zip(eval_rows, made):
            answer = subprocess.run([program, "generate", out, row["input"], "--max-tokens", "24", "--temperature", "0",
                                     "--dtype", "float64"], check=True, capture_output=True, text=True).stdout.strip()
            print(f"greedy: {answer!r}\n    want {want!r}")
            assert answer == want.strip()
        # The result loads in Transformers and gives the same loss.
        model = T5ForConditionalGeneration.from_pretrained(out, dtype=torch.float64).eval()
        inputs = collate(T5Tokenizer.from_pretrained(out), eval_rows[:32], max_length)
        with torch.no_grad():
            print(f"the saved folder in Transformers: loss {model(**inputs).loss.item():.6f} of 32 rows")


def make_reference():
    folder = os.path.join(DATA, "seq2seq", "training")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    rows = list(own_rows(20))
    train_rows, eval_rows = rows[:12], rows[6:]
    max_length, steps, batch, rate = 60, 12, 6, 0.02
    tokenizer = make_tokenizer(folder, [row[key] for row in rows for key in ("input", "target")] * 2, 90)
    make_model(folder, tokenizer, d_model=12, d_kv=5, d_ff=14, num_layers=2, num_decoder_layers=1, num_heads=3,
               relative_attention_num_buckets=8, relative_attention_max_distance=20)
    write_rows(train_rows, os.path.join(folder, "train.jsonl"))
    write_rows(eval_rows, os.path.join(folder, "eval.jsonl"))
    losses, eval_loss, made = train(folder, tokenizer, train_rows, eval_rows, max_length, steps, batch, rate, 4, 12)
    tokens = [{"text": text, "ids": tokenizer(text).input_ids} for text in TEXTS]
    with open(os.path.join(folder, "expected.json"), "w", encoding="utf-8") as file:
        json.dump({"max_length": max_length, "batch": batch, "rate": rate, "losses": losses, "eval_loss": eval_loss,
                   "greedy": made, "max_new_tokens": 12, "tokens": tokens}, file, indent=1)
    for file in os.listdir(folder):
        os.chmod(os.path.join(folder, file), 0o644)
    lengths = [1 + sum(map(len, encode_row(tokenizer, row, 10**6))) for row in rows]
    assert max(lengths) > max_length >= min(lengths), f"some rows are cut: {sorted(set(lengths))}"
    print(f"losses {losses[0]:.4f} to {losses[-1]:.4f}, eval_loss {eval_loss:.4f}, greedy {made}")
    print(tokens)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gsm8k")
    parser.add_argument("--tessera", default="build/release/tessera")
    options = parser.parse_args()
    if options.gsm8k:
        compare_gsm8k(options.gsm8k, options.tessera)
    else:
        make_reference()


if __name__ == "__main__":
    main()

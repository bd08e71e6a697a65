#!/usr/bin/env python3
"""Trains small random models with other heads by plain loops of Transformers, in float64: a BERT on tags of words, whose
entities seqeval counts, and a Llama on pairs of answers, with the loss of TRL's RewardTrainer.

Makes tests/reference/data/classifiers/token_training/ and reward_training/: a model with its WordPiece tokenizer, rows
of the project's own, and expected.json with the loss of each step and the metrics of the evaluation.
usage: make_head_training_reference.py [tokens] [rewards]
"""
import json
import os
import shutil
import sys

from make_classifier_training_reference import make_tokenizer, write_rows
from reference_common import DATA, everything_in_float64

import torch
from transformers import (BertConfig, BertForTokenClassification, LlamaConfig, LlamaForSequenceClassification,
                          PreTrainedTokenizerFast)

STEPS, BATCH, RATE, MAX_LENGTH = 12, 6, 0.01, 28
TAGS = ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"]
WHO = [["Anna"], ["Bert", "Brown"], ["old", "Carla", "Cole"]]
WHERE = [["Rome"], ["New", "Harbour"]]
OTHER = ["sees", "likes", "the", "house", "of", "near", "never", ",", "today"]


def tagged(kind, words):
    return words, [("B-" if i == 0 else "I-") + kind for i in range(len(words))]


def tagged_rows(count):
    generator = torch.Generator().manual_seed(8)
    draw = lambda things: things[int(torch.randint(len(things), (1,), generator=generator))]  # noqa: E731
    for _ in range(count):
        tokens, tags = [], []
        for _ in range(int(torch.randint(2, 5, (1,), generator=generator))):
            for words, of_words in (draw([tagged("PER", draw(WHO)), tagged("LOC", draw(WHERE))]),
                                    ([draw(OTHER)], ["O"])):
                tokens, tags = tokens + words, tags + of_words
        yield {"tokens": tokens, "ner_tags": tags}


def encode_words(tokenizer, rows):
    batch = tokenizer([row["tokens"] for row in rows], is_split_into_words=True, truncation=True, max_length=MAX_LENGTH,
                      padding=True, return_tensors="pt")
    labels = torch.full_like(batch["input_ids"], -100)
    for number, row in enumerate(rows):
        before = None
        for place, word in enumerate(batch.word_ids(number)):
            if word is not None and word != before:
                labels[number, place] = TAGS.index(row["ner_tags"][word])
            before = word
    return dict(batch, labels=labels)


def entity_metrics(model, batches):
    from seqeval.metrics import accuracy_score, f1_score, precision_score, recall_score
    from seqeval.scheme import IOB2

    are, found, total, count = [], [], 0.0, 0
    for batch in batches:
        out = model(**batch)
        labelled = (batch["labels"] >= 0).sum().item()
        total, count = total + out.loss.item() * labelled, count + labelled
        for labels, predicted in zip(batch["labels"].tolist(), out.logits.argmax(2).tolist()):
            are.append([TAGS[i] for i in labels if i >= 0])
            found.append([TAGS[p] for i, p in zip(labels, predicted) if i >= 0])
    return {"loss": total / count, "accuracy": accuracy_score(are, found), "precision": precision_score(are, found),
            "recall": recall_score(are, found), "f1": f1_score(are, found),
            "f1_strict": f1_score(are, found, mode="strict", scheme=IOB2)}


def pairs(count):
    generator = torch.Generator().manual_seed(9)
    draw = lambda things: things[int(torch.randint(len(things), (1,), generator=generator))]  # noqa: E731
    for number in range(count):
        row = {"prompt": f"does {draw(WHO)[-1]} like {draw(WHERE)[0]}?",
               "chosen": f" yes, {draw(OTHER)} {draw(OTHER)} house", "rejected": f" never {draw(OTHER)}"}
        yield row | ({"margin": number % 3 / 4} if number % 2 else {})


def encode_pairs(tokenizer, rows):
    texts = [row["prompt"] + row[which] + tokenizer.eos_token for which in ("chosen", "rejected") for row in rows]
    batch = tokenizer(texts, padding=True, return_tensors="pt", return_token_type_ids=False)
    return dict(batch), torch.tensor([float(row.get("margin", 0.0)) for row in rows], dtype=torch.float64)


def pair_loss(model, inputs, margins, center):
    chosen, rejected = model(**inputs).logits.squeeze(-1).chunk(2)
    loss = -torch.nn.functional.logsigmoid(chosen - rejected - margins).mean()
    return loss + center * ((chosen + rejected) ** 2).mean(), chosen, rejected


def train(model, count, loss_of):
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    losses = []
    for step in range(STEPS):
        begin = step * BATCH % count
        loss = loss_of(begin)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses


def write(folder, train_rows, eval_rows, **expected):
    write_rows(train_rows, os.path.join(folder, "train.jsonl"))
    write_rows(eval_rows, os.path.join(folder, "eval.jsonl"))
    with open(os.path.join(folder, "expected.json"), "w", encoding="utf-8") as file:
        json.dump(dict(batch=BATCH, rate=RATE, **expected), file, indent=1)
    for file in os.listdir(folder):
        os.chmod(os.path.join(folder, file), 0o644)
    print(os.path.basename(folder), [round(loss, 4) for loss in expected["losses"]], expected["metrics"])


def new_folder(name):
    folder = os.path.join(DATA, "classifiers", name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return folder


def make_tokens():
    folder = new_folder("token_training")
    rows = list(tagged_rows(26))
    train_rows, eval_rows = rows[:18], rows[12:]
    tokenizer = make_tokenizer([" ".join(row["tokens"]) for row in rows], 60)
    torch.manual_seed(4)
    model_class = BertForTokenClassification
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=MAX_LENGTH, hidden_dropout_prob=0.0,
                        attention_probs_dropout_prob=0.0, hidden_size=12, intermediate_size=14, num_hidden_layers=2,
                        num_attention_heads=3, initializer_range=0.3, id2label=dict(enumerate(TAGS)),
                        label2id={tag: i for i, tag in enumerate(TAGS)})
    model_class(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    with everything_in_float64(model_class):
        model = model_class.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").train()
        losses = train(model, len(train_rows),
                       lambda begin: model(**encode_words(tokenizer, train_rows[begin:begin + BATCH])).loss)
        with torch.no_grad():
            metrics = entity_metrics(model, [encode_words(tokenizer, eval_rows[i:i + 4])
                                             for i in range(0, len(eval_rows), 4)])
    lengths = [len(tokenizer(row["tokens"], is_split_into_words=True).input_ids) for row in rows]
    assert max(lengths) > MAX_LENGTH >= min(lengths), f"some rows are cut: {sorted(set(lengths))}"
    write(folder, train_rows, eval_rows, max_length=MAX_LENGTH, losses=losses, metrics=metrics)


def make_rewards():
    folder = new_folder("reward_training")
    rows = list(pairs(26))
    train_rows, eval_rows = rows[:18], rows[12:]
    tokenizer = make_tokenizer([row[key] for row in rows for key in ("prompt", "chosen", "rejected")], 60)
    tokenizer.backend_tokenizer.post_processor = None
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, pad_token="[PAD]",
                                        unk_token="[UNK]", eos_token="[SEP]")
    torch.manual_seed(5)
    model_class, center = LlamaForSequenceClassification, 0.05
    config = LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=64, hidden_size=12, intermediate_size=14,
                         num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, initializer_range=0.3,
                         num_labels=1, pad_token_id=0, eos_token_id=3, bos_token_id=None)
    model_class(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    with everything_in_float64(model_class):
        model = model_class.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").train()
        losses = train(model, len(train_rows), lambda begin: pair_loss(
            model, *encode_pairs(tokenizer, train_rows[begin:begin + BATCH]), center)[0])
        with torch.no_grad():
            loss, chosen, rejected = pair_loss(model, *encode_pairs(tokenizer, eval_rows), center)
    metrics = {"loss": loss.item(), "accuracy": (chosen > rejected).double().mean().item(),
               "margin": (chosen - rejected).mean().item(), "mean_reward": ((chosen + rejected) / 2).mean().item()}
    write(folder, train_rows, eval_rows, max_length=80, center=center, losses=losses, metrics=metrics)


def main():
    torch.use_deterministic_algorithms(True)
    for name in sys.argv[1:] or ("tokens", "rewards"):
        {"tokens": make_tokens, "rewards": make_rewards}[name]()


if __name__ == "__main__":
    main()

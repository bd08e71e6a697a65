"""Rows of token ids, and how steps take them: Tessera reads them from the file, its peers by `steps`.

A document is (ids, labels), labels not shifted and -100 where nothing is learned, as recipes have it.
"""
import json
import pathlib
import random
import re

IGNORE = -100
FIRST_WORD = 16  # smaller ids are a tokenizer's special ones

Document = tuple[list[int], list[int]]


def write(path: pathlib.Path, documents: list[Document]) -> pathlib.Path:
    with path.open("w") as file:
        for ids, labels in documents:
            file.write(json.dumps({"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}) + "\n")
    return path


def read(path: pathlib.Path) -> list[Document]:
    with path.open() as file:
        return [(row["input_ids"], row["labels"]) for row in map(json.loads, file)]


def repeating(count: int, length: int, vocabulary: int, seed: int = 11) -> list[Document]:
    """Documents of `length` tokens that repeat 32 to 128 of the same few thousand tokens, so that a model learns, and its
    losses say more than that of guessing."""
    numbers = random.Random(seed)
    known = numbers.sample(range(FIRST_WORD, vocabulary), min(2048, vocabulary // 16))
    documents = []
    for _ in range(count):
        period = numbers.choices(known, k=numbers.randint(32, 128))
        ids = [period[i % len(period)] for i in range(length)]
        documents.append((ids, ids))
    return documents


def _turns(record: dict) -> tuple[str, str]:
    """What is asked and what is answered, of an alpaca record or a conversation."""
    if "messages" in record:
        *asked, answer = record["messages"]
        return "\n".join(turn["content"] for turn in asked), answer["content"]
    return record["instruction"] + "\n" + (record.get("input") or ""), record["output"]


def instructions(path: pathlib.Path, vocabulary: int, longest: int) -> list[Document]:
    """Documents of an alpaca file (.json) or of conversations (.jsonl), their last answers trained. A word or a mark is a
    token, which comes near the lengths that real tokenizers give; its id is its place among the words of the file."""
    text = path.read_text(encoding="utf-8")
    records = json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]
    places: dict[str, int] = {}

    def ids_of(words: str) -> list[int]:
        return [FIRST_WORD + places.setdefault(word, len(places)) % (vocabulary - FIRST_WORD)
                for word in re.findall(r"\w+|[^\w\s]", words)]

    documents = []
    for record in records:
        asked, answer = map(ids_of, _turns(record))
        ids, labels = asked + answer, [IGNORE] * len(asked) + answer
        if asked and answer and len(ids) <= longest:
            documents.append((ids, labels))
    return documents


def sequences(documents: list[Document], packed: bool, capacity: int) -> list[list[Document]]:
    """A document each; `packed`: neighbours while they fit in `capacity` tokens (sample_packing_sequentially)."""
    if not packed:
        return [[document] for document in documents]
    made: list[list[Document]] = []
    used = capacity
    for document in documents:
        if used + len(document[0]) > capacity:
            made.append([])
            used = 0
        made[-1].append(document)
        used += len(document[0])
    return made


def steps(documents: list[Document], count: int, accumulation: int, micro_batch: int, packed: bool,
          capacity: int) -> list[list[list[Document]]]:
    """The documents of each micro-batch of each step, in the file's order. Raises ValueError where they do not suffice."""
    made = sequences(documents, packed, capacity)
    if len(made) < count * accumulation * micro_batch:
        raise ValueError(f"{len(made)} sequences, {count} steps need {count * accumulation * micro_batch}")
    flat = [[document for sequence in made[i:i + micro_batch] for document in sequence]
            for i in range(0, count * accumulation * micro_batch, micro_batch)]
    return [flat[i:i + accumulation] for i in range(0, len(flat), accumulation)]


def enough(documents: list[Document], sequences_needed: int, packed: bool, capacity: int) -> list[Document]:
    """The same documents over and over, until steps() finds so many sequences."""
    made = list(documents)
    while len(sequences(made, packed, capacity)) < sequences_needed:
        made += documents
    return made

"""The lines of a text through `tokenizers` on one thread: encode, encode_batch and encode_batch_fast."""
import argparse
import json
import os
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tokenizers  # noqa: E402

_BATCH = 1000


def digest(all_ids: list[list[int]]) -> int:
    """FNV-1a with each id as one symbol, as in `tessera bench tokenize`."""
    value = 14695981039346656037
    for ids in all_ids:
        for symbol in ids:
            value = (value ^ symbol) * 1099511628211 & 0xFFFFFFFFFFFFFFFF
    return value


def batches(lines: list[str], encode) -> list[list[int]]:
    return [encoding.ids for first in range(0, len(lines), _BATCH)
            for encoding in encode(lines[first:first + _BATCH], add_special_tokens=False)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--file", required=True)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--way", choices=["encode", "encode_batch", "encode_batch_fast"], required=True)
    options = parser.parse_args()
    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(options.model, "tokenizer.json"))
    with open(options.file, "rb") as file:
        raw = [line for line in file.read().split(b"\n") if line]
    num_bytes = sum(map(len, raw))
    lines = [line.decode("utf-8", errors="replace") for line in raw]
    ways = {"encode": lambda: [tokenizer.encode(line, add_special_tokens=False).ids for line in lines],
            "encode_batch": lambda: batches(lines, tokenizer.encode_batch),
            "encode_batch_fast": lambda: batches(lines, tokenizer.encode_batch_fast)}
    seconds = []
    for _ in range(1 + options.passes):
        start = time.perf_counter()
        ids = ways[options.way]()
        seconds.append(time.perf_counter() - start)
    counted = sorted(seconds[1:])
    median = 0.5 * (counted[(len(counted) - 1) // 2] + counted[len(counted) // 2])
    print(json.dumps({"mb_per_s": 1e-6 * num_bytes / median, "first_mb_per_s": 1e-6 * num_bytes / seconds[0],
                      "bytes": num_bytes, "lines": len(lines), "num_ids": sum(map(len, ids)), "digest": digest(ids)}))


if __name__ == "__main__":
    main()

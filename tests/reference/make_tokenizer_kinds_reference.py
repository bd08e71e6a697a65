#!/usr/bin/env python3
"""Makes data/tokenizer_kinds, the vectors of tests/text/tokenizer_kinds_reference_test.cpp.

Trains a small tokenizer of each kind that is not byte-level BPE with the `tokenizers` package, puts together
others that hold the remaining steps, and records what that package makes of the strings of
make_tokenizer_reference.py: ids, offsets, decoded texts and pairs. Needs: pip install tokenizers sentencepiece.
The tokenizers are not trained again while their files are there, unless --train is given.

  make_tokenizer_kinds_reference.py [--train]
"""
import argparse
import base64
import io
import json
import pathlib
import random

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from make_tokenizer_reference import BROKEN, STRINGS, digest, random_strings

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "data" / "tokenizer_kinds"
MORE = ["Don't, can't: he'd.", "It's [MASK] here", "a [SEP] b", "a.b,c!d?e", "un-be-liev-able", "\u00c5ngstr\u00f6m \u212b A\u030a", "\ufb01ne \uff21\uff22\u3000\u2460", "cafe\u0301s\r\nnext",
        "\u4e2d\u6587abc\u65e5\u672c\u8a9e\u304b\u306a\u30ab\u30ca\u30fc", "abc\u03b1\u03b2\u03b3 \u0434\u0435", "   lead", "x" * 101, "x" * 100, "a" * 300, "hello hello hello", "\u200d\u200b\u2028tab\tx", "e\u0301\u0301 \u0627\u0651", "\u00df\u1e9e\u0130",
        "12,345.67 (89%)", "\u00b2\u00b3\u00bd", "\u0600a \u06dd1", "\r\n\r\n", "a\rb\nc", "\ufffdx\x00y"]


def texts_to_learn():
    """Words of a made language and of English, the same for everybody."""
    rng = random.Random(5)
    syllables = ["ba", "ko", "ri", "the", "ing", "un", "er", "ed", "st", "lo", "na", "qu", "e", "s", "\u00e9", "\u00fc", "ya"]
    words = ["".join(rng.choice(syllables) for _ in range(rng.randrange(1, 4))) for _ in range(300)]
    weights = [1 / (i + 1) for i in range(len(words))]
    lines = [" ".join(rng.choices(words, weights, k=12)) + rng.choice([".", "!", "?", ", "]) for _ in range(400)]
    return lines + STRINGS


def template():
    return processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])


def sentencepiece_charsmap(rule="nmt_nfkc"):
    """A small cut of a real map: SentencePiece compiles the rules that it is given."""
    rules = ["41 30A\tC5", "61 301\tE1", "65 301\tE9", "FF21\t41", "FF22\t42", "FB01\t66 69", "2460\t31", "3000\t20", "9\t20", "A\t20", "D\t20", "A0\t20", "200B\t20", "AD\t", "300\t", "DF\t73 73", "1E9E\t53 53",
             "212B\tC5", "FFFD\t20", "130\t69", "1F600\t3A 29", "63 327\tE7"]
    path = OUT / "rules.tsv"
    path.write_text("\n".join(rules) + "\n")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(texts_to_learn()), model_writer=model, model_type="unigram", vocab_size=600, normalization_rule_tsv=str(path), hard_vocab_limit=False, minloglevel=2)
    path.unlink()
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    return proto.normalizer_spec.precompiled_charsmap


SPECIAL = [AddedToken(t, normalized=False, special=True) for t in ("[UNK]", "[CLS]", "[SEP]", "[PAD]")] + [AddedToken("[MASK]", normalized=False, special=True, lstrip=True)]


def train_all():
    lines = texts_to_learn()
    learn = lambda t, trainer: t.train_from_iterator(lines, trainer)

    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    learn(t, trainers.WordPieceTrainer(vocab_size=420, special_tokens=SPECIAL, show_progress=False, limit_alphabet=90))
    t.post_processor = template()
    yield "bert", t

    t = Tokenizer.from_str(t.to_str())
    t.normalizer = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    t.decoder = decoders.WordPiece(cleanup=False)
    t.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    yield "bert_cased", t

    t = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Nmt()]), pre_tokenizers.Sequence([pre_tokenizers.CharDelimiterSplit(" "), pre_tokenizers.Punctuation("merged_with_previous")])
    learn(t, trainers.WordLevelTrainer(vocab_size=200, special_tokens=SPECIAL, show_progress=False))
    t.decoder = decoders.CTC(pad_token="[PAD]", word_delimiter_token="e", cleanup=True)
    yield "word_level", t

    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(sentencepiece_charsmap()), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    learn(t, trainers.UnigramTrainer(vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False))
    t.decoder = decoders.Metaspace()
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)])
    yield "t5", t

    document = json.loads(t.to_str())
    document["model"]["vocab"] += [[f"<0x{b:02X}>", 0.0] for b in range(256)]
    document["model"]["byte_fallback"] = True
    t = Tokenizer.from_str(json.dumps(document))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.decoder = decoders.Sequence([decoders.Replace(Regex("\u2581"), " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1), trim_offsets=False)
    yield "unigram_bytes", t

    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=True))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()]), pre_tokenizers.Whitespace(), decoders.BPEDecoder("</w>")
    learn(t, trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False, limit_alphabet=60))
    yield "openai", t

    t = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex("\\s+"), " "), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex("<\\|startoftext\\|>|'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+"), "removed", invert=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    learn(t, trainers.BpeTrainer(vocab_size=620, end_of_word_suffix="</w>", show_progress=False, initial_alphabet=alphabet))
    t.decoder = decoders.Sequence([decoders.Replace("</w>", " "), decoders.ByteLevel()])
    yield "clip", t

    t = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##"))
    t.pre_tokenizer, t.decoder = pre_tokenizers.Sequence([pre_tokenizers.UnicodeScripts(), pre_tokenizers.Whitespace()]), decoders.WordPiece()
    learn(t, trainers.BpeTrainer(vocab_size=400, special_tokens=["[UNK]"], continuing_subword_prefix="##", show_progress=False, limit_alphabet=60))
    yield "prefixed", t

    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
    learn(t, trainers.BpeTrainer(vocab_size=500, show_progress=False, initial_alphabet=alphabet))
    t.decoder = decoders.ByteLevel()
    yield "falcon", t

    # A normalizer that spells bytes, bytes that fall back on tokens, and a step of fixed length.
    t = Tokenizer(models.BPE(byte_fallback=True))
    t.normalizer, t.pre_tokenizer = normalizers.ByteLevel(), pre_tokenizers.Sequence([pre_tokenizers.FixedLength(7), pre_tokenizers.ByteLevel(add_prefix_space=True)])
    learn(t, trainers.BpeTrainer(vocab_size=500, special_tokens=[f"<0x{b:02X}>" for b in range(256)], show_progress=False, limit_alphabet=40))
    t.decoder = decoders.ByteFallback()
    yield "bytes_twice", Tokenizer.from_str(json.dumps({**json.loads(t.to_str()), "added_tokens": []}))


def variants(base):
    """Name -> parts that replace those of a stored tokenizer, so that a step needs no file of its own."""
    out = {}
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        out["punctuation_" + behavior] = ("bert_cased", {"pre_tokenizer": {"type": "Punctuation", "behavior": behavior}})
    out["scripts"] = ("bert_cased", {"pre_tokenizer": {"type": "UnicodeScripts"}})
    for name, options in {"clean": [True, False, False, False], "chinese": [False, True, False, False], "accents": [False, False, True, False], "lower": [False, False, False, True], "lower_default": [True, True, None, True]}.items():
        out["bert_" + name] = ("bert_cased", {"normalizer": dict(zip(["clean_text", "handle_chinese_chars", "strip_accents", "lowercase"], options), type="BertNormalizer")})
    out["precompiled_alone"] = ("t5", {"normalizer": base["t5"]["normalizer"]["normalizers"][0], "pre_tokenizer": None})
    out["unigram_of_bytes"] = ("t5", {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}})
    out["no_post_processor"] = ("bert", {"post_processor": None})
    out["processors"] = ("bert", {"post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False}, base["bert"]["post_processor"]]}})
    out["no_cleanup"] = ("word_level", {"decoder": {"type": "CTC", "pad_token": "[PAD]", "word_delimiter_token": "|", "cleanup": False}})
    out["suffix_joined"] = ("openai", {"decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "BPEDecoder", "suffix": "</w>"}]}})
    out["regex_joined"] = ("openai", {"decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Replace", "pattern": {"Regex": "(a|e)?</w>"}, "content": "_"}]}})
    return out


def short(numbers):
    return digest(numbers)[-4:]


def decode(tokenizer, ids, skip):
    return list(tokenizer.decode(ids, skip_special_tokens=skip).encode())


# Steps that put text in or make one character of several, of which `tokenizers` and Tessera give different
# offsets: those of a neighbour or of the first character there, an empty range or all of the characters here.
LOOSE = {"t5", "unigram_bytes", "openai", "clip", "bytes_twice"}


def vectors(tokenizer, texts, is_loose):
    offsets_of = lambda encoding: [] if is_loose else [n for pair in encoding.offsets for n in pair]
    encodings = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    rng = random.Random(3)
    size = tokenizer.get_vocab_size()
    lists = [[rng.randrange(size) for _ in range(rng.randrange(1, 12))] for _ in range(24)]
    pairs = [tokenizer.encode(texts[i], texts[i + 1]) for i in range(0, len(texts) - 1, 5)]
    bare = [tokenizer.encode(texts[i], texts[i + 1], add_special_tokens=False) for i in range(0, len(texts) - 1, 5)]
    return {"ids": "".join(short(e.ids) for e in encodings), "offsets": "" if is_loose else "".join(short(offsets_of(e)) for e in encodings),
            "texts": "".join(short(decode(tokenizer, e.ids, True)) for e in encodings), "lists": lists, "decoded": "".join(short(decode(tokenizer, ids, False)) for ids in lists),
            "pairs": "".join(short(e.ids + e.type_ids + offsets_of(e)) for e in pairs), "bare_pairs": "".join(short(e.ids + e.type_ids) for e in bare),
            "singles": "".join(short(tokenizer.encode(text).ids) for text in texts[::5])}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", action="store_true", help="train the tokenizers anew")
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    names = ["bert", "bert_cased", "word_level", "t5", "unigram_bytes", "openai", "clip", "prefixed", "falcon", "bytes_twice"]
    compact = dict(ensure_ascii=False, separators=(",", ":"))
    if args.train or not all((OUT / f"{name}.json").exists() for name in names):
        for name, tokenizer in train_all():
            (OUT / f"{name}.json").write_text(json.dumps(json.loads(tokenizer.to_str()), **compact) + "\n", encoding="utf-8")
    base = {name: json.loads((OUT / f"{name}.json").read_text(encoding="utf-8")) for name in names}
    texts = STRINGS + MORE + [bytes.fromhex(b).decode("utf-8", errors="replace") for b in BROKEN] + random_strings(100)
    result = {"more": MORE, "num_random": 100, "kinds": {}}
    for name, (of, parts) in {**{name: (name, {}) for name in names}, **variants(base)}.items():
        tokenizer = Tokenizer.from_str(json.dumps({**base[of], **parts}))
        result["kinds"][name] = {"of": of, "parts": parts, "is_loose": of in LOOSE, **vectors(tokenizer, texts, of in LOOSE)}
    (OUT / "vectors.json").write_text(json.dumps(result, **compact) + "\n", encoding="utf-8")
    print(len(texts), "texts,", len(result["kinds"]), "kinds")


if __name__ == "__main__":
    main()

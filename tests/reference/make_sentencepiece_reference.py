#!/usr/bin/env python3
"""Makes data/sentencepiece, the vectors of tests/text/sentencepiece_reference_test.cpp.

Trains a small SentencePiece BPE model on the documents of this repository, converts it as Transformers converts
Llama's, and records what `tokenizers` and Transformers make of hard strings under every way in which such a
tokenizer is written down. Needs: pip install transformers tokenizers sentencepiece protobuf jinja2.
The model is not trained again while its file is there, unless --train is given.

  make_sentencepiece_reference.py [--train]
"""
import argparse
import copy
import io
import json
import pathlib
import random
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer
from transformers import AutoTokenizer
from transformers.convert_slow_tokenizer import generate_merges

from make_tokenizer_reference import BROKEN, STRINGS, digest, random_strings

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "data" / "sentencepiece"

MORE_STRINGS = [
    "[INST] Hello [/INST]", "[INST]", " [INST]", "[INST] ", "x[INST]x[/INST] x", "<s>[INST] a [/INST] b</s><s>[INST] c [/INST]", "<s> a", "<s>a", "a<s>", "</s>a</s> b", "<unk>", "a<unk>b",
    "▁", "▁▁", " ▁", "▁ ", "▁a", " ▁a", "a▁b", "a ▁ b", "▁a b", "\t▁", " \n", "\n ", "\n a", "a\n b", "a  b", "a   b    c", "  ", "   a", "a   ", "<0x41>", "<0x0A>", " <0x0A> ", "<0xZZ>",
    "x", "xx", "axxb", "xax", "ab", "a-b--c", "12 345 6", " 1 2", "1x2", "Llama 2 and Mistral", "\u4e2d\u6587 \u4e2d\u6587", "\U0001f600 \U0001f600", "e\u0301 \u00e9", "\x00a\x01", "\u00a0a\u3000b", "tessera --nproc 2",
]

REPLACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
FALLBACK, FUSE, STRIP = {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}
LLAMA_DECODER = {"type": "Sequence", "decoders": [REPLACE, FALLBACK, FUSE, STRIP]}
LEGACY = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}


def metaspace(scheme, **more):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, **more}


def sequence(key, *items):
    return {"type": "Sequence", key: list(items)}


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def variants():
    """Name -> what replaces the parts of the base document."""
    out = {"llama_legacy": {"normalizer": LEGACY}}
    for scheme in ("always", "first", "never"):
        for cut in (True, False):
            out[f"{scheme}_{'split' if cut else 'whole'}"] = {
                "pre_tokenizer": metaspace(scheme, split=cut), "decoder": LLAMA_DECODER if scheme == "first" else metaspace(scheme, split=cut)}
    out["older_spelling"] = {"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True, "str_rep": "▁"}}
    out["other_character"] = {"pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"}, "decoder": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"}}
    out["after_whitespace"] = {"pre_tokenizer": sequence("pretokenizers", {"type": "WhitespaceSplit"}, metaspace("always"))}
    out["first_after_split"] = {"pre_tokenizer": sequence("pretokenizers", split({"Regex": "\\n|-"}, "Isolated"), metaspace("first", split=False))}
    out["before_digits"] = {"pre_tokenizer": sequence("pretokenizers", metaspace("first", split=False), {"type": "Digits", "individual_digits": True})}
    out["twice"] = {"pre_tokenizer": sequence("pretokenizers", metaspace("first"), metaspace("first", split=False))}
    out["behind_normalizers"] = {
        "normalizer": sequence("normalizers", {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}),
        "pre_tokenizer": metaspace("first")}
    out["behind_nfkc"] = {"normalizer": {"type": "NFKC"}, "pre_tokenizer": metaspace("first", split=False)}
    for byte_fallback in (True, False):
        for fuse_unk in (True, False):
            out[f"fallback_{byte_fallback}_fuse_{fuse_unk}"] = {
                "pre_tokenizer": metaspace("first", split=False), "model": {"byte_fallback": byte_fallback, "fuse_unk": fuse_unk}}
    out["no_unknown"] = {"pre_tokenizer": metaspace("always"), "model": {"byte_fallback": False, "unk_token": None}}
    out["ignore_merges"] = {"pre_tokenizer": metaspace("always"), "model": {"ignore_merges": True}}
    out["ignore_merges_whole"] = {"normalizer": LEGACY, "model": {"ignore_merges": True}}
    out["insertion"] = {"normalizer": {"type": "Replace", "pattern": {"Regex": "x*"}, "content": "-"}}
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            for name, regex in (("x", "x*"), ("space", "\\s*|a"), ("boundary", "(?=[a-c])|-")):
                out[f"empty_{name}_{behavior}_{invert}"] = {"pre_tokenizer": split({"Regex": regex}, behavior, invert)}
    decoders = {
        "no_decoder": None, "replace_fallback": sequence("decoders", REPLACE, FALLBACK), "fused_first": sequence("decoders", FUSE, REPLACE, {**STRIP, "start": 2, "stop": 2}),
        "fused_fallback": sequence("decoders", FUSE, FALLBACK, {"type": "Replace", "pattern": {"String": "▁t"}, "content": "<t>"}), "strip_each": sequence("decoders", REPLACE, {**STRIP, "stop": 1}, FALLBACK),
        "strip_ends": sequence("decoders", REPLACE, FALLBACK, FUSE, {**STRIP, "start": 3, "stop": 3}), "fused_metaspace": sequence("decoders", FALLBACK, FUSE, metaspace("first")),
        "byte_level": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    }
    for name, decoder in decoders.items():
        out["decoder_" + name] = {"pre_tokenizer": metaspace("first", split=False), "decoder": decoder}
    return out


def train():
    texts = [(HERE.parents[1] / name).read_text(encoding="utf-8") for name in ("README.md", "docs/architecture.md", "docs/recipes.md")]
    lines = [line for text in texts for line in text.split("\n") if line]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="bpe", vocab_size=900, byte_fallback=True, split_digits=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, character_coverage=0.9999, control_symbols=["[INST]", "[/INST]"], user_defined_symbols=["<tool>"],
        minloglevel=2)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "tokenizer.model").write_bytes(model.getvalue())


def base_document():
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString((OUT / "tokenizer.model").read_bytes())
    vocab = {piece.piece: i for i, piece in enumerate(proto.pieces)}
    added = [{"id": i, "content": p.piece, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": p.type != 4}
             for i, p in enumerate(proto.pieces) if p.type in (2, 3, 4)]
    document = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": LLAMA_DECODER,
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True,
                  "ignore_merges": False, "vocab": vocab, "merges": [list(pair) for pair in generate_merges(vocab, None)]}}
    return document, proto


def changed(document, parts):
    result = copy.deepcopy(document)
    for key, value in parts.items():
        if key == "model":
            result["model"].update(value)
        else:
            result[key] = value
    return result


def short_digest(numbers):
    """Six hexadecimal digits; "------" for None."""
    return "------" if numbers is None else digest(numbers)[-6:]


def decode(tokenizer, ids):
    """None where `tokenizers` panics: Strip behind the start of a short text."""
    try:
        return tokenizer.decode(ids, skip_special_tokens=False)
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return None


def id_lists(tokenizer):
    rng = random.Random(11)
    size = tokenizer.get_vocab_size()
    byte_ids = [tokenizer.token_to_id(f"<0x{b:02X}>") for b in range(256)]
    some_bytes = [byte_ids[b] for b in "\u00e9\u4e2d\U0001f600".encode()] + byte_ids[0x80:0x90]
    return [[rng.choice(some_bytes) if rng.random() < 0.6 else rng.randrange(size) for _ in range(rng.randrange(1, 16))] for _ in range(80)]


def vectors(tokenizer, texts, lists):
    encodings = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    bytes_of = lambda text: None if text is None else text.encode("utf-8")
    return {
        "ids": "".join(short_digest(ids) for ids in encodings),
        "texts": "".join(short_digest(bytes_of(decode(tokenizer, ids))) for ids in encodings),
        "lists": "".join(short_digest(bytes_of(decode(tokenizer, ids))) for ids in lists),
    }


LLAMA2_TEMPLATE = ("{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
                   "{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
                   "{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
                   "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}")
MISTRAL_TEMPLATE = ("{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
                    "{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}")
CHATS = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is a tile?"}, {"role": "assistant", "content": "One part of a mosaic."}, {"role": "user", "content": "And a rank?"}],
    [{"role": "user", "content": " spaces  inside "}, {"role": "assistant", "content": "\n\u4e2d \U0001f600"}, {"role": "user", "content": "1 2"}],
]


def folders(document, forms):
    """What Transformers makes of texts and chats in folders whose configurations speak of BOS and EOS."""
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    roles = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    configs = {
        "plain": {}, "bos": {"add_bos_token": True}, "bos_and_eos": {"add_bos_token": True, "add_eos_token": True}, "no_bos": {"add_bos_token": False}, "eos": {"add_eos_token": True},
        "no_role": {"add_bos_token": True, "bos_token": None}, "llama2": {"add_bos_token": True, "chat_template": LLAMA2_TEMPLATE}, "mistral": {"add_bos_token": True, "chat_template": MISTRAL_TEMPLATE},
    }
    out = []
    for form in ("llama_legacy", "first_whole"):
        for name, config in configs.items():
            for post_processor in (None, template):
                parts = {**forms[form], "post_processor": post_processor}
                config_file = {**roles, **config}
                with tempfile.TemporaryDirectory() as folder:
                    pathlib.Path(folder, "tokenizer.json").write_text(json.dumps(changed(document, parts)))
                    pathlib.Path(folder, "tokenizer_config.json").write_text(json.dumps(config_file))
                    tokenizer = AutoTokenizer.from_pretrained(folder)
                    entry = {"parts": parts, "config": config_file, "ids": [tokenizer(text).input_ids for text in ("Hello there", " a", "", "<s>x")], "chats": []}
                    if "chat_template" in config:
                        entry["chats"] = [tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False) for chat in CHATS]
                    out.append(entry)
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", action="store_true", help="train the model anew")
    args = parser.parse_args()
    if args.train or not (OUT / "tokenizer.model").exists():
        train()
    document, proto = base_document()
    texts = STRINGS + MORE_STRINGS + [bytes.fromhex(b).decode("utf-8", errors="replace") for b in BROKEN] + random_strings(150)
    forms = variants()
    lists = id_lists(Tokenizer.from_str(json.dumps(document)))
    result = {"texts": texts, "lists": lists, "scores": [p.score for p in proto.pieces], "types": [p.type for p in proto.pieces], "variants": {}}
    for name, parts in forms.items():
        tokenizer = Tokenizer.from_str(json.dumps(changed(document, parts)))
        result["variants"][name] = {"parts": parts, **vectors(tokenizer, texts, lists)}
    result["chat_messages"], result["folders"] = CHATS, folders(document, forms)
    compact = dict(ensure_ascii=False, separators=(",", ":"))
    (OUT / "tokenizer.json").write_text(json.dumps(document, **compact) + "\n", encoding="utf-8")
    (OUT / "vectors.json").write_text(json.dumps(result, **compact) + "\n", encoding="utf-8")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(OUT / "tokenizer.model"))
    legacy = Tokenizer.from_str(json.dumps(changed(document, forms["llama_legacy"])))
    plain = [t for t in texts if "<" not in t and "[" not in t]
    print(f"{len(texts)} texts, {len(forms)} variants; SentencePiece itself agrees on {sum(processor.encode(t) == legacy.encode(t).ids for t in plain)} of {len(plain)}")


if __name__ == "__main__":
    main()

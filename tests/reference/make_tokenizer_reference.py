#!/usr/bin/env python3
"""Makes the reference vectors of tests/text/tokenizer_*_test.cpp.

Trains one small tokenizer for each family with the `tokenizers` package, in the family's own configuration,
and records what that package makes of hard strings and of the shared data. Needs: pip install tokenizers.
The tokenizers learn from tinyshakespeare.txt of the shared data and from the strings below; they are not made
again while their files are there, unless --train is given.

  make_tokenizer_reference.py [--shared ../shared/data] [--train]
"""
import argparse
import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "data" / "tokenizer"

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])

# Every string here was written for this test.
STRINGS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \t ", "a", " a", "a ", "  a  ", "\na", "a\n", "a\n\n\nb", "a \n b",
    "Hello, world!", "Hello world, how are you today?", " leading space", "trailing space ", "two  spaces   three",
    "tabs\tand\t\tmore\t\t\t", "line one\nline two\r\nline three\rline four", "    indented\n        twice\n\tonce",
    "def f(x):\n    if x > 0:\n        return x ** 2\n    return -x\n", "{\"key\": [1, 2.5, null, true], \"b\": \"\\n\"}",
    "for (int i = 0; i < 10; ++i) { sum += a[i]; }", "x=1;y=22;z=333;w=4444;v=55555;u=666666;t=7777777",
    "1", "12", "123", "1234", "12345678901234567890", "3.14159", "1,000,000.00", "2024-01-31T23:59:59Z", "0xDEADBEEF",
    "a1b2c3", "1a 2b 3c", "no. 1: 50% off $5.99", "x² + y³ = z¹⁰", "½ ¼ Ⅷ ④ ٣٤٥ ६७८ 一二三",
    "I'm you're he's she'd we'll they've isn't", "I'M YOU'RE HE'S SHE'D WE'LL THEY'VE ISN'T", "I'm I'M i'M 'tis 'Twas rock'n'roll",
    "'s't're've'm'll'd", "'S'T'RE'VE'M'LL'D", "it\u2019s", "'\u017f x'\u017fy", "''", "don''t", "'", " '", "' s", "'sam'tom'red'venus'mm'llama'dd",
    "!!!", "...", "?!?!", "--- *** ===", "a.b.c", "foo@bar.example", "https://example.org/a/b?c=d&e=f#g", "C:\\path\\to\\file.txt",
    "###\n", "### Title\n\n- item\n- item\n\n```\ncode\n```\n", "!\n\n!", " !\n", "!\r\n\r\n", "(\n)", ".\n \n.", " \n \n ", "\n \n", "\n\n  x",
    "   \n   \n   x", "x   \n", "x   \n   y", "\u00a0\u00a0x", "x\u00a0y", "\u2003\u2003em", "\u3000\u5168\u89d2", "\u200bzero\u200bwidth", "\ufeffbom",
    "\u0085next\u0085line", "\u2028line\u2029para", "\u1680ogham", "\u180emongolian", "\x00\x01\x02\x1f\x7f", "\x0b\x0c", "\u00ad\u00adsoft",
    "caf\u00e9", "cafe\u0301", "na\u00efve r\u00e9sum\u00e9 co\u00f6perate", "nai\u0308ve re\u0301sume\u0301", "A\u030a \u00c5 \u212b", "\u1e69 s\u0323\u0307 s\u0307\u0323",
    "q\u0307\u0323", "\ufb01 \ufb03 \ufb06", "\u2460\u2461\u2462", "\uff21\uff22\uff23\uff11\uff12\uff13", "\u00df \u1e9e stra\u00dfe STRASSE", "\u0130stanbul \u0131 I i",
    "\u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2 \u039f\u0394\u039f\u03a3", "\u01c5 \u01c8 \u02b0 \u1d2c", "Z\u0351\u036b\u0343\u0329a\u0321\u0353l\u0348\u0359g\u0321\u0352o\u0321",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01", "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3067\u3059\u3002", "\ud55c\uad6d\uc5b4 \ud14d\uc2a4\ud2b8", "\u1112\u1161\u11ab\u1100\u116e\u11a8", "\u7e41\u9ad4\u4e2d\u6587 simplified \u7b80\u4f53",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645", "\u0645\u064f\u0631\u064e\u062d\u0651\u064e\u0628\u064b\u0627", "\u05e9\u05c1\u05dc\u05d5\u05b9\u05dd", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e", "\u0ba4\u0bae\u0bbf\u0bb4\u0bcd",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!", "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac", "\u10e5\u10d0\u10e0\u10d7\u10e3\u10da\u10d8 \u1c90\u1c91", "\u12a0\u121b\u122d\u129b", "\u1780\u17d2\u1798\u17c2\u179a",
    "\u0958 \u0915\u093c \u09dc", "\u0344 \u0340 \u0374", "\uf900 \uf9ff \ufa30", "\U0001d15e \U0001d160",
    "\U0001f600", "\U0001f600\U0001f601 \U0001f602", "a\U0001f600b", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f44d\U0001f3fd\U0001f44d\U0001f3ff", "\u2764\ufe0f \u2764", "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7",
    "\U0001f3f4\U000e0067\U000e0062\U000e007f", "1\ufe0f\u20e3", "\U0001d400\U0001d401\U0001d7d8\U0001d7d9", "\U00020000\U0002a6d6\U0002ebf0", "\U000f0000\U0010ffff", "\ufffd\ufffe\uffff", "\U0003134f \U0001e5d0 \U00010d4a\U00010d40",
    "\u2581under\u2581score", "\u0120\u010a\u00e9", "\u0120the", "\u2026\u2014\u2013\u201c\u201d\u2018\u2019", "\u20ac\u00a3\u00a5\u20b9", "\u2211\u222b\u221e\u2248\u2260\u2264", "\u2190\u2191\u2192", "\u2588\u2588\u2591",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ab" * 60, "the" * 40, "antidisestablishmentarianism" * 4,
    " " * 17, " " * 100, "\n" * 33, "\t" * 20, " \n" * 10, "a" + " " * 40 + "b", "-" * 80, "=" * 33 + "\n", "0" * 50, "\U0001f600" * 30, "\u4e2d" * 40,
    "<|endoftext|>", "a<|endoftext|>b", " <|endoftext|> ", "<|endoftext|><|endoftext|>", "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>", "<|endoftext", "endoftext|>", "<|endof<|endoftext|>text|>", "<|<|im_end|>",
    "<tool_call>\n{\"name\": \"f\"}\n</tool_call>", "<think>hm</think>", "<s>", "</s>", "<s>x</s>", "a <s> b", "<unk>", "<0x41>", "<s", "[MASK]", "a [MASK] b", "a[MASK]b", " [MASK]",
    "<l>", "a  <l>  b", "a  <r>  b", "a \n<r>\n\n b", "<r> <l>", "a <b> <b>", "x<w>y", "x <w> y", "<w>", "_<w>", "\u00e9<w>", "<w>!", "NormTok normtok NORMTOK", "a caf\u00e9tok b", "a cafe\u0301tok b",
    "<ab><abc><abcd>", "<abc", "<abcde>", "<ab<abc>", "\u1e9bx", "Stra\u00dfe-bahn-hof--platz", "one-two--three---", "-", "a-", "-a",
    "ROMEO:\nWhat light through yonder window breaks?\n\nJULIET:\nO Romeo, Romeo!", "To be, or not to be: that is the question.", "What's past is prologue; what's done is done.",
    "MixedCASEWordsLikeThis and snake_case_names kebab-case-names", "iPhone's eBay'S McDonald'S O'Neill's", "x'Sy HTTP'sServer", "A", "AB", "Ab", "aB", "ABc", "abC'S",
]
BROKEN = ["ff", "61ff62", "c3", "61c3", "c328", "e282", "e28261", "f09f98", "f09f9861", "80", "808080", "c080", "eda080", "f4908080", "f8888080", "61e2", "e2e282ac",
          "f09f9880ff", "fffe", "20c320", "4a6f73e9", "e9e9e9", "ed9fbfee8080", "edbfbf", "f0808080", "c3a9c3", "3c7c656e646f66ff746578747c3e", "3c7c656e646f66746578747c3eff"]


def random_strings(count):
    rng = random.Random(20240229)
    ranges = [(0x20, 0x7e)] * 6 + [(0x9, 0xd), (0x20, 0x20), (0x20, 0x20), (0xa0, 0x17f), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x4ff), (0x5d0, 0x5ea), (0x600, 0x6ff), (0x900, 0x97f), (0xe00, 0xe5b),
             (0x1100, 0x11ff), (0x1e00, 0x1fff), (0x2000, 0x206f), (0x2070, 0x218f), (0x2460, 0x24ff), (0x3000, 0x30ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0xf900, 0xfaff), (0xfe00, 0xffef),
             (0x1d400, 0x1d7ff), (0x1f300, 0x1faff), (0x10000, 0x2ffff)]
    words = ["the", " and", " I'll", "'S", "123", " 4", "\n\n", "   ", "<|endoftext|>", "<|im_end|>", "<l>", "<r>", "<w>", "<ab", "cd>", "-", "<s>", "normtok", "e\u0301", "\r\n", "..", " '", "don't"]
    out = []
    for _ in range(count):
        text = ""
        for _ in range(rng.randrange(1, 14)):
            if rng.random() < 0.4:
                text += rng.choice(words)
            else:
                low, high = rng.choice(ranges)
                text += "".join(chr(rng.randint(low, high)) for _ in range(rng.randrange(1, 5)))
        out.append(text)
    return out


def byte_level(regex, prefix=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)


def template(token, token_id):
    return processors.TemplateProcessing(single=f"{token} $A", pair=f"{token} $A {token} $B:1", special_tokens=[(token, token_id)])


def special(content, **flags):
    return AddedToken(content, normalized=flags.pop("normalized", False), special=True, **flags)


def plain(content, **flags):
    return AddedToken(content, normalized=flags.pop("normalized", False), special=False, **flags)


def train(tokenizer, text, size, first=(), alphabet=pre_tokenizers.ByteLevel.alphabet()):
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, initial_alphabet=alphabet, special_tokens=list(first))
    tokenizer.train_from_iterator(text, trainer)
    return tokenizer


def make_families(text):
    """Yields (name, tokenizer, whether merges are written in the old form)."""
    split = lambda regex: pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"), byte_level(False)])

    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder, t.post_processor = byte_level(True), decoders.ByteLevel(), processors.ByteLevel(trim_offsets=False)
    train(t, text, 900).add_special_tokens([special("<|endoftext|>", normalized=True)])
    yield "gpt2", t, True

    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer, t.decoder = split(LLAMA3), decoders.ByteLevel()
    train(t, text, 1200).add_special_tokens([special(f"<|{name}|>") for name in (
        "begin_of_text", "end_of_text", "start_header_id", "end_header_id", "eot_id", "reserved_special_token_0")])
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))])
    yield "llama3", t, True

    t = Tokenizer(models.BPE())
    t.normalizer, t.pre_tokenizer, t.decoder, t.post_processor = normalizers.NFC(), split(QWEN2), decoders.ByteLevel(), processors.ByteLevel(trim_offsets=False)
    train(t, text, 1000).add_special_tokens([special(f"<|{name}|>") for name in ("endoftext", "im_start", "im_end")])
    t.add_tokens([plain(name) for name in ("<tool_call>", "</tool_call>", "<think>", "</think>")])
    yield "qwen2", t, False

    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True)]), decoders.ByteLevel()
    train(t, text, 1000, first=[special(name) for name in ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>")])
    yield "smollm2", t, False

    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = split(O200K), decoders.ByteLevel()
    train(t, text, 800).add_special_tokens([special("<|endoftext|>")])
    yield "o200k", t, False

    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    train(t, text, 900, first=[special(name) for name in ("<unk>", "<s>", "</s>")] + [f"<0x{b:02X}>" for b in range(256)], alphabet=[])
    t.pre_tokenizer = None
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = template("<s>", 1)
    yield "llama2", t, False

    # Everything that the families above leave out.
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase(), normalizers.Replace(Regex(r"\u0301+|s{3,}"), "")])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split("-", "merged_with_next"), pre_tokenizers.Split(Regex(r"[aeiou]{2,}"), "merged_with_previous"),
        pre_tokenizers.Split(Regex(r"\s+"), "contiguous"), pre_tokenizers.Split(Regex(r"[^#]+"), "removed", invert=True),
        pre_tokenizers.Digits(individual_digits=False), byte_level(True, prefix=True)])
    t.decoder = decoders.ByteLevel()
    train(t, text, 700).add_special_tokens([special("<s>"), special("</s>", normalized=True), special("[MASK]", lstrip=True), special("<l>", lstrip=True), special("<r>", rstrip=True)])
    t.add_tokens([plain("<b>", lstrip=True, rstrip=True), plain("<w>", single_word=True), plain("NormTok", normalized=True, single_word=True), plain("caf\u00e9tok", normalized=True),
                  plain("<ab>"), plain("<abc"), plain("<abcd>", normalized=True)])
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")), trim_offsets=False, add_prefix_space=True)
    yield "mixed", t, False


def save(name, tokenizer, old_merges):
    document = json.loads(tokenizer.to_str())
    if old_merges:
        document["model"]["merges"] = [" ".join(pair) for pair in document["model"]["merges"]]
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


class Digest:
    """FNV-1a over ids as 64-bit words, each text closed by 2^32."""

    def __init__(self):
        self.hash, self.count = 0xcbf29ce484222325, 0

    def add(self, ids):
        h = self.hash
        for i in ids:
            h = ((h ^ i) * 0x100000001b3) & 0xffffffffffffffff
        self.hash = ((h ^ (1 << 32)) * 0x100000001b3) & 0xffffffffffffffff
        self.count += len(ids)

    def result(self):
        return [self.count, f"{self.hash:016x}"]


def digest(ids):
    d = Digest()
    d.add(ids)
    return d.result()[1]


def texts_of(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts_of(item)


def shared_texts(path):
    content = path.read_bytes().decode("utf-8")
    if path.suffix == ".txt":
        yield content
        yield from content.split("\n")
    elif path.suffix == ".jsonl":
        for line in content.split("\n"):
            if line.strip():
                yield from texts_of(json.loads(line))
    else:
        yield from texts_of(json.loads(content))


def vectors(tokenizer, randoms, texts):
    encode = lambda text, add=False: tokenizer.encode(text, add_special_tokens=add).ids
    strings = texts
    tokenizer.encode_special_tokens = False
    out = {"parsed": [encode(s) for s in strings], "with_added": [encode(s, True) for s in strings[:4]]}
    tokenizer.encode_special_tokens = True
    unparsed = [encode(s) for s in strings]
    out["unparsed"] = {str(i): ids for i, ids in enumerate(unparsed) if ids != out["parsed"][i]}
    tokenizer.encode_special_tokens = False
    decode = lambda ids, skip: tokenizer.decode(ids, skip_special_tokens=skip)
    out["decoded"] = {str(i): decode(ids, False) for i, ids in enumerate(out["parsed"]) if decode(ids, False) != strings[i]}
    out["decoded_skipping"] = {str(i): decode(ids, True) for i, ids in enumerate(out["parsed"]) if decode(ids, True) != decode(ids, False)}
    rng = random.Random(7)
    size = tokenizer.get_vocab_size()
    cuts = [[rng.randrange(size + 3) for _ in range(rng.randrange(1, 12))] for _ in range(60)]
    out["decoded_random"] = [[ids, decode(ids, False)] for ids in cuts]
    out["random"] = [digest(encode(s)) for s in randoms]
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shared", type=pathlib.Path, default=HERE.parents[1].parent / "shared" / "data")
    parser.add_argument("--train", action="store_true", help="train the tokenizers anew")
    args = parser.parse_args()
    texts = STRINGS + [bytes.fromhex(b).decode("utf-8", errors="replace") for b in BROKEN]
    randoms = random_strings(400)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "strings.json").write_text(json.dumps({"strings": STRINGS, "broken": BROKEN, "random": randoms}, separators=(",", ":")) + "\n")

    names = ("gpt2", "llama3", "qwen2", "smollm2", "o200k", "llama2", "mixed")
    if args.train or not all((OUT / name / "tokenizer.json").exists() for name in names):
        plays = (args.shared / "tinyshakespeare.txt").read_text(encoding="utf-8")[:300000]
        for name, tokenizer, old in make_families([plays] + STRINGS * 3):
            save(name, tokenizer, old)

    shared = {}
    for name in names:
        tokenizer = Tokenizer.from_file(str(OUT / name / "tokenizer.json"))
        result = vectors(tokenizer, randoms, texts)
        (OUT / name / "vectors.json").write_text(json.dumps(result, separators=(",", ":")) + "\n")
        shared[name] = {}
        for path in sorted(args.shared.glob("*.*")):
            if path.suffix in (".txt", ".json", ".jsonl"):
                total = Digest()
                for text in shared_texts(path):
                    total.add(tokenizer.encode(text, add_special_tokens=False).ids)
                shared[name][path.name] = total.result()
        print(name, tokenizer.get_vocab_size(), shared[name])
    (OUT / "shared_data.json").write_text(json.dumps(shared, indent=1) + "\n")


if __name__ == "__main__":
    main()

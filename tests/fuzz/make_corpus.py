#!/usr/bin/env python3
"""Writes the inputs that fuzzing starts from, one folder a target, into tests/fuzz/corpus/.

Small files that reach far into each parser, and files of shapes that parsers get wrong. An input that once broke
something is added to its folder by hand, under the name of what it broke.
"""
import base64
import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"


def write(target, name, content):
    path = CORPUS / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def safetensors(header, data=b""):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def make_safetensors():
    two = {"__metadata__": {"format": "pt"}, "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
           "b": {"dtype": "BF16", "shape": [], "data_offsets": [24, 26]}}
    write("safetensors", "two", safetensors(two, bytes(26)))
    write("safetensors", "empty", safetensors({}))
    write("safetensors", "no_elements", safetensors({"a": {"dtype": "I64", "shape": [0, 7], "data_offsets": [0, 0]}}))
    hole = {"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}, "b": {"dtype": "U8", "shape": [2], "data_offsets": [3, 5]}}
    write("safetensors", "hole", safetensors(hole, bytes(5)))
    huge = {"a": {"dtype": "F64", "shape": [1 << 62, 1 << 62], "data_offsets": [0, 1 << 63]}}
    write("safetensors", "huge", safetensors(huge))
    write("safetensors", "long_header", struct.pack("<Q", (1 << 64) - 1) + b"{}")


def make_constraint():
    """The first byte tells the kind."""
    rows = json.loads((CORPUS.parents[1] / "reference" / "data" / "constraints.json").read_text())
    letters = {"json_schema": "@", "regex": "A", "choice": "B", "grammar": "C"}
    for number, row in enumerate(rows[::10]):
        text = row["value"] if row["kind"] in ("regex", "grammar") else json.dumps(row["value"])
        write("constraint", f"{row['kind']}_{number}", letters[row["kind"]] + text)
    deep = "{}"
    for _ in range(30):
        deep = '{"items":' + deep + "}"
    write("constraint", "deep", "@" + deep)
    write("constraint", "huge", '@{"minItems":1e9,"items":{"maxLength":99999999}}')
    write("constraint", "keywords", '@{"anyOf":[{"type":"integer","multipleOf":7},{"uniqueItems":true,"items":{"enum":[1,2,3]}},'
          '{"contains":{"const":1}},{"type":"string","not":{"const":"a"}},{"type":"object","properties":{"k":{"type":"string"}},'
          '"required":["k"],"if":{"properties":{"k":{"const":"a"}}},"then":{"required":["n"]}}]}')
    write("constraint", "loop", '@{"allOf":[{"$ref":"#"},{"$ref":"#"}]}')
    write("constraint", "bomb", "A((((a{99}){99}){99}){99}){99}")
    write("constraint", "ambiguous", 'Croot ::= "a" root root root | "a" | ""')


def first_layer(path):
    """A safetensors file, or, of a large one, its tensors that belong to the first layer."""
    raw = path.read_bytes()
    if len(raw) < 12000:
        return raw
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    kept, data = {}, b""
    for name, tensor in header.items():
        if ".0." not in name:
            continue
        begin, end = tensor["data_offsets"]
        kept[name] = dict(tensor, data_offsets=[len(data), len(data) + end - begin])
        data += raw[8 + size + begin:8 + size + end]
    return safetensors(kept, data)


def make_quantized():
    """The first layers of the reference folders (tests/reference/make_quantized_reference.py)."""
    for folder in sorted((CORPUS.parents[1] / "reference" / "data" / "quantized").iterdir()):
        if not (folder / "model.safetensors").exists():
            continue
        texts = {path.name: path.read_text() for path in sorted(folder.glob("*.json")) if "config" in path.name}
        write("quantized", folder.name, json.dumps(texts).encode() + b"\n" + first_layer(folder / "model.safetensors"))


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5


def gguf(pairs, tensors, data=b"", version=3):
    content = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs))
    for key, kind, value in pairs:
        content += text(key) + struct.pack("<I", kind) + value
    for name, shape, kind, offset in tensors:
        content += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", dim) for dim in shape)
        content += struct.pack("<IQ", kind, offset)
    return content + bytes(-len(content) % 32) + data


def array(kind, values):
    return struct.pack("<IQ", kind, len(values)) + b"".join(values)


def make_gguf():
    tokens = ["<unk>", "<s>", "</s>", "T", "h", "e", "Th", "The", "\u0120"]
    pairs = [
        ("general.architecture", STRING, text("llama")),
        ("llama.block_count", U32, struct.pack("<I", 1)),
        ("llama.rope.freq_base", F32, struct.pack("<f", 10000.0)),
        ("tokenizer.ggml.model", STRING, text("gpt2")),
        ("tokenizer.ggml.pre", STRING, text("smollm")),
        ("tokenizer.ggml.tokens", ARRAY, array(STRING, [text(token) for token in tokens])),
        ("tokenizer.ggml.token_type", ARRAY, array(I32, [struct.pack("<i", 3 if i < 3 else 1) for i in range(len(tokens))])),
        ("tokenizer.ggml.merges", ARRAY, array(STRING, [text("T h"), text("Th e")])),
        ("tokenizer.ggml.eos_token_id", U32, struct.pack("<I", 2)),
        ("tokenizer.ggml.add_bos_token", BOOL, b"\x00"),
    ]
    # (name, dims from the innermost, type, offset): F32, Q4_0 and Q6_K.
    tensors = [("a.weight", [4, 2], 0, 0), ("b.weight", [32, 1], 2, 32), ("c.weight", [256], 14, 64)]
    write("gguf", "three_types", gguf(pairs, tensors, bytes(64 + 210 + 32)))
    write("gguf", "version_2", gguf(pairs[:3], tensors[:1], bytes(32), version=2))
    write("gguf", "metadata_alone", gguf(pairs, []))
    write("gguf", "far_offset", gguf(pairs[:1], [("a", [4], 0, 1 << 62)], bytes(32)))
    unigram = pairs[:3] + [
        ("tokenizer.ggml.model", STRING, text("llama")),
        ("tokenizer.ggml.tokens", ARRAY, array(STRING, [text(token) for token in ["<unk>", "<s>", "</s>", "\u2581", "T", "he"]])),
        ("tokenizer.ggml.scores", ARRAY, array(F32, [struct.pack("<f", -i) for i in range(6)])),
        ("tokenizer.ggml.token_type", ARRAY, array(I32, [struct.pack("<i", kind) for kind in [2, 3, 3, 1, 1, 1]])),
    ]
    write("gguf", "sentencepiece", gguf(unigram, []))


def make_tokenizer_kinds():
    """A unigram model with a map of characters, WordPiece with BERT's steps, and BPE whose steps spell bytes."""
    special = [{"id": 0, "content": "<unk>", "special": True, "normalized": False}]
    # A trie whose root has one child, "a", with the text "b".
    units = [0] * 256
    units[0] = 1 << 10
    units[1 ^ ord("a")] = (1 << 10) | (1 << 8) | ord("a")
    units[1 ^ ord("a") ^ 1] = 1 << 31
    charsmap = struct.pack("<I256I", 1024, *units) + b"b\0"
    unigram = {
        "version": "1.0", "added_tokens": special,
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}, {"type": "Nmt"}, {"type": "StripAccents"}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "UnicodeScripts"}, {"type": "Punctuation", "behavior": "Contiguous"}, {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}]},
        "post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<unk>", "type_id": 0}}],
                           "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {"<unk>": {"id": "<unk>", "ids": [0], "tokens": ["<unk>"]}}},
        "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
        "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": True, "vocab": [["<unk>", 0], ["\u2581", -1.5], ["The", -2], ["T", -3.25], ["he", -2.5], ["n", -4]]},
    }
    write("tokenizer_json", "unigram", json.dumps(unigram))
    word_piece = dict(unigram, normalizer={"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
                      pre_tokenizer={"type": "BertPreTokenizer"}, decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
                      post_processor={"type": "BertProcessing", "sep": ["<unk>", 0], "cls": ["<unk>", 0]},
                      model={"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9, "vocab": {"<unk>": 0, "the": 1, "num": 2, "##ber": 3, ".": 4}})
    write("tokenizer_json", "word_piece", json.dumps(word_piece))
    spelled = dict(unigram, normalizer={"type": "ByteLevel"}, post_processor=None, decoder={"type": "Sequence", "decoders": [{"type": "BPEDecoder", "suffix": "</w>"}, {"type": "CTC", "pad_token": "_", "word_delimiter_token": "|", "cleanup": True},
                   {"type": "Replace", "pattern": {"Regex": "e+"}, "content": "i"}]},
                   pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "FixedLength", "length": 5}, {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, {"type": "CharDelimiterSplit", "delimiter": "m"}]},
                   model={"type": "BPE", "unk_token": "<unk>", "continuing_subword_prefix": "#", "end_of_word_suffix": "</w>", "byte_fallback": True, "vocab": {"<unk>": 0, "T": 1, "#h": 2, "Th": 3, "#e</w>": 4, "The</w>": 5}, "merges": [["T", "#h"], ["Th", "#e</w>"]]})
    write("tokenizer_json", "spelled_bytes", json.dumps(spelled))
    level = dict(unigram, pre_tokenizer={"type": "Whitespace"}, model={"type": "WordLevel", "unk_token": "<unk>", "vocab": {"<unk>": 0, "The": 1, "12": 2}})
    write("tokenizer_json", "word_level", json.dumps(level))


def make_tokenizer_json():
    letters = [chr(code) for code in range(33, 127)] + ["\u0120", "\u010a", "\u00c3", "\u00a9"]
    vocabulary = {letter: i for i, letter in enumerate(letters)}
    for merged in ["Th", "The", "\u0120n"]:
        vocabulary[merged] = len(vocabulary)
    byte_level = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": len(vocabulary), "content": "<|im_start|>", "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]},
        "post_processor": None, "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "unk_token": None, "vocab": vocabulary, "merges": ["T h", ["Th", "e"], "\u0120 n"]},
    }
    write("tokenizer_json", "byte_level", json.dumps(byte_level))
    split = dict(byte_level)
    split["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "(?i:'s|'t)|\\p{L}+|\\p{N}{1,3}|\\s+(?!\\S)|."}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}
    split["post_processor"] = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
                               {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {"<|im_start|>": {
                                   "id": "<|im_start|>", "ids": [len(vocabulary)], "tokens": ["<|im_start|>"]}}}
    write("tokenizer_json", "split_regex", json.dumps(split))
    pieces = {"<unk>": 0, "<s>": 1, "</s>": 2, **{f"<0x{i:02X}>": 3 + i for i in range(256)}, "\u2581": 259, "T": 260, "h": 261, "Th": 262}
    sentencepiece = {
        "version": "1.0", "added_tokens": [{"id": i, "content": token, "special": True} for i, token in enumerate(["<unk>", "<s>", "</s>"])],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
                       {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        "pre_tokenizer": None, "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                    {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "vocab": pieces, "merges": ["T h"]},
    }
    write("tokenizer_json", "sentencepiece", json.dumps(sentencepiece))


def make_chat_template():
    write("chat_template", "chatml",
          "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
    write("chat_template", "macros",
          "{%- macro call(c) -%}{{ c.function.name }}({{ c.function.arguments | tojson }}){%- endmacro -%}"
          "{%- set ns = namespace(last=-1) -%}{%- for m in messages if m.role != 'system' -%}{%- set ns.last = loop.index0 -%}"
          "{%- generation -%}{{ m.content | trim | upper ~ (m.tool_calls | default([]) | length) }}{%- endgeneration -%}"
          "{%- for c in m.tool_calls or [] -%}{{ call(c) }}{%- else -%}-{%- endfor -%}{%- endfor -%}{{ ns.last }}"
          "{{ tools[0].function | tojson(indent=2) if tools is defined and tools }}")
    write("chat_template", "expressions",
          "{{ [1, 2.5, 'a'][::-1] }}{{ {'a': 1, **{}} if false else (1, 2) }}{{ 7 // 2 ** 3 % 5 }}{{ 'x' * 3 }}"
          "{{ messages | map(attribute='role') | join(', ') }}{{ messages | selectattr('role', 'equalto', 'user') | list | first }}"
          "{{ strftime_now('%d %b %Y') }}{{ 'a,b'.split(',')[0].strip() }}{{ not (1 in [1]) and 1 < 2 <= 3 }}"
          "{% if messages[0].content is string %}{{ messages[0]['content'][:2] }}{% endif %}{{ range(3) | list }}")
    write("chat_template", "raise", "{{ raise_exception('no tools: ' ~ messages | length) }}")
    write("chat_template", "deep", "{{ " + "(" * 200 + "1" + ")" * 200 + " }}")
    write("chat_template", "endless", "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}")


def make_recipe():
    write("recipe", "lora", """base_model: model
datasets:
  - path: rows.jsonl
    type: chat_template
    roles_to_train: [assistant]
adapter: lora
lora_r: 8
lora_alpha: 16
lora_target_linear: true
sequence_len: 512
micro_batch_size: 2
learning_rate: 2e-4
lr_scheduler: cosine
warmup_ratio: 0.1
bf16: auto
output_dir: out
""")
    write("recipe", "anchors", """base_model: &m model
tokenizer_config: *m
datasets: [{path: a.jsonl, type: completion, split: 'train[:10%]'}, {path: b.txt, type: completion}]
learning_rate: "2e-5"
wandb_project:
fsdp_config: {reshard_after_forward: yes, state_dict_type: FULL_STATE_DICT}
deepspeed: {zero_optimization: {stage: 3}, bf16: {enabled: auto}, train_micro_batch_size_per_gpu: auto}
tensor_parallel_size: 2
save_steps: 0.25
""")
    write("recipe", "traps", "base_model: ~\nnum_epochs: 1_000\nseed: 0x1F\nlearning_rate: .inf\nval_set_size: -0\n? [a, b]\n: c\n<<: {x: 1}\n")
    write("recipe", "json", '{"base_model": "model", "datasets": [{"path": "a.jsonl"}], "micro_batch_size": 1e0}')


def make_rows():
    kinds = ["chat_template", "alpaca", "completion", "input_output", ""]
    rows = {
        "chat_template": [{"messages": [{"role": "user", "content": "Hi <|im_end|>"}, {"role": "assistant", "content": "Ho"}]},
                          {"messages": [{"role": "system", "content": ""}]}],
        "alpaca": [{"instruction": "Add.", "input": "1 2", "output": "3"}, {"instruction": "Say.", "output": "x"}],
        "completion": [{"text": "Once upon a time " * 30}, {"text": ""}],
        "input_output": [{"segments": [{"label": True, "text": "a"}, {"label": False, "text": "b</s>"}]}],
        "": [{"input_ids": [1, 2, 3], "attention_mask": [1, 1, 1], "labels": [-100, 2, 3]}],
    }
    for i, kind in enumerate(kinds):
        lines = "".join(json.dumps(row) + "\n" for row in rows[kind])
        write("rows", kind or "token_ids", bytes([i]) + lines.encode())
    write("rows", "crlf_and_blanks", b"\x02\xef\xbb\xbf" + b'{"text": "a\\u00e9\\ud83d\\ude00"}\r\n\r\n  \n{"text": "b"}')
    write("rows", "nested", b"\x02" + b'{"text": ' + b"[" * 100 + b"]" * 100 + b"}\n")


for make in [make_safetensors, make_quantized, make_gguf, make_tokenizer_json, make_tokenizer_kinds, make_chat_template, make_recipe, make_rows, make_constraint]:
    make()

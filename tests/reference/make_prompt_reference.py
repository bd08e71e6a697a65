#!/usr/bin/env python3
"""Makes tests/reference/data/prompts: a small tokenizer, and rows of every prompt type as the `tokenizers` and
`transformers` packages make them. tests/data/prompts_test.cpp reads them.

Needs: pip install tokenizers transformers jinja2. The tokenizer is not trained again while its file is there.
"""
import json
import pathlib

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

OUT = pathlib.Path(__file__).resolve().parent / "data" / "prompts"
IGNORE = -100
BOS, EOS = "<|bos|>", "<|endoftext|>"
SPECIAL = [BOS, EOS, "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "</s>"]

TEXT = """A mosaic is made of small tiles. Each tile is called a tessera, and each rank holds one tile of every tensor.
Who are you? I am an assistant. What is the instruction? Below is an instruction that describes a task, paired with
an input that provides further context. Write a response that appropriately completes the request.
### Instruction:
### Input:
### Response:
user assistant system question answer: the user asks and the assistant answers in one or two sentences.\n\n\n
Hello there! Hello again. Thank you, that is all.\n\nHow many tiles are there? There are twelve tiles.
"""

CHATML = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
LLAMA3 = ("{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}"
          "{{ message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}")
INST = ("{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
        "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token }}{% endif %}{% endfor %}")
GENERATION = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}{% if message['role'] == 'assistant' %}"
              "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{% else %}"
              "{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}")


def train_tokenizer(path):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=480, special_tokens=[AddedToken(t, special=True) for t in SPECIAL],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator([TEXT] * 4, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))])
    tokenizer.save(str(path))


class Maker:
    def __init__(self):
        self.tok = PreTrainedTokenizerFast(tokenizer_file=str(OUT / "tokenizer.json"), bos_token=BOS, eos_token=EOS)
        self.cases = []

    def add(self, name, dataset, record, rows, recipe=None):
        self.cases.append({"name": name, "dataset": dataset, "recipe": recipe or {}, "record": record,
                           "rows": [{"input_ids": ids, "labels": labels} for ids, labels in rows]})

    def ids(self, text, bos=False):
        return self.tok(text, add_special_tokens=bos)["input_ids"]

    def alpaca(self, name, kind, record, prompt, train_on_inputs=False):
        head = self.ids(prompt, bos=True)
        tail = self.ids(record["output"]) + [self.tok.eos_token_id]
        labels = (head if train_on_inputs else [IGNORE] * len(head)) + tail
        self.add(name, {"type": kind}, record, [(head + tail, labels)], {"train_on_inputs": train_on_inputs})

    def completion(self, name, text, sequence_len):
        ids = self.ids(text, bos=True) + [self.tok.eos_token_id]
        pieces = [ids[i:i + sequence_len] for i in range(0, len(ids), sequence_len)]
        self.add(name, {"type": "completion"}, {"text": text}, [(p, list(p)) for p in pieces], {"sequence_len": sequence_len})

    def chat(self, name, template, messages, trained, ends, dataset=None, record=None, recipe=None):
        """`trained`: indices of the messages whose content is trained; `ends`: those whose end token is."""
        text = self.tok.apply_chat_template(messages, chat_template=template, tokenize=False)
        coded = self.tok(text, add_special_tokens=False, return_offsets_mapping=True)
        ids, offsets = coded["input_ids"], coded["offset_mapping"]
        assert ids == list(self.tok.apply_chat_template(messages, chat_template=template, tokenize=True, return_dict=True)["input_ids"])
        labels = [IGNORE] * len(ids)
        at = 0
        for i, message in enumerate(messages):
            content = message["content"].strip() if template is LLAMA3 else message["content"]
            if template is INST and message["role"] == "system":
                continue
            # The header holds the role, which a content may spell too.
            header = {CHATML: message["role"] + "\n", LLAMA3: message["role"] + "<|end_header_id|>\n\n", INST: "", GENERATION: message["role"] + "\n"}[template]
            begin = text.index(header + content, at) + len(header)
            end = begin + len(content)
            at = end
            for t, (b, e) in enumerate(offsets):
                if i in trained and b >= begin and e <= end:
                    labels[t] = ids[t]
            if i in ends:
                t = next(t for t, (b, _) in enumerate(offsets) if b >= end)
                assert self.tok.convert_ids_to_tokens(ids[t]) in SPECIAL, name
                labels[t] = ids[t]
        entry = {"type": "chat_template", "chat_template": "jinja", "chat_template_jinja": template, **(dataset or {})}
        self.add(name, entry, record or {"messages": messages}, [(ids, labels)], recipe)

    def chat_generation(self, name, messages):
        out = self.tok.apply_chat_template(messages, chat_template=GENERATION, tokenize=True, return_dict=True,
                                           return_assistant_tokens_mask=True)
        ids = list(out["input_ids"])
        mask = out["assistant_masks"]
        assert sum(mask) > 0
        self.add(name, {"type": "chat_template", "chat_template": "jinja", "chat_template_jinja": GENERATION},
                 {"messages": messages}, [(ids, [i if m else IGNORE for i, m in zip(ids, mask)])])


def say(*turns):
    return [{"role": role, "content": content} for role, content in turns]


def make_alpaca(m):
    with_input = {"instruction": "How many tiles are there?", "input": "A mosaic of twelve tiles.", "output": "There are twelve."}
    without = {"instruction": "Who are you?", "input": "", "output": "\nI am an assistant.\u00e9\U0001f600"}
    intro_input = ("Below is an instruction that describes a task, paired with an input that provides further context. "
                   "Write a response that appropriately completes the request.")
    intro = ("Below is an instruction that describes a task. "
             "Write a response that appropriately completes the request.")
    prompt_input = (f"{intro_input}\n\n### Instruction:\n{with_input['instruction']}\n\n### Input:\n{with_input['input']}"
                    "\n\n### Response:\n")
    prompt = f"{intro}\n\n### Instruction:\n{without['instruction']}\n\n### Response:\n"
    m.alpaca("alpaca with input", "alpaca", with_input, prompt_input)
    m.alpaca("alpaca without input", "alpaca", without, prompt)
    m.alpaca("alpaca, input missing", "alpaca", {k: without[k] for k in ("instruction", "output")}, prompt)
    m.alpaca("alpaca, train_on_inputs", "alpaca", without, prompt, train_on_inputs=True)
    m.alpaca("alpaca_chat with input", "alpaca_chat", with_input,
             f"SYSTEM: {intro_input}\nUSER: {with_input['instruction']}\n{with_input['input']}\nASSISTANT:")
    m.alpaca("alpaca_chat without input", "alpaca_chat", without, f"SYSTEM: {intro}\nUSER: {without['instruction']}\nASSISTANT:")
    m.alpaca("alpaca_w_system", "alpaca_w_system", {**without, "system": "Be brief."},
             f"### System:\nBe brief.\n\n### Instruction:\n{without['instruction']}\n\n### Response:\n")


def make_chat(m):
    talk = say(("system", "Be brief."), ("user", "Who are you?"), ("assistant", "I am an assistant."),
               ("user", "How many tiles are there?\n"), ("assistant", "There are twelve tiles.\n\nThat is all. \U0001f600"))
    edges = say(("user", "\n\nHello"), ("assistant", "\nHello there! "), ("user", "assistant"), ("assistant", "assistant"),
                ("user", "  spaces  "), ("assistant", "  \u00e9\u4e2d\u6587  "))
    for name, template in (("chatml", CHATML), ("llama3", LLAMA3)):
        m.chat(f"{name}: turn", template, talk, [2, 4], [2, 4])
        m.chat(f"{name}: edges", template, edges, [1, 3, 5], [1, 3, 5])
        m.chat(f"{name}: train_on_eos all", template, talk, [2, 4], [0, 1, 2, 3, 4], {"train_on_eos": "all"})
        m.chat(f"{name}: train_on_eos last", template, talk, [2, 4], [4], {"train_on_eos": "last"})
        m.chat(f"{name}: train_on_eos none", template, talk, [2, 4], [], {"train_on_eos": "none"})
        m.chat(f"{name}: train_on_eot none", template, talk, [2, 4], [], {"train_on_eot": "none"})
        m.chat(f"{name}: roles_to_train", template, talk, [1, 3], [1, 3], {"roles_to_train": ["human"]})
        m.chat(f"{name}: train_on_inputs", template, talk, [0, 1, 2, 3, 4], [0, 1, 2, 3, 4], recipe={"train_on_inputs": True})
    m.chat("inst: turn", INST, talk[1:], [1, 3], [1, 3])
    m.chat("inst: edges", INST, edges, [1, 3, 5], [1, 3, 5])
    m.chat("inst: train_on_eot says nothing of EOS", INST, talk[1:], [1, 3], [1, 3], {"train_on_eot": "none"})

    flagged = [dict(message, train=flag) for message, flag in zip(talk[1:], (True, False, None, True))]
    m.chat("chatml: training field", CHATML, talk[1:], [0, 3], [0, 3], {"message_field_training": "train"}, {"messages": flagged})
    m.chat("chatml: drop_system_message", CHATML, talk[1:], [1, 3], [1, 3], {"drop_system_message": True}, {"messages": talk})
    m.chat("chatml: system column", CHATML, talk, [2, 4], [2, 4], None, {"messages": talk[1:], "system": "Be brief."})
    shared = [{"from": {"user": "human", "assistant": "gpt", "system": "system"}[t["role"]], "value": t["content"]} for t in talk]
    m.chat("sharegpt", CHATML, talk, [2, 4], [2, 4], {"type": "sharegpt"}, {"id": "x", "conversations": shared})
    mapped = [{"speaker": {"user": "Anna", "assistant": "Bob", "system": "system"}[t["role"]], "line": t["content"]} for t in talk]
    m.chat("chatml: mappings and roles", CHATML, talk, [2, 4], [2, 4],
           {"field_messages": "talk", "message_property_mappings": {"role": "speaker", "content": "line"},
            "roles": {"user": ["Anna"], "assistant": ["Bob"]}, "roles_to_train": ["Bob"]}, {"talk": mapped})
    parts = [dict(t, content=[{"type": "text", "text": t["content"][:5]}, {"type": "text", "text": t["content"][5:]}]) for t in talk]
    m.chat("chatml: content in parts", CHATML, talk, [2, 4], [2, 4], None, {"messages": parts})
    m.chat_generation("generation blocks", talk)
    m.chat_generation("generation blocks: two turns in a row", say(("user", "Hello"), ("assistant", "Hello there!"), ("assistant", "Hello again.")))


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    if not (OUT / "tokenizer.json").exists():
        train_tokenizer(OUT / "tokenizer.json")
    (OUT / "tokenizer_config.json").write_text(json.dumps({"bos_token": BOS, "eos_token": EOS}, indent=1) + "\n")
    m = Maker()
    make_alpaca(m)
    m.completion("completion, one row", "A mosaic is made of small tiles.\n", 512)
    m.completion("completion, cut", TEXT, 40)
    segments = [{"label": False, "text": "<|bos|>Who are you?\n"}, {"label": True, "text": "\nI am an assistant.<|endoftext|>"}]
    ids = [m.ids(s["text"]) for s in segments]
    m.add("input_output", {"type": "input_output"}, {"segments": segments},
          [(ids[0] + ids[1], [IGNORE] * len(ids[0]) + ids[1])])
    m.add("pre-tokenised", {"type": ""}, {"input_ids": [5, 6, 7], "labels": [IGNORE, 6, 7]}, [([5, 6, 7], [IGNORE, 6, 7])])
    m.add("pre-tokenised, padded", {"type": ""},
          {"input_ids": [0, 5, 6, 7, 0], "attention_mask": [0, 1, 1, 1, 0], "labels": [IGNORE, IGNORE, 6, 7, IGNORE]},
          [([5, 6, 7], [IGNORE, 6, 7])])
    make_chat(m)
    lines = ",\n".join(json.dumps(case, ensure_ascii=True) for case in m.cases)
    (OUT / "cases.json").write_text("[\n" + lines + "\n]\n")
    print(f"{len(m.cases)} cases")


if __name__ == "__main__":
    main()

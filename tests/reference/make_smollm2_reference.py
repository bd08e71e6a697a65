#!/usr/bin/env python3
"""Makes tests/reference/data/smollm2/ from the GGUF file of SmolLM2-135M-Instruct.

usage: make_smollm2_reference.py FILE.gguf HF_FOLDER

Writes the model as a Hugging Face folder to HF_FOLDER (538 MB in float32, not for the repository), reads that
folder back, and keeps a few of its logits and its greedy answers under data/smollm2/.
"""
import json
import os
import shutil
import sys

from reference_common import DATA, IGNORE, save

import torch
from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

FOLDER = os.path.join(DATA, "smollm2")
EXAMPLES = os.path.join(DATA, "..", "..", "..", "examples", "data", "tessera_chat.jsonl")
CHATS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [{"role": "user", "content": "Name three animals that live in the sea."}],
    [{"role": "system", "content": "You answer in one word."},
     {"role": "user", "content": "Which colour is made of blue and yellow?"}],
]
TEXT = ("Mosaics are made of many small tiles, and each tile alone shows little. In 1987 the workshop counted 12,345 of "
        "them; nobody knew who had cut the first.")
COLUMN_STRIDE = 64
NUM_NEW_TOKENS = 40
NUM_ROWS = 80
CONTROL, NORMAL = 3, 1


def field(reader, key):
    return reader.fields[key].contents()


def convert_weights(gguf_file, reader, folder):
    """Transformers' own reading of the GGUF file, saved as a plain folder."""
    quantized = AutoModelForCausalLM.from_pretrained(
        os.path.dirname(gguf_file), gguf_file=os.path.basename(gguf_file), dtype=torch.float32)
    config = LlamaConfig(
        vocab_size=field(reader, "llama.vocab_size"), hidden_size=field(reader, "llama.embedding_length"),
        intermediate_size=field(reader, "llama.feed_forward_length"),
        num_hidden_layers=field(reader, "llama.block_count"),
        num_attention_heads=field(reader, "llama.attention.head_count"),
        num_key_value_heads=field(reader, "llama.attention.head_count_kv"),
        max_position_embeddings=field(reader, "llama.context_length"),
        rms_norm_eps=round(field(reader, "llama.attention.layer_norm_rms_epsilon"), 12),
        rope_parameters={"rope_type": "default", "rope_theta": field(reader, "llama.rope.freq_base")},
        bos_token_id=field(reader, "tokenizer.ggml.bos_token_id"),
        eos_token_id=field(reader, "tokenizer.ggml.eos_token_id"),
        pad_token_id=field(reader, "tokenizer.ggml.padding_token_id"),
        tie_word_embeddings=not any(tensor.name == "output.weight" for tensor in reader.tensors),
        architectures=["LlamaForCausalLM"], dtype="float32")
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(quantized.state_dict())
    model.save_pretrained(folder)


def convert_tokenizer(reader, folder):
    """tokenizer.json of the `smollm` kind: single digits, then the byte-level split of GPT-2."""
    tokens = field(reader, "tokenizer.ggml.tokens")
    types = field(reader, "tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in field(reader, "tokenizer.ggml.merges")]
    assert field(reader, "tokenizer.ggml.pre") == "smollm" and set(types) <= {NORMAL, CONTROL}
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token, kind in zip(tokens, types) if kind == CONTROL])
    assert tokenizer.get_vocab_size() == len(tokens)
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    names = {key: tokens[field(reader, f"tokenizer.ggml.{source}_token_id")] for key, source in
             (("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding"))}
    config = dict(names, tokenizer_class="PreTrainedTokenizerFast", clean_up_tokenization_spaces=False,
                  model_max_length=field(reader, "llama.context_length"),
                  chat_template=field(reader, "tokenizer.chat_template"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)
        file.write("\n")


def chat_ids(tokenizer, messages, add_generation_prompt):
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=add_generation_prompt)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def greedy(model, ids, end):
    """Greedy continuation and the smallest lead of a chosen token over the second."""
    tokens, lead = list(ids), float("inf")
    with torch.no_grad():
        cache, inputs = None, torch.tensor([tokens])
        while len(tokens) < len(ids) + NUM_NEW_TOKENS and tokens[-1] != end:
            output = model(input_ids=inputs, past_key_values=cache, use_cache=True)
            cache, top = output.past_key_values, output.logits[0, -1].topk(2)
            lead = min(lead, float(top.values[0] - top.values[1]))
            tokens.append(int(top.indices[0]))
            inputs = torch.tensor([tokens[-1:]])
    return tokens[len(ids):], lead


def write_rows(tokenizer):
    """The first conversations of the quickstart as pre-tokenised rows, the assistant's turns as labels."""
    with open(EXAMPLES, encoding="utf-8") as source, \
            open(os.path.join(FOLDER, "rows.jsonl"), "w", encoding="utf-8") as target:
        for line in list(source)[:NUM_ROWS]:
            messages = json.loads(line)["messages"]
            ids, labels = [], []
            for index, message in enumerate(messages):
                trained = message["role"] == "assistant"
                upto = chat_ids(tokenizer, messages[:index] if trained else messages[:index + 1], trained)
                labels += [IGNORE] * (len(upto) - len(ids)) if len(upto) > len(ids) else []
                ids = upto if len(upto) > len(ids) else ids
                if trained:  # up to and with the end-of-turn token; the line feed after it is scaffold
                    whole = chat_ids(tokenizer, messages[:index + 1], False)
                    answer = whole[len(ids):]
                    labels += answer[:-1] + [IGNORE]
                    ids = whole
            assert len(ids) == len(labels)
            row = {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}
            target.write(json.dumps(row, separators=(",", ":")) + "\n")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    gguf_file, folder = sys.argv[1:]
    reader = GGUFReader(gguf_file)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    os.makedirs(FOLDER, exist_ok=True)
    convert_weights(gguf_file, reader, folder)
    convert_tokenizer(reader, folder)

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    save({"ids": torch.tensor(ids), "argmax": logits.argmax(-1), "logits_last": logits[-1],
          "logits_columns": logits[:, ::COLUMN_STRIDE],
          "log_sum_exp": logits.logsumexp(-1)},
         os.path.join(FOLDER, "logits.safetensors"), column_stride=COLUMN_STRIDE, format="pt")

    answers = []
    for messages in CHATS:
        prompt = chat_ids(tokenizer, messages, True)
        tokens, lead = greedy(model, prompt, tokenizer.eos_token_id)
        answers.append({"messages": messages, "prompt_ids": prompt, "answer_ids": tokens,
                        "answer": tokenizer.decode(tokens, skip_special_tokens=True), "smallest_lead": lead})
        print(f"{messages[-1]['content']} -> {answers[-1]['answer']!r}, smallest lead {lead:.4f}")
    with open(os.path.join(FOLDER, "greedy.json"), "w", encoding="utf-8") as file:
        json.dump(answers, file, indent=1)
        file.write("\n")
    if os.path.exists(EXAMPLES):
        write_rows(tokenizer)
    loss = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:]))
    print(f"{len(ids)} tokens of plain English: loss {float(loss):.4f} a token")


if __name__ == "__main__":
    main()

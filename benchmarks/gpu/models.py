"""Model folders and data for a GPU's check: shapes alone, as every weight is random."""
import array
import json
import math
import pathlib
import random

VOCABULARY = 512

# Of Qwen2.5, by its config.json; `documents` of 1024 tokens are a step of one micro-batch.
QWEN = {
    "0.5B": {"hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
             "intermediate_size": 4864, "vocab_size": 151936, "tie_word_embeddings": True},
    "1.5B": {"hidden_size": 1536, "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2,
             "intermediate_size": 8960, "vocab_size": 151936, "tie_word_embeddings": True},
    "7B": {"hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
           "intermediate_size": 18944, "vocab_size": 152064, "tie_word_embeddings": False},
    # For a look at the check itself, without a GPU.
    "tiny": {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
             "intermediate_size": 512, "vocab_size": VOCABULARY, "tie_word_embeddings": True},
}


def write_json(path: pathlib.Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=1))


def write_qwen(folder: pathlib.Path, shape: str) -> pathlib.Path:
    """The folder of a Qwen2 model without weights."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", {
        "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0, "max_position_embeddings": 32768, "initializer_range": 0.02, "use_sliding_window": False,
        "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2, **QWEN[shape]})
    return folder


def write_qwen_weights(folder: pathlib.Path, shape: str) -> pathlib.Path:
    """write_qwen() with weights: one block of random bfloat16 numbers over and over, norms of ones."""
    write_qwen(folder, shape)
    model = QWEN[shape]
    hidden, inner, heads = model["hidden_size"], model["intermediate_size"], model["num_attention_heads"]
    keys = hidden // heads * model["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": [model["vocab_size"], hidden], "model.norm.weight": [hidden]}
    if not model["tie_word_embeddings"]:
        shapes["lm_head.weight"] = [model["vocab_size"], hidden]
    for layer in range(model["num_hidden_layers"]):
        for name, size in (("input_layernorm", [hidden]), ("post_attention_layernorm", [hidden]),
                           ("self_attn.q_proj", [hidden, hidden]), ("self_attn.k_proj", [keys, hidden]),
                           ("self_attn.v_proj", [keys, hidden]), ("self_attn.o_proj", [hidden, hidden]),
                           ("mlp.gate_proj", [inner, hidden]), ("mlp.up_proj", [inner, hidden]),
                           ("mlp.down_proj", [hidden, inner])):
            shapes[f"model.layers.{layer}.{name}.weight"] = size
            if name[-6:] in ("q_proj", "k_proj", "v_proj"):
                shapes[f"model.layers.{layer}.{name}.bias"] = size[:1]
    sizes = {name: 2 * math.prod(shape) for name, shape in shapes.items()}
    header, begin = {}, 0
    for name, shape in shapes.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, begin + sizes[name]]}
        begin += sizes[name]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    # Numbers of either sign from 2^-7 to 2^-5; a length that no dimension divides.
    rng = random.Random(5)
    block = array.array("H", [rng.getrandbits(1) << 15 | 0x3c00 + rng.getrandbits(8) for _ in range(999_983)])
    numbers = block.tobytes()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, size in sizes.items():
            if "norm" in name:
                file.write(b"\x80\x3f" * (size // 2))
                continue
            for at in range(0, size, len(numbers)):
                file.write(numbers[:min(len(numbers), size - at)])
    return folder


# Heads of 64; grouped queries where the family has them.
_LLAMA = {"hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
          "intermediate_size": 512, "vocab_size": VOCABULARY, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
          "max_position_embeddings": 4096, "hidden_act": "silu", "initializer_range": 0.02, "bos_token_id": 256,
          "eos_token_id": 257}
FAMILIES = {
    "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "tie_word_embeddings": True, **_LLAMA},
    "qwen2": {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": False,
              "use_sliding_window": False, **_LLAMA},
    "gpt2": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 256, "n_layer": 3, "n_head": 4,
             "n_inner": 512, "n_positions": 4096, "n_ctx": 4096, "vocab_size": VOCABULARY, "layer_norm_epsilon": 1e-5,
             "activation_function": "gelu_new", "initializer_range": 0.02, "tie_word_embeddings": True,
             "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "bos_token_id": 256, "eos_token_id": 257},
}


def _byte_names() -> list[str]:
    """What byte-level tokenizers call the 256 bytes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names, next_name = {}, 256
    for byte in range(256):
        if byte in shown:
            names[byte] = chr(byte)
        else:
            names[byte], next_name = chr(next_name), next_name + 1
    return [names[byte] for byte in range(256)]


def write_tiny(folder: pathlib.Path, family: str) -> pathlib.Path:
    """A model of a few million random weights, with a tokenizer of bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", FAMILIES[family])
    special = ["<|bos|>", "<|eos|>"]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    write_json(folder / "tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": 256 + i, "content": name, **flags} for i, name in enumerate(special)],
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {name: i for i, name in enumerate(_byte_names())}, "merges": []}})
    write_json(folder / "tokenizer_config.json", {"bos_token": special[0], "eos_token": special[1], "pad_token": special[1]})
    return folder


def write_rows(path: pathlib.Path, count: int = 64, seed: int = 7) -> pathlib.Path:
    """Tokenised documents of 1 to 600 tokens that repeat themselves, so that a model learns; every second one has labels
    on its later half alone."""
    numbers = random.Random(seed)
    with path.open("w") as file:
        for row in range(count):
            length = numbers.choice([numbers.randint(2, 40), numbers.randint(40, 600)])
            period = [numbers.randrange(256) for _ in range(numbers.randint(3, 12))]
            ids = [period[i % len(period)] for i in range(length)]
            labels = ids if row % 2 == 0 else [-100] * (length // 2) + ids[length // 2:]
            file.write(json.dumps({"input_ids": ids, "attention_mask": [1] * length, "labels": labels}) + "\n")
    return path

#!/usr/bin/env python3
"""Makes tests/reference/data/seq2seq/<name>/: a tiny random T5 and Transformers' numbers for it.

Each folder is a Hugging Face model folder plus reference.safetensors: `source.N` and `target.N` of three documents,
and in float64 `logits.N` of the target's positions, the sum `loss` of the losses of all target tokens, `grad.PARAMETER`
of that sum, and `greedy.N`, the tokens that greedy decoding makes of the source, and `penalized.N`, with a repetition
penalty of 1.5. `flan` has `buckets.both` and `buckets.before`, the buckets of the distances -300 to 300. "lora" names the layers of an adapter
that PEFT makes for the model, in the folder adapter/, with its `logits_lora.N`.
usage: make_seq2seq_reference.py [NAME...]
"""
import json
import os
import shutil
import sys

from make_training_reference import save_adapter
from reference_common import DATA, everything_in_float64, save

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForSeq2SeqLM

# The first source, and the second target, are longer than the largest distance of most models here.
LENGTHS = ((41, 7), (3, 34), (12, 5))
NUM_GREEDY_TOKENS = 12
PENALTY = 1.5

T5 = dict(architectures=["T5ForConditionalGeneration"], model_type="t5", d_model=14, d_kv=6, d_ff=22, num_heads=3,
          num_layers=2, vocab_size=37, relative_attention_num_buckets=8, relative_attention_max_distance=20,
          dropout_rate=0.1, layer_norm_epsilon=1e-6, initializer_factor=1.0, is_encoder_decoder=True, use_cache=True,
          pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, torch_dtype="float32")

MODELS = {
    # As the first T5: scaled logits of the embedding, ReLU.
    "t5": dict(lora=["q", "v"], config=dict(T5, feed_forward_proj="relu")),
    # As T5 1.1 and Flan-T5: a head of its own, gated GELU; other numbers of layers, default buckets.
    "flan": dict(lora=["q", "k", "v", "o", "wi_0", "wi_1", "wo"], own_head=True, config=dict(
        {key: value for key, value in T5.items() if not key.startswith("relative_")}, feed_forward_proj="gated-gelu",
        tie_word_embeddings=False, num_layers=3, num_decoder_layers=1, d_kv=5, layer_norm_epsilon=1e-3)),
    # As Transformers 5 saves them: what is tied and what is scaled are two keys.
    "saved": dict(config=dict(T5, feed_forward_proj="gated-silu", scale_decoder_outputs=False, tie_word_embeddings=True,
                              num_decoder_layers=3, decoder_start_token_id=5, relative_attention_num_buckets=6,
                              relative_attention_max_distance=17)),
    "gelu": dict(config=dict(T5, feed_forward_proj="gelu", num_layers=1, d_model=12, num_heads=5, d_kv=4)),
    # Its config says that the head is not tied, but the files have none.
    "mt5": dict(config=dict(T5, architectures=["MT5ForConditionalGeneration"], model_type="mt5",
                            feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
    # As Google's: its head is its own, and Transformers 5 scales the logits all the same.
    "umt5": dict(lora=["q", "v", "wi_1"], own_head=True, config=dict(
        T5, architectures=["UMT5ForConditionalGeneration"], model_type="umt5", feed_forward_proj="gated-gelu",
        tie_word_embeddings=False, num_decoder_layers=3)),
}


def randomize(model, generator):
    """Gives every parameter, norms and biases too, values that matter."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 0.8 if "relative" in name or "shared" in name else 0.4 if parameter.dim() > 1 else 0.2
            around = 1.0 if "layer_norm" in name else 0.0
            parameter.copy_(around + scale * torch.randn(parameter.shape, generator=generator))


def give_own_head(model, generator):
    head = torch.nn.Parameter(0.3 * torch.randn(model.lm_head.weight.shape, generator=generator))
    model.lm_head.weight = head


def logits_of(model, source, target):
    return model(input_ids=source[None], labels=target[None], use_cache=False)


def greedy(model, source, penalty=1.0):
    """The tokens before the end token. Transformers' cache has no room for a decoder deeper than the encoder."""
    out = model.generate(source[None], repetition_penalty=penalty, max_new_tokens=NUM_GREEDY_TOKENS, do_sample=False, num_beams=1, use_cache=False,
                         decoder_start_token_id=model.config.decoder_start_token_id, output_scores=True,
                         return_dict_in_generate=True)
    made = out.sequences[0][1:]
    for scores in out.scores:
        best = scores[0].topk(2).values
        assert best[0] - best[1] > 1e-4, "two tokens are near a tie"
    return made[made != model.config.eos_token_id]


def make_adapter(folder, layers, name, documents, generator):
    """Saves a random adapter beside the model; returns the logits with it, in float64."""
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    adapted = get_peft_model(model, LoraConfig(r=3, lora_alpha=6, lora_dropout=0.0, bias="none",
                                               target_modules=list(layers), task_type="SEQ_2_SEQ_LM")).eval()
    with torch.no_grad():
        for key, parameter in adapted.named_parameters():
            if "lora_" in key:
                parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator))
    save_adapter(adapted, os.path.join(folder, "adapter"), name)
    state = {key: value.double() for key, value in adapted.state_dict().items()}
    with everything_in_float64(type(model)):
        wide = adapted.double()
        wide.load_state_dict(state)
        with torch.no_grad():
            return [logits_of(wide, *document).logits[0] for document in documents]


def make(name, description):
    folder = os.path.join(DATA, "seq2seq", name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    config_file = os.path.join(folder, "config.json")
    config_json = json.dumps(description["config"], indent=2, sort_keys=True) + "\n"
    with open(config_file, "w", encoding="utf-8") as file:
        file.write(config_json)
    generator = torch.Generator().manual_seed(10 + len(name))
    auto = AutoModelForSeq2SeqLM
    model = auto.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    randomize(model, generator)
    if description.get("own_head"):
        give_own_head(model, generator)
    model.save_pretrained(folder)
    with open(config_file, "w", encoding="utf-8") as file:
        file.write(config_json)
    os.remove(os.path.join(folder, "generation_config.json"))

    config = AutoConfig.from_pretrained(folder)
    draw = lambda length: torch.randint(2, config.vocab_size, (length,), generator=generator)  # noqa: E731
    end = torch.tensor([config.eos_token_id])
    documents = [(torch.cat([draw(a), end]), torch.cat([draw(b), end])) for a, b in LENGTHS]
    tensors, total = {}, 0.0
    with everything_in_float64(type(model)):
        model = auto.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
        assert model.config.decoder_start_token_id == description["config"]["decoder_start_token_id"]
        for index, (source, target) in enumerate(documents):
            out = logits_of(model, source, target)
            total = total + out.loss * len(target)
            tensors |= {f"source.{index}": source, f"target.{index}": target, f"logits.{index}": out.logits[0]}
            tensors[f"greedy.{index}"] = greedy(model, source)
            tensors[f"penalized.{index}"] = greedy(model, source, PENALTY)
        total.backward()
    tensors["loss"] = total
    if name == "flan":
        bucket = type(model.encoder.block[0].layer[0].SelfAttention)._relative_position_bucket
        tensors["buckets.both"] = bucket(torch.arange(-300, 301), bidirectional=True)
        tensors["buckets.before"] = bucket(torch.arange(-300, 301), bidirectional=False)
    is_tied = model.lm_head.weight is model.shared.weight
    assert is_tied != bool(description.get("own_head"))
    tensors |= {f"grad.{key}": value.grad for key, value in model.named_parameters() if value.grad is not None}
    if description.get("lora"):
        with_adapter = make_adapter(folder, description["lora"], name, documents, generator)
        tensors |= {f"logits_lora.{index}": value for index, value in enumerate(with_adapter)}
    assert all(value.dtype in (torch.float64, torch.int64) for value in tensors.values())
    save(tensors, os.path.join(folder, "reference.safetensors"), format="pt")
    for file in os.listdir(folder):
        if os.path.isfile(os.path.join(folder, file)):
            os.chmod(os.path.join(folder, file), 0o644)
    size = sum(os.path.getsize(os.path.join(folder, file)) for file in os.listdir(folder))
    assert size < 300_000, f"{name} takes {size} bytes"
    print(f"{name}: {size} bytes, loss {total.item():.6f}, greedy "
          f"{[tensors[f'greedy.{i}'].tolist() for i in range(len(LENGTHS))]}", flush=True)


def main():
    torch.use_deterministic_algorithms(True)
    for name in sys.argv[1:] or list(MODELS):
        make(name, MODELS[name])


if __name__ == "__main__":
    main()

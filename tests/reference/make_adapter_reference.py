#!/usr/bin/env python3
"""Makes tests/reference/data/adapters/: 10-step curves of PEFT's adapters on a tiny Llama, one of each kind.

For each kind: <kind>.json holds the recipe keys, the options and the curve in float32 and (where PEFT can) in
float64; <kind>_initial/ is the adapter that the run starts from, unless Tessera has to make it itself;
<kind>.safetensors holds logits before and after the run, merged too; combined.safetensors those of two adapters. Models with experts have a small
vocabulary and read rows_61.jsonl, the training rows with the ids modulo 61.
"""
import argparse
import copy
import json
import os

from make_training_reference import (ROWS_FILE, load_model, logits_of, read_rows, save_adapter, train,
                                     write_json)
from reference_common import DATA, everything_in_float64, save
from restarts import jagged, restart

import torch
from safetensors.torch import load_file
from peft import (IA3Config, LNTuningConfig, LoraConfig, PeftModel, PromptTuningConfig, VeraConfig,
                  get_peft_model)
from transformers import AutoConfig, AutoModelForCausalLM

FOLDER = os.path.join(DATA, "adapters")
ROWS_61 = os.path.join(FOLDER, "rows_61.jsonl")
LINEAR_LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
MODEL = "llama3"


def lora(**changes):
    settings = dict(r=4, lora_alpha=8, lora_dropout=0.0, bias="none", target_modules=list(LINEAR_LAYERS),
                    task_type="CAUSAL_LM")
    settings.update(changes)
    return LoraConfig(**settings)


def vera(**changes):
    settings = dict(r=12, projection_prng_key=5, d_initial=0.3, task_type="CAUSAL_LM",
                    target_modules=["q_proj", "v_proj", "up_proj", "down_proj"])
    settings.update(changes)
    return VeraConfig(**settings)


# kind: (config, base model, keys of a recipe that starts the adapter itself; None = from <kind>_initial)
KINDS = {
    "selection": (lora(rank_pattern={"k_proj": 2, r".*\.mlp\..*": 3}, alpha_pattern={"1.mlp.up_proj": 5.0},
                       layers_to_transform=[1, 2], exclude_modules=["o_proj"], use_rslora=True), MODEL, None),
    "dora": (lora(use_dora=True), MODEL, None),
    "lora_bias": (lora(lora_bias=True, target_modules=["q_proj", "k_proj", "v_proj"]), "qwen2", None),
    "pissa": (lora(init_lora_weights="pissa"), MODEL, "pissa"),
    "olora": (lora(init_lora_weights="olora"), MODEL, "olora"),
    "ia3": (IA3Config(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj", "up_proj", "down_proj"],
                      feedforward_modules=["up_proj", "down_proj"]), "qwen2", None),
    "ln_tuning": (LNTuningConfig(task_type="CAUSAL_LM", target_modules=["input_layernorm", "norm"]), MODEL, None),
    # The head of llama2 has a weight of its own, that of qwen2 is the embedding.
    "tokens": (lora(trainable_token_indices=[7, 3, 20, 11]), "llama2", None),
    "tokens_tied": (lora(trainable_token_indices=[7, 3, 20, 11]), "qwen2", None),
    "vera": (vera(), MODEL, None),
    "vera_generated": (vera(save_projection=False, layers_to_transform=[0, 2]), MODEL, None),
    # All experts of a layer in one parameter: two of them nest in PEFT, in gpt-oss they are transposed.
    "experts": (lora(target_modules=["q_proj"], use_rslora=True, alpha_pattern={"experts.gate_up_proj": 5},
                     rank_pattern={r".*\.experts\.down_proj": 3},
                     target_parameters=["experts.down_proj", "mlp.experts.gate_up_proj"]), "mixtral", None),
    "experts_down": (lora(target_modules=[], target_parameters=["mlp.experts.down_proj"]), "qwen3_moe", None),
    "experts_gpt_oss": (lora(target_modules=[], target_parameters=["experts.down_proj", "experts.gate_up_proj"]),
                        "gpt_oss", None),
    "prompt": (PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=5), MODEL, None),
    # Restarts before steps 5 and 9; the result is a whole model.
    "relora": (lora(), MODEL, None),
    "pissa_dora": (lora(init_lora_weights="pissa", use_dora=True), MODEL, "pissa"),
}


RELORA = dict(seed=42, learning_rate=1e-2, relora_prune_ratio=0.8, jagged_restart_steps=4, jagged_restart_warmup_steps=2,
              jagged_restart_anneal_steps=1)


def train_kind(model, rows, options):
    if "jagged_restart_steps" not in options:
        return train(model, rows, options)

    def before_step(step, optimizer):
        if step > 0 and step % options["jagged_restart_steps"] == 0:
            restart(model, optimizer, step, options)

    return train(model, rows, options, lambda schedule: jagged(schedule, options), before_step)


def perturb(model):
    """Values under which every part of the adapter has an effect from the first step."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for key, value in model.named_parameters():
            if "lora_B" in key:
                value.copy_(0.05 * torch.randn(value.shape, generator=generator))
            elif "vera_lambda_b" in key:
                value.copy_(0.3 * torch.randn(value.shape, generator=generator))
            elif "trainable_tokens" in key:
                value.add_(0.05 * torch.randn(value.shape, generator=generator))
            elif "magnitude" in key or "ia3" in key or "ln_tuning" in key:
                value.mul_(1 + 0.1 * torch.randn(value.shape, generator=generator))


def write_small_rows():
    """The first 40 rows, which ten steps take, for models with 61 tokens."""
    with open(ROWS_61, "w", encoding="utf-8") as file:
        for row in read_rows(ROWS_FILE)[:40]:
            row["input_ids"] = [token % 61 for token in row["input_ids"]]
            row["labels"] = [token % 61 if token >= 0 else token for token in row["labels"]]
            file.write(json.dumps(row) + "\n")


def load_base(name):
    folder = os.path.join(DATA, "models", name)
    if AutoConfig.from_pretrained(folder).model_type not in ("gpt_oss", "mixtral", "qwen3_moe"):
        return load_model(folder)
    # Grouped products need longer rows than those of the tiny experts.
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                experts_implementation="eager")


def load_adapter(base, kind, initial, **changes):
    """The adapter, to be trained. PEFT itself loads prompts for inference alone."""
    if kind != "prompt":
        return PeftModel.from_pretrained(base, initial, is_trainable=True, **changes)
    model = get_peft_model(base, copy.deepcopy(KINDS[kind][0]), **changes)
    rows = load_file(os.path.join(initial, "adapter_model.safetensors"))["prompt_embeddings"]
    model.prompt_encoder["default"].embedding.weight.data.copy_(rows)
    return model


def wide_curve(kind, model_name, rows, options, initial):
    folder = os.path.join(DATA, "models", model_name)
    narrow = load_base(model_name)
    with everything_in_float64(type(narrow)):
        model = AutoModelForCausalLM.from_config(narrow.config, dtype=torch.float64)
        model.load_state_dict({key: value.double() for key, value in narrow.state_dict().items()})
        model = load_adapter(model, kind, initial, autocast_adapter_dtype=False)
        model.double()
        return train_kind(model, rows, options)


def make(kind, options):
    config, model_name, start = KINDS[kind]
    options = dict(options, model=model_name, **(RELORA if kind == "relora" else {}))
    if kind.startswith("experts"):
        write_small_rows()
        options["rows"] = "adapters/rows_61.jsonl"
    rows = read_rows(os.path.join(DATA, options.get("rows", ROWS_FILE)))
    ids = rows[0]["input_ids"]
    base_name = f"tests/reference/data/models/{model_name}"
    initial = os.path.join(FOLDER, f"{kind}_initial")
    torch.manual_seed(7)
    model = get_peft_model(load_base(model_name), copy.deepcopy(config))
    if start is None:
        perturb(model)
        save_adapter(model, initial, base_name)
        model = load_adapter(load_base(model_name), kind, initial)
    tensors = {"ids": torch.tensor(ids), "logits_initial": logits_of(model, ids)}
    curve = train_kind(model, rows, options)
    # In float64, PEFT draws other projections, which it reads where they are saved.
    if start is None and getattr(config, "save_projection", True):
        for step, wide in zip(curve, wide_curve(kind, model_name, rows, options, initial)):
            step["loss_f64"], step["grad_norm_f64"] = wide["loss"], wide["grad_norm"]
    tensors["logits_final"] = logits_of(model, ids)
    if kind not in ("prompt", "relora"):
        tensors["logits_merged"] = logits_of(copy.deepcopy(model).merge_and_unload(), ids)
    save(tensors, os.path.join(FOLDER, f"{kind}.safetensors"), format="pt")
    if start is not None:
        options["peft_init_lora_weights"] = start
        options["use_dora"] = config.use_dora
    write_json(os.path.join(FOLDER, f"{kind}.json"), {"options": options, "steps": curve})


def make_combined():
    """Logits of add_weighted_adapter() for two adapters of unequal ranks (cat) and of equal ones (linear)."""
    ids = read_rows(ROWS_FILE)[0]["input_ids"]
    tensors = {"ids": torch.tensor(ids)}
    folders = {"a": os.path.join(DATA, "training", "lora_initial"), "b": os.path.join(FOLDER, "selection_initial"),
               "c": os.path.join(DATA, "training", "lora_final")}
    for kind, names in (("cat", ["a", "b"]), ("linear", ["a", "c"])):
        model = PeftModel.from_pretrained(load_base(MODEL), folders[names[0]], adapter_name=names[0])
        model.load_adapter(folders[names[1]], adapter_name=names[1])
        model.add_weighted_adapter(names, [0.75, -0.5], "both", combination_type=kind)
        model.set_adapter("both")
        tensors[f"logits_{kind}"] = logits_of(model, ids)
    save(tensors, os.path.join(FOLDER, "combined.safetensors"), format="pt")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", help="default: all")
    arguments = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    os.makedirs(FOLDER, exist_ok=True)
    options = dict(max_steps=10, micro_batch_size=2, gradient_accumulation_steps=2, warmup_steps=2,
                   learning_rate=1e-2, adam_beta1=0.9, adam_beta2=0.999, adam_epsilon=1e-8, weight_decay=0.1,
                   max_grad_norm=1.0)
    for kind in arguments.kinds or [*KINDS, "combined"]:
        print(kind, flush=True)
        make_combined() if kind == "combined" else make(kind, options)


if __name__ == "__main__":
    main()

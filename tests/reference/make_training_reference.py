#!/usr/bin/env python3
"""Makes tests/reference/data/training/: 20-step curves of a full finetune and of a LoRA finetune.

Without arguments it writes everything in that folder from the tiny models of data/models/. With --model and
--rows it trains another model on pre-tokenised rows and writes the curve alone, in the same form.

Both take the rows in file order, without packing; micro-batches are padded on the right. The loss of an
optimizer step is the cross-entropy summed over its label tokens, divided by their number.
"""
import argparse
import copy
import json
import os
import shutil

from reference_common import DATA, IGNORE, everything_in_float64, num_label_tokens, save

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig, get_cosine_schedule_with_warmup

LINEAR_LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
FOLDER = os.path.join(DATA, "training")
ROWS_FILE = os.path.join(FOLDER, "rows.jsonl")
NUM_ROWS, VOCAB_SIZE = 80, 97


def write_rows(path):
    """Rows that can be learned: each token follows from the last one, but for some noise."""
    generator = torch.Generator().manual_seed(2026)

    def draw(low, high):
        return int(torch.randint(low, high, (1,), generator=generator))

    with open(path, "w", encoding="utf-8") as file:
        for index in range(NUM_ROWS):
            length = draw(5, 25)
            ids = [draw(3, VOCAB_SIZE)]
            while len(ids) < length:
                follows = (ids[-1] * 5 + 11) % (VOCAB_SIZE - 3) + 3
                ids.append(draw(3, VOCAB_SIZE) if draw(0, 8) == 0 else follows)
            # A long prompt leaves some rows with a single label; rows 8 to 11 make a step with few.
            prompt = length - 1 if index % 16 in (8, 9, 10) else draw(1, length // 2 + 1)
            labels = [IGNORE] * prompt + ids[prompt:]
            if index % 5 == 0 and length - prompt > 3:
                labels[prompt + 1] = IGNORE
            row = {"input_ids": ids, "attention_mask": [1] * length, "labels": labels}
            file.write(json.dumps(row) + "\n")


def read_rows(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def collate(rows):
    length = max(len(row["input_ids"]) for row in rows)

    def pad(key, value):
        return torch.tensor([row[key] + [value] * (length - len(row[key])) for row in rows])

    return pad("input_ids", 0), pad("attention_mask", 0), pad("labels", IGNORE)


def parameter_groups(model, weight_decay):
    """No decay on norms and biases, that is on parameters of one dimension."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [{"params": [p for p in trained if p.dim() > 1], "weight_decay": weight_decay},
            {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0}]


def train(model, rows, options, change_schedule=None, before_step=None):
    """`change_schedule` takes the schedule and returns another one; `before_step` takes a step and the optimizer."""
    model.train()
    optimizer = torch.optim.AdamW(parameter_groups(model, options["weight_decay"]), lr=options["learning_rate"],
                                  betas=(options["adam_beta1"], options["adam_beta2"]),
                                  eps=options["adam_epsilon"])
    scheduler = get_cosine_schedule_with_warmup(optimizer, options["warmup_steps"], options["max_steps"])
    if change_schedule is not None:
        scheduler = change_schedule(scheduler)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    micro, accumulation = options["micro_batch_size"], options["gradient_accumulation_steps"]
    rows_a_step = micro * accumulation
    assert len(rows) >= rows_a_step * options["max_steps"], "too few rows for one epoch"

    curve = []
    for step in range(options["max_steps"]):
        step_rows = rows[step * rows_a_step:(step + 1) * rows_a_step]
        batches = [collate(step_rows[i * micro:(i + 1) * micro]) for i in range(accumulation)]
        label_tokens = sum(num_label_tokens(labels) for _, _, labels in batches)
        learning_rate = scheduler.get_last_lr()[0]
        if before_step is not None:
            before_step(step, optimizer)
        loss = 0.0
        optimizer.zero_grad(set_to_none=True)
        for ids, mask, labels in batches:
            # Behind the logits of virtual tokens, if there are some.
            logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, -ids.shape[1]:]
            part = torch.nn.functional.cross_entropy(
                logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORE,
                reduction="sum") / label_tokens
            part.backward()
            loss += part.item()
        grad_norm = torch.nn.utils.clip_grad_norm_(trained, options["max_grad_norm"]).item()
        optimizer.step()
        scheduler.step()
        curve.append({"step": step + 1, "loss": loss, "learning_rate": learning_rate, "grad_norm": grad_norm,
                      "tokens": sum(len(row["input_ids"]) for row in step_rows),
                      "label_tokens": label_tokens})
        print(f"  step {step + 1}: loss {loss:.6f}, lr {learning_rate:.3e}, grad norm {grad_norm:.4f}", flush=True)
    return curve


def load_model(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")


def lora_config(options):
    return LoraConfig(r=options["lora_r"], lora_alpha=options["lora_alpha"], lora_dropout=0.0, bias="none",
                      target_modules=list(LINEAR_LAYERS), task_type="CAUSAL_LM")


def add_adapter(model, options, initial_adapter=None):
    if initial_adapter:
        return PeftModel.from_pretrained(model, initial_adapter, is_trainable=True)
    torch.manual_seed(options["seed"])
    peft_model = get_peft_model(model, lora_config(options))
    return peft_model


def save_adapter(peft_model, folder, base_name):
    """The adapter alone: no model card, and the base by its name instead of a path of this machine."""
    shutil.rmtree(folder, ignore_errors=True)
    peft_model.save_pretrained(folder, save_embedding_layers=False)
    for name in os.listdir(folder):
        if name not in ("adapter_config.json", "adapter_model.safetensors"):
            os.remove(os.path.join(folder, name))
    config_file = os.path.join(folder, "adapter_config.json")
    with open(config_file, encoding="utf-8") as file:
        config = json.load(file)
    config["base_model_name_or_path"] = base_name
    if "target_modules" in config:
        config["target_modules"] = sorted(config["target_modules"])
    with open(config_file, "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2, sort_keys=True)
        file.write("\n")
    for name in os.listdir(folder):
        os.chmod(os.path.join(folder, name), 0o644)


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.write("\n")


def float64_curve(name, rows, options, initial_adapter=None):
    """The same run with everything in float64: how far rounding alone moves the curve."""
    folder = os.path.join(DATA, "models", name)
    narrow = load_model(folder)
    with everything_in_float64(type(narrow)):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float64)
        model.load_state_dict({key: value.double() for key, value in narrow.state_dict().items()})
        if initial_adapter:
            model = PeftModel.from_pretrained(model, initial_adapter, is_trainable=True,
                                              autocast_adapter_dtype=False)
            model.double()
        return train(model, rows, options)


def report(name, options, curve, wide_curve):
    for step, wide in zip(curve, wide_curve):
        step["loss_f64"], step["grad_norm_f64"] = wide["loss"], wide["grad_norm"]
    worst = max(abs(a["loss"] - a["loss_f64"]) / a["loss_f64"] for a in curve)
    worst_norm = max(abs(a["grad_norm"] - a["grad_norm_f64"]) / a["grad_norm_f64"] for a in curve)
    print(f"{name}: loss {curve[0]['loss']:.4f} to {curve[-1]['loss']:.4f}; float32 is within {worst:.1e} of "
          f"float64 (grad norm {worst_norm:.1e})", flush=True)
    write_json(os.path.join(FOLDER, f"{name}.json"), {"options": options, "steps": curve})


def logits_of(model, ids):
    model.eval()
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]


def make_full(options):
    options = dict(options, model="qwen2", learning_rate=1e-2)
    rows = read_rows(ROWS_FILE)
    model = load_model(os.path.join(DATA, "models", options["model"]))
    curve = train(model, rows, options)
    wide = float64_curve(options["model"], rows, options)
    ids = rows[0]["input_ids"]
    tensors = {f"weight.{key}": value for key, value in model.named_parameters()}
    tensors.update(ids=torch.tensor(ids), logits=logits_of(model, ids))
    save(tensors, os.path.join(FOLDER, "full_final.safetensors"), format="pt")
    report("full", options, curve, wide)


def make_lora(options):
    options = dict(options, model="llama3", learning_rate=3e-2, lora_r=4, lora_alpha=8, seed=7)
    rows = read_rows(ROWS_FILE)
    base_folder = os.path.join(DATA, "models", options["model"])
    base_name = f"tests/reference/data/models/{options['model']}"
    initial = os.path.join(FOLDER, "lora_initial")
    model = add_adapter(load_model(base_folder), options)
    with torch.no_grad():  # B starts at zero in practice; here it does not, so that step 1 already sees the scale
        generator = torch.Generator().manual_seed(options["seed"])
        for key, value in model.named_parameters():
            if "lora_B" in key:
                value.copy_(0.05 * torch.randn(value.shape, generator=generator))
    save_adapter(model, initial, base_name)

    model = add_adapter(load_model(base_folder), options, initial)
    ids = rows[0]["input_ids"]
    tensors = {"ids": torch.tensor(ids), "logits_initial": logits_of(model, ids)}
    curve = train(model, rows, options)
    tensors["logits_final"] = logits_of(model, ids)
    save_adapter(model, os.path.join(FOLDER, "lora_final"), base_name)
    wide = float64_curve(options["model"], rows, options, initial)
    merged = copy.deepcopy(model).merge_and_unload()
    tensors["logits_merged"] = logits_of(merged, ids)
    name = "model.layers.1.mlp.down_proj.weight"
    tensors[f"merged.{name}"] = merged.state_dict()[name]
    assert (tensors["logits_final"] - tensors["logits_merged"]).abs().max() < 1e-3
    save(tensors, os.path.join(FOLDER, "lora_logits.safetensors"), format="pt")
    report("lora", options, curve, wide)


QUANTISED = {
    "qlora": dict(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=False),
    "qlora_nested": dict(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True),
    "qlora_fp4": dict(load_in_4bit=True, bnb_4bit_quant_type="fp4", bnb_4bit_use_double_quant=False),
    "lora_int8": dict(load_in_8bit=True),
}


def make_quantised(options):
    """The curves of make_lora() over a base that bitsandbytes has quantised, on the processor."""
    options = dict(options, model="llama3", learning_rate=3e-2, lora_r=4, lora_alpha=8, seed=7)
    rows = read_rows(ROWS_FILE)
    folder = os.path.join(DATA, "models", options["model"])
    for name, keys in QUANTISED.items():
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="sdpa", device_map="cpu",
            quantization_config=BitsAndBytesConfig(bnb_4bit_compute_dtype=torch.float32, **keys))
        model = add_adapter(model, options, os.path.join(FOLDER, "lora_initial"))
        curve = train(model, rows, options)
        write_json(os.path.join(FOLDER, f"{name}.json"), {"options": dict(options, **keys), "steps": curve})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="train this Hugging Face folder instead of the tiny models")
    parser.add_argument("--rows", help="pre-tokenised JSONL")
    parser.add_argument("--out", help="where the curve goes, as JSON")
    parser.add_argument("--lora", action="store_true", help="train an adapter on all linear layers")
    parser.add_argument("--init-adapter", help="PEFT folder that the adapter starts from (implies --lora)")
    parser.add_argument("--save-init-adapter", help="write the adapter that the run starts from to this folder")
    parser.add_argument("--train-pad-row", action="store_true",
                        help="do not leave pad_token_id's lookups out of the embedding's gradient, as Transformers does")
    parser.add_argument("--max-steps", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--lora-r", type=int, default=4)
    parser.add_argument("--lora-alpha", type=float, default=8)
    parser.add_argument("--micro-batch-size", type=int, default=2)
    parser.add_argument("--gradient-accumulation-steps", type=int, default=2)
    arguments = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    options = dict(max_steps=arguments.max_steps, micro_batch_size=arguments.micro_batch_size,
                   gradient_accumulation_steps=arguments.gradient_accumulation_steps, warmup_steps=3,
                   lr_scheduler="cosine", optimizer="adamw_torch", adam_beta1=0.9, adam_beta2=0.999,
                   adam_epsilon=1e-8, weight_decay=0.1, max_grad_norm=1.0)
    if arguments.model:
        if not arguments.rows or not arguments.out:
            parser.error("--model needs --rows and --out")
        options.update(learning_rate=arguments.learning_rate)
        model = load_model(arguments.model)
        if arguments.train_pad_row:
            model.get_input_embeddings().padding_idx = None
        if arguments.lora or arguments.init_adapter:
            options.update(lora_r=arguments.lora_r, lora_alpha=arguments.lora_alpha, seed=7)
            model = add_adapter(model, options, arguments.init_adapter)
            if arguments.save_init_adapter:
                save_adapter(model, arguments.save_init_adapter, os.path.basename(arguments.model.rstrip("/")))
        write_json(arguments.out, {"options": options, "steps": train(model, read_rows(arguments.rows), options)})
        return
    os.makedirs(FOLDER, exist_ok=True)
    write_rows(ROWS_FILE)
    make_full(options)
    make_lora(options)
    make_quantised(options)


if __name__ == "__main__":
    main()

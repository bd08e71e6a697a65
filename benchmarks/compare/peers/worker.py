"""What the peers' programs share: arguments, a quiet Transformers, one optimizer step, the answer."""
import argparse
import json
import statistics
import time

import torch
import transformers

transformers.utils.logging.disable_progress_bar()

LEARNING_RATE = 1e-4
MAX_GRAD_NORM = 1.0
IGNORE = -100


def parser(description: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--model", required=True)
    made.add_argument("--threads", type=int, required=True)
    return made


def answer(**fields) -> None:
    """The last line of the output."""
    print(json.dumps(fields), flush=True)


def load(folder: str, dtype: torch.dtype = torch.float32, four_bit: bool = False):
    """With `four_bit` bitsandbytes quantises the linear layers, as Axolotl's qlora has it."""
    keys = {}
    if four_bit:
        keys["quantization_config"] = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=dtype)
        keys["device_map"] = "cpu"
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True, **keys)


def with_lora(model, rank: int):
    """All linear layers but the head, alpha twice the rank: what `tessera bench train --adapter lora` trains."""
    import peft
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear",
                             task_type="CAUSAL_LM")
    return peft.get_peft_model(model, config)


def make_optimizer(model) -> torch.optim.Optimizer:
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LEARNING_RATE)


def train_step(model, optimizer, batch: dict, use_autocast: bool = False, forward=None) -> float:
    """One optimizer step; `forward` replaces the model (its compiled form). Returns the loss."""
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=use_autocast):
        loss = (model if forward is None else forward)(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], MAX_GRAD_NORM)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def timed(work) -> tuple[float, object]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def answer_steps(units: float, seconds: list[float], losses: list[float]) -> None:
    """`units` of work a step; `seconds` of the counted steps."""
    answer(tokens_per_s=units / statistics.median(seconds), step_s=seconds, losses=losses,
           threads=torch.get_num_threads())

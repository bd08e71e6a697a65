"""Training steps of Transformers on a model folder and rows of token ids, on one device: what peers.py compares with.

Full finetunes keep float32 weights and LoRA a frozen base in bfloat16; all compute in bfloat16 (autocast), with a fused
AdamW. The last line of the output is JSON: either figures, or `out_of_memory`.
"""
import argparse
import json
import pathlib
import statistics
import time

import peer_attention
import rows
import torch
import transformers

transformers.utils.logging.disable_progress_bar()
MAX_GRAD_NORM = 1.0


def make_model(options: argparse.Namespace, attention: str):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        options.model, dtype=torch.bfloat16 if options.lora_r > 0 else torch.float32, attn_implementation=attention,
        device_map={"": options.device}, local_files_only=True)
    if options.lora_r > 0:
        import peft
        model = peft.get_peft_model(model, peft.LoraConfig(
            r=options.lora_r, lora_alpha=2 * options.lora_r, lora_dropout=0.0, target_modules="all-linear",
            task_type="CAUSAL_LM"))
    if options.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()


def batch_of(documents: list[rows.Document], packed: bool, device: str) -> dict:
    """One micro-batch: a row for each document, or all in one row without any padding."""
    if not packed:
        return {"input_ids": torch.tensor([ids for ids, _ in documents], device=device),
                "labels": torch.tensor([labels for _, labels in documents], device=device)}
    # What a document begins with is predicted from nothing.
    labels = [label for _, of_one in documents for label in [rows.IGNORE, *of_one[1:]]]
    return {"input_ids": torch.tensor([[token for ids, _ in documents for token in ids]], device=device),
            "labels": torch.tensor([labels], device=device),
            **peer_attention.lengths([len(ids) for ids, _ in documents], device)}


class Clock:
    """Marks on the device's own time line, which nobody waits for until they are read."""

    def __init__(self, device: str) -> None:
        self._on_gpu = device.startswith("cuda")
        self._marks: list = []

    def mark(self) -> None:
        if self._on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def seconds(self) -> list[float]:
        if self._on_gpu:
            torch.cuda.synchronize()
            return [a.elapsed_time(b) / 1e3 for a, b in zip(self._marks, self._marks[1:])]
        return [b - a for a, b in zip(self._marks, self._marks[1:])]


def measure(options: argparse.Namespace) -> dict:
    on_gpu = options.device.startswith("cuda")
    taken = rows.steps(rows.read(options.rows), options.warmup + options.steps, options.accumulation, options.micro_batch,
                       options.packed, options.seq)
    attention = peer_attention.padding_free(options.device) if options.packed else "sdpa"
    model = make_model(options, attention)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=options.rate, weight_decay=0.0, fused=on_gpu)
    forward = torch.compile(model) if options.compile else model
    batches = [[batch_of(documents, options.packed, options.device) for documents in step] for step in taken]

    def step(micro_batches: list[dict]) -> torch.Tensor:
        labels = sum((batch["labels"][:, 1:] != rows.IGNORE).sum() for batch in micro_batches)
        total = torch.zeros((), device=options.device)
        for batch in micro_batches:
            with torch.autocast(options.device.split(":")[0], dtype=torch.bfloat16):
                loss = forward(**batch, num_items_in_batch=labels, use_cache=False).loss
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(trained, MAX_GRAD_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    losses, clock = [], Clock(options.device)
    for number, micro_batches in enumerate(batches):
        if number == options.warmup:
            if on_gpu:
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            clock.mark()
        losses.append(step(micro_batches))
        if number >= options.warmup:
            clock.mark()
    seconds = clock.seconds()
    tokens = [sum(len(ids) for documents in step for ids, _ in documents) for step in taken[options.warmup:]]
    return {
        "tokens_per_s": statistics.median(t / s for t, s in zip(tokens, seconds, strict=True)),
        "losses": [loss.item() for loss in losses],
        "peak_device_live_bytes": torch.cuda.max_memory_allocated() if on_gpu else 0,
        "peak_device_bytes": torch.cuda.max_memory_reserved() if on_gpu else 0,
        "attention": attention, "torch": torch.__version__, "transformers": transformers.__version__}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="a folder with config.json and weights")
    parser.add_argument("--rows", type=pathlib.Path, required=True, help="rows of token ids, JSON Lines")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--micro-batch", type=int, required=True, help="sequences")
    parser.add_argument("--accumulation", type=int, default=1, help="micro-batches of a step")
    parser.add_argument("--seq", type=int, required=True, help="tokens of a sequence")
    parser.add_argument("--packed", action="store_true", help="several documents in a sequence, without padding")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rate", type=float, default=1e-4, help="of learning")
    parser.add_argument("--lora-r", type=int, default=0, help="0: train all weights")
    parser.add_argument("--checkpointing", action="store_true", help="recompute every layer in the backward")
    parser.add_argument("--compile", action="store_true")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    try:
        answer = measure(options)
    except torch.OutOfMemoryError as error:
        answer = {"out_of_memory": str(error).split(". ")[0]}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

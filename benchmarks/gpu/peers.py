"""Training steps of Transformers on a random model and random tokens, on one device: what a GPU's check compares with.

Full finetunes keep float32 weights and compute in bfloat16 (autocast); LoRA keeps a frozen base in bfloat16. The last
line of the output is JSON.
"""
import argparse
import json
import statistics
import time

import torch
import transformers


def make_model(options: argparse.Namespace):
    config = transformers.AutoConfig.from_pretrained(options.model, local_files_only=True)
    dtype = torch.bfloat16 if options.lora_r > 0 else torch.float32
    with torch.device(options.device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    if options.lora_r > 0:
        import peft
        model = peft.get_peft_model(model, peft.LoraConfig(
            r=options.lora_r, lora_alpha=2 * options.lora_r, lora_dropout=0.0, target_modules="all-linear",
            task_type="CAUSAL_LM"))
    return model.train()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="a folder with config.json")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--micro-batch", type=int, required=True)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--lora-r", type=int, default=0, help="0: train all weights")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(42)
    on_gpu = options.device.startswith("cuda")

    model = make_model(options)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=on_gpu)
    forward = torch.compile(model) if options.compile else model
    ids = torch.randint(0, model.config.vocab_size, (options.micro_batch, options.seq), device=options.device)

    def wait() -> None:
        if on_gpu:
            torch.cuda.synchronize()

    def step() -> float:
        with torch.autocast(options.device.split(":")[0], dtype=torch.bfloat16, enabled=options.lora_r == 0):
            loss = forward(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    losses = [step() for _ in range(options.warmup)]
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    seconds = []
    for _ in range(options.steps):
        wait()
        start = time.perf_counter()
        losses.append(step())
        wait()
        seconds.append(time.perf_counter() - start)
    print(json.dumps({
        "tokens_per_s": options.micro_batch * options.seq / statistics.median(seconds),
        "losses": losses,
        "peak_device_live_bytes": torch.cuda.max_memory_allocated() if on_gpu else 0,
        "peak_device_bytes": torch.cuda.max_memory_reserved() if on_gpu else 0,
        "torch": torch.__version__,
        "transformers": transformers.__version__}), flush=True)


if __name__ == "__main__":
    main()

"""Greedy generation by Transformers after a fixed random prompt; the decode phase timed apart."""
import json
import time

import torch
import transformers
import worker


class Clock(transformers.StoppingCriteria):
    """Notes when each new token of the batch is there; stops nothing."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, input_ids, scores, **_kwargs):
        self.times.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


def prompt_of(path: str) -> list[int] | None:
    """None where the other side has not run or does not tell."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.loads(file.read().splitlines()[-1])["prompt"]
    except (OSError, ValueError, LookupError):
        return None


def main() -> None:
    parser = worker.parser(__doc__)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--prompt-tokens", type=int, required=True)
    parser.add_argument("--new-tokens", type=int, required=True)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], required=True)
    parser.add_argument("--first-prompt", help="output of `tessera bench generate --json`: its prompt becomes the first")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(42)
    model = worker.load(options.model, torch.bfloat16 if options.dtype == "bf16" else torch.float32).eval()
    prompts = torch.randint(0, model.config.vocab_size, (options.batch, options.prompt_tokens))
    if options.first_prompt and (prompt := prompt_of(options.first_prompt)) is not None:
        prompts[0] = torch.tensor(prompt)
    model.generation_config = transformers.GenerationConfig(do_sample=False, eos_token_id=None, pad_token_id=0)

    def generate(num_tokens: int) -> tuple[list[float], torch.Tensor]:
        clock = Clock()
        start = time.perf_counter()
        ids = model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=num_tokens,
                             stopping_criteria=transformers.StoppingCriteriaList([clock]))
        return [t - start for t in clock.times], ids

    generate(4)
    times, ids = generate(options.new_tokens)
    if ids.shape[1] != options.prompt_tokens + options.new_tokens:
        raise RuntimeError(f"{ids.shape[1] - options.prompt_tokens} tokens came instead of {options.new_tokens}")
    decoded = options.batch * (options.new_tokens - 1)
    worker.answer(tokens_per_s=decoded / (times[-1] - times[0]), prefill_s=times[0],
                  prompt=prompts[0].tolist(), ids=ids[0, options.prompt_tokens:].tolist())


if __name__ == "__main__":
    main()

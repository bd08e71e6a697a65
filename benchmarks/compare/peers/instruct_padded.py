"""Instruction finetuning with Transformers + PEFT: batches padded to their longest row, the answers trained."""
import random

import alpaca
import torch
import transformers
import worker


def encode(record: dict, tokenizer, longest: int) -> tuple[list[int], list[int]] | None:
    prompt = tokenizer(alpaca.prompt_text(record))["input_ids"]
    response = tokenizer(record["output"], add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    ids = prompt + response
    return None if len(ids) > longest else (ids, [worker.IGNORE] * len(prompt) + response)


def padded(rows: list[tuple[list[int], list[int]]], pad: int) -> dict:
    longest = max(len(ids) for ids, _ in rows)

    def fill(values: list[int], filler: int) -> list[int]:
        return values + [filler] * (longest - len(values))

    return {"input_ids": torch.tensor([fill(ids, pad) for ids, _ in rows]),
            "attention_mask": torch.tensor([fill([1] * len(ids), 0) for ids, _ in rows]),
            "labels": torch.tensor([fill(labels, worker.IGNORE) for _, labels in rows])}


def main() -> None:
    parser = worker.parser(__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--micro-batch", type=int, required=True, help="rows of a batch")
    parser.add_argument("--seq", type=int, required=True, help="longer rows are dropped")
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--lora-r", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model, local_files_only=True)
    rows = [row for record in alpaca.read_records(options.data)
            if (row := encode(record, tokenizer, options.seq)) is not None]
    random.Random(42).shuffle(rows)

    model = worker.with_lora(worker.load(options.model), options.lora_r)
    model.train()
    optimizer = worker.make_optimizer(model)
    seconds, losses, label_tokens, tokens, slots = [], [], 0, 0, 0
    for step in range(options.warmup + options.steps):
        first = step * options.micro_batch
        batch = padded(rows[first:first + options.micro_batch], tokenizer.pad_token_id)
        step_s, loss = worker.timed(lambda: worker.train_step(model, optimizer, batch))
        losses.append(loss)
        if step >= options.warmup:
            seconds.append(step_s)
            # The first label of a row has no token before it to be predicted from.
            label_tokens += int((batch["labels"][:, 1:] != worker.IGNORE).sum())
            tokens += int(batch["attention_mask"].sum())
            slots += batch["input_ids"].numel()
    worker.answer(label_tokens_per_s=label_tokens / sum(seconds), step_s=seconds, losses=losses,
                  label_tokens=label_tokens, tokens=tokens, slots=slots)


if __name__ == "__main__":
    main()

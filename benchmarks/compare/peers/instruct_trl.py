"""Instruction finetuning with TRL's SFTTrainer: packed rows, LoRA, the answers trained."""
import time

import alpaca
import datasets
import peft
import torch
import transformers
import trl
import worker


class Trainer(trl.SFTTrainer):
    """Counts the labels of each step's batch."""

    label_tokens: list[int] = []
    tokens: list[int] = []

    def compute_loss(self, model, inputs, *args, **kwargs):
        labels = inputs["labels"]
        Trainer.label_tokens.append(int((labels[:, 1:] != worker.IGNORE).sum()))
        Trainer.tokens.append(labels.numel())
        return super().compute_loss(model, inputs, *args, **kwargs)


class Clock(transformers.TrainerCallback):
    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._start = 0.0

    def on_step_begin(self, *_args, **_kwargs) -> None:
        self._start = time.perf_counter()

    def on_step_end(self, *_args, **_kwargs) -> None:
        self.seconds.append(time.perf_counter() - self._start)


def main() -> None:
    parser = worker.parser(__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--micro-batch", type=int, required=True, help="packed sequences of a batch")
    parser.add_argument("--seq", type=int, required=True)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--lora-r", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    datasets.disable_progress_bars()
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model, local_files_only=True)
    rows = datasets.Dataset.from_list([{"prompt": alpaca.prompt_text(record), "completion": record["output"]}
                                       for record in alpaca.read_records(options.data)])
    config = trl.SFTConfig(
        output_dir=options.out, max_steps=options.warmup + options.steps, per_device_train_batch_size=options.micro_batch,
        gradient_accumulation_steps=1, max_length=options.seq, packing=True, completion_only_loss=True,
        learning_rate=worker.LEARNING_RATE, max_grad_norm=worker.MAX_GRAD_NORM, optim="adamw_torch",
        gradient_checkpointing=False, bf16=False, fp16=False, use_cpu=True, seed=42, save_strategy="no",
        report_to="none", disable_tqdm=True, logging_strategy="no")
    lora = peft.LoraConfig(r=options.lora_r, lora_alpha=2 * options.lora_r, lora_dropout=0.0,
                           target_modules="all-linear", task_type="CAUSAL_LM")
    clock = Clock()
    trainer = Trainer(model=worker.load(options.model), args=config, train_dataset=rows, processing_class=tokenizer,
                      peft_config=lora, callbacks=[clock])
    trainer.train()
    counted = slice(options.warmup, None)
    label_tokens = sum(Trainer.label_tokens[counted])
    worker.answer(label_tokens_per_s=label_tokens / sum(clock.seconds[counted]), step_s=clock.seconds[counted],
                  label_tokens=label_tokens, tokens=sum(Trainer.tokens[counted]))


if __name__ == "__main__":
    main()

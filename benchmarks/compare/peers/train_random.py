"""Training steps of Transformers, or Transformers + PEFT, on random tokens."""
import torch
import worker


def main() -> None:
    parser = worker.parser(__doc__)
    parser.add_argument("--micro-batch", type=int, required=True)
    parser.add_argument("--seq", type=int, required=True)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--lora-r", type=int, default=0, help="0: train all weights")
    parser.add_argument("--autocast", action="store_true", help="bfloat16 autocast over float32 weights")
    parser.add_argument("--four-bit", action="store_true", help="QLoRA: the base in NF4, with double quantisation")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--checkpointing", action="store_true", help="recompute every decoder layer in the backward")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(42)

    model = worker.load(options.model, four_bit=options.four_bit)
    if options.lora_r > 0:
        model = worker.with_lora(model, options.lora_r)
    model.train()
    if options.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = worker.make_optimizer(model)
    forward = torch.compile(model) if options.compile else None
    ids = torch.randint(0, model.config.vocab_size, (options.micro_batch, options.seq))
    batch = {"input_ids": ids, "labels": ids.clone()}
    seconds, losses = [], []
    for step in range(options.warmup + options.steps):
        step_s, loss = worker.timed(
            lambda: worker.train_step(model, optimizer, batch, options.autocast, forward))
        losses.append(loss)
        if step >= options.warmup:
            seconds.append(step_s)
    worker.answer_steps(options.micro_batch * options.seq, seconds, losses)


if __name__ == "__main__":
    main()

"""A small finetuning script of Transformers + PEFT, up to its first optimizer step; writes a line to --done then."""
import json

import torch
import transformers
import worker


def main() -> None:
    parser = worker.parser(__doc__)
    parser.add_argument("--data", required=True, help="JSONL of conversations")
    parser.add_argument("--seq", type=int, required=True)
    parser.add_argument("--lora-r", type=int, required=True)
    parser.add_argument("--done", required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model, local_files_only=True)
    with open(options.data, encoding="utf-8") as file:
        conversations = [json.loads(line)["messages"] for line in file]
    rows = [tokenizer(tokenizer.apply_chat_template(messages, tokenize=False), add_special_tokens=False,
                      truncation=True, max_length=options.seq)["input_ids"] for messages in conversations]
    model = worker.with_lora(worker.load(options.model), options.lora_r)
    model.train()
    ids = torch.tensor([rows[0]])
    loss = worker.train_step(model, worker.make_optimizer(model), {"input_ids": ids, "labels": ids.clone()})
    with open(options.done, "w", encoding="utf-8") as file:
        file.write(json.dumps({"step": 1, "loss": loss, "tokens": ids.numel()}) + "\n")


if __name__ == "__main__":
    main()

"""Everyone who runs: how each is started, and where its figure is."""
import json
import pathlib

from compare import context as sizes
from compare import readers
from compare.context import Context
from compare.model import Contestant


def _recipe(folder: pathlib.Path, **keys) -> str:
    """Writes a recipe (JSON is YAML) whose output goes to `folder`/out; returns its path."""
    keys.update(output_dir=str(folder / "out"), save_final=False, logging_steps=1, learning_rate=1e-4,
                optimizer="adamw_torch", max_grad_norm=1.0, lr_scheduler="constant", seed=42)
    path = folder / "recipe.yaml"
    path.write_text(json.dumps(keys, indent=1), encoding="utf-8")
    return str(path)


def _lora() -> dict:
    return {"adapter": "lora", "lora_r": sizes.LORA_R, "lora_alpha": 2 * sizes.LORA_R, "lora_target_linear": True}


def _training(context: Context) -> list[Contestant]:
    batch, seq = str(sizes.TRAIN_MICRO_BATCH), str(sizes.TRAIN_SEQ)
    steps = ["--seq", seq, "--steps", str(sizes.TRAIN_STEPS)]
    rate = readers.field("tokens_per_s")

    def ours(key: str, label: str, adapter: str, dtype: str, checkpointing: str = "false", *more: str) -> Contestant:
        command = [str(context.program), "bench", "train", "--model", str(context.model), "--micro-batch", batch, *steps,
                   "--adapter", adapter, "--lora-r", str(sizes.LORA_R), "--dtype", dtype,
                   "--gradient-checkpointing", checkpointing, "--json", *more]
        return Contestant(key, label, lambda _: command, rate, context.cores)

    def theirs(key: str, label: str, *more: str) -> Contestant:
        command = [str(context.python), str(context.workers / "train_random.py"), "--model", str(context.model),
                   "--threads", str(context.cores), "--micro-batch", batch, *steps, "--warmup", str(sizes.WARMUP_STEPS),
                   *more]
        return Contestant(key, label, lambda _: command, rate, context.cores, needs_preparation="--compile" in more)

    lora = ("--lora-r", str(sizes.LORA_R))
    return [
        ours("ours-full-fp32", "Tessera fp32", "none", "fp32"),
        ours("ours-full-bf16", "Tessera bf16", "none", "bf16"),
        ours("ours-full-bf16-mlp", "Tessera bf16, mlp", "none", "bf16", "mlp"),
        ours("ours-full-bf16-blocks", "Tessera bf16, blocks", "none", "bf16", "true"),
        ours("ours-lora-fp32", "Tessera LoRA fp32", "lora", "fp32"),
        ours("ours-lora-bf16", "Tessera LoRA bf16", "lora", "bf16"),
        ours("ours-qlora-fp32", "Tessera QLoRA fp32", "lora", "fp32", "false", "load_in_4bit=true"),
        theirs("transformers-fp32", "Transformers fp32"),
        theirs("transformers-bf16", "Transformers bf16 autocast", "--autocast"),
        theirs("transformers-bf16-blocks", "Transformers bf16 autocast, gradient checkpointing", "--autocast",
               "--checkpointing"),
        theirs("peft-fp32", "PEFT fp32", *lora),
        theirs("peft-compiled", "PEFT fp32 compiled", *lora, "--compile"),
        theirs("peft-bf16", "PEFT bf16 autocast", *lora, "--autocast"),
        theirs("peft-qlora", "PEFT + bitsandbytes NF4", *lora, "--four-bit"),
    ]


def _ranks(context: Context) -> list[Contestant]:
    """Every way to use several ranks, and PyTorch's."""
    rate = readers.field("tokens_per_s")
    made = []
    for way in sizes.WAYS:
        threads = max(1, context.cores // way.ranks)
        steps = ["--micro-batch", str(way.micro_batch), "--seq", str(way.seq), "--steps", str(sizes.TRAIN_STEPS)]
        ours = [str(context.program), "bench", "train", "--model", str(context.model), *steps, "--adapter", "none",
                "--dtype", "fp32", "--nproc", str(way.ranks), "--json", *way.keys]
        theirs = [str(context.python), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(way.ranks),
                  str(context.workers / "train_ranks.py"), "--way", way.peer, "--model", str(context.model), "--threads",
                  str(threads), *steps, "--micro-batches", str(way.micro_batches), "--warmup", str(sizes.WARMUP_STEPS)]
        made += [Contestant(f"ours-{way.key}", f"Tessera, {way.ranks} ranks", lambda _, command=ours: command, rate, threads),
                 Contestant(way.peer, way.label, lambda _, command=theirs: command, rate, threads)]
    return made


def _instruction(context: Context) -> list[Contestant]:
    batch, seq = sizes.INSTRUCT_MICRO_BATCH, sizes.INSTRUCT_SEQ
    rate = readers.field("label_tokens_per_s")

    def ours(folder: pathlib.Path) -> list[str]:
        recipe = _recipe(folder, base_model=str(context.model), **_lora(), sequence_len=seq, micro_batch_size=batch,
                         datasets=[{"path": str(context.instructions), "type": "alpaca"}], sample_packing=True,
                         max_steps=sizes.WARMUP_STEPS + sizes.PACKED_STEPS)
        return [str(context.program), "train", recipe]

    def worker(name: str, rows: int, steps: int) -> list[str]:
        return [str(context.python), str(context.workers / name), "--model", str(context.model), "--threads",
                str(context.cores), "--data", str(context.instructions), "--micro-batch", str(rows), "--seq", str(seq),
                "--warmup", str(sizes.WARMUP_STEPS), "--steps", str(steps), "--lora-r", str(sizes.LORA_R)]

    def padded(size: str) -> Contestant:
        rows = sizes.PADDED_ROWS[size]
        command = worker("instruct_padded.py", rows, sizes.PADDED_STEPS[size])
        return Contestant(f"padded-{size}", f"{rows} padded rows a batch", lambda _: command, rate, context.cores)

    packed = worker("instruct_trl.py", batch, sizes.PACKED_STEPS)
    return [Contestant("ours-packed", "Tessera packed", ours, readers.label_rate, context.cores),
            padded("few"), padded("many"),
            Contestant("trl-packed", "TRL packed", lambda folder: [*packed, "--out", str(folder / "out")], rate,
                       context.cores)]


def _generation(context: Context, batch: int) -> list[Contestant]:
    def pair(dtype: str) -> list[Contestant]:
        sizes_given = ["--model", str(context.model), "--batch", str(batch), "--prompt-tokens", str(sizes.PROMPT_TOKENS),
                       "--new-tokens", str(sizes.NEW_TOKENS), "--dtype", dtype]
        rate = readers.decode_rate(context)
        key = f"generate-{batch}-{dtype}"
        ours = [str(context.program), "bench", "generate", *sizes_given, "--json"]
        theirs = [str(context.python), str(context.workers / "generate_text.py"), *sizes_given, "--threads",
                  str(context.cores)]
        # The answer of ours names its first prompt, from which theirs starts too.
        answer = str(context.work / "runs" / f"ours-{key}" / "stdout")
        return [Contestant(f"ours-{key}", f"Tessera {dtype}", lambda _: ours, rate, context.cores),
                Contestant(f"transformers-{key}", f"Transformers {dtype}", lambda _: [*theirs, "--first-prompt", answer],
                           rate, context.cores)]
    return pair("fp32") + pair("bf16")


def _tokenisation(context: Context) -> list[Contestant]:
    rate = readers.field("first_mb_per_s")
    given = ["--model", str(context.model), "--file", str(context.text), "--passes", "1"]
    ours = [str(context.program), "bench", "tokenize", *given, "--json"]

    def theirs(way: str) -> Contestant:
        command = [str(context.python), str(context.workers / "encode_text.py"), *given, "--way", way]
        return Contestant(f"tokenizers-{way}", way, lambda _: command, rate, 1)

    return [Contestant("ours-tokenize", "Tessera", lambda _: ours, rate, 1), theirs("encode"), theirs("encode_batch"),
            theirs("encode_batch_fast")]


def _start_up(context: Context) -> list[Contestant]:
    seq = 256

    def ours(folder: pathlib.Path) -> list[str]:
        recipe = _recipe(folder, base_model=str(context.model), **_lora(), sequence_len=seq, micro_batch_size=1,
                         datasets=[{"path": str(context.chat_rows), "type": "chat_template"}], max_steps=1)
        return [str(context.program), "train", recipe]

    def theirs(folder: pathlib.Path) -> list[str]:
        return [str(context.python), str(context.workers / "first_step.py"), "--model", str(context.model), "--threads",
                str(context.cores), "--data", str(context.chat_rows), "--seq", str(seq), "--lora-r", str(sizes.LORA_R),
                "--done", str(folder / "done")]

    return [Contestant("ours-startup", "Tessera", ours, readers.seconds_watched, context.cores,
                       watched_file="out/metrics.jsonl"),
            Contestant("peft-startup", "Transformers + PEFT script", theirs, readers.seconds_watched, context.cores,
                       watched_file="done")]


def all_contestants(context: Context) -> dict[str, Contestant]:
    found = [*_training(context), *_ranks(context), *_instruction(context), *_generation(context, 1),
             *_generation(context, 8), *_tokenisation(context), *_start_up(context)]
    return {contestant.key: contestant for contestant in found}

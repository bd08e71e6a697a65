"""What the contestants' commands are made of."""
import dataclasses
import json
import pathlib

TRAIN_MICRO_BATCH, TRAIN_SEQ = 2, 512
INSTRUCT_MICRO_BATCH, INSTRUCT_SEQ, INSTRUCT_ROWS = 2, 1024, 512
LORA_R = 16
WARMUP_STEPS = 1
TRAIN_STEPS = 2
PACKED_STEPS = 3
# Rows of a padded batch that hold about as many tokens as a packed one, and fewer rows, which waste less.
PADDED_ROWS = {"many": 8, "few": 2}
PADDED_STEPS = {"many": 3, "few": 8}
PROMPT_TOKENS, NEW_TOKENS = 64, 128


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to use several ranks: our recipe keys, and the peer's name of it."""
    key: str
    peer: str
    label: str
    title: str
    keys: tuple[str, ...] = ()
    ranks: int = 2
    micro_batch: int = 1
    micro_batches: int = 1
    seq: int = TRAIN_SEQ


def _pipeline(schedule: str) -> tuple[str, ...]:
    return ("pipeline_parallel_size=2", "gradient_accumulation_steps=4", f"pipeline_schedule={schedule}")


WAYS = (
    Way("sharded", "fsdp2", "PyTorch FSDP2 over Gloo", "fully sharded"),
    Way("ddp", "ddp", "PyTorch DDP over Gloo", "replicated", ("zero_stage=0",)),
    Way("hsdp", "hsdp", "PyTorch FSDP2 over Gloo, 2 x 2", "sharded over 2 and replicated", ("dp_replicate_size=2",), ranks=4),
    # PyTorch cuts between key/value heads, of which this model has three, and sequences where they divide.
    Way("tp", "tp", "PyTorch parallelize_module over Gloo", "tensor and sequence parallel", ("tensor_parallel_size=3",),
        ranks=3, micro_batch=2, seq=510),
    Way("pp", "1f1b", "torch.distributed.pipelining over Gloo", "pipeline, 1F1B, 4 micro-batches", _pipeline("1f1b"),
        micro_batches=4),
    Way("interleaved", "interleaved", "torch.distributed.pipelining over Gloo",
        "pipeline, interleaved 1F1B, 4 micro-batches", _pipeline("interleaved"), micro_batches=4),
)


@dataclasses.dataclass(frozen=True)
class Context:
    program: pathlib.Path
    python: pathlib.Path
    workers: pathlib.Path
    model: pathlib.Path
    work: pathlib.Path
    chat_rows: pathlib.Path
    cores: int
    # The instruction data that all contestants train on, and its texts, one a line; None: there is none.
    instructions: pathlib.Path | None = None
    text: pathlib.Path | None = None
    # How fast memory is read.
    bytes_per_s: float | None = None


def prepare_texts(data: pathlib.Path, work: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """The first rows of the instruction data as a file of their own, and the texts of all of it as lines."""
    with open(data, encoding="utf-8") as file:
        records = json.load(file)
    work.mkdir(parents=True, exist_ok=True)
    instructions, text = work / "instructions.json", work / "text.txt"
    instructions.write_text(json.dumps(records[:INSTRUCT_ROWS], ensure_ascii=False), encoding="utf-8")
    lines = [record[key] for record in records for key in ("instruction", "input", "output") if record.get(key)]
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return instructions, text

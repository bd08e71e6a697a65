"""What is compared, and what it must come to."""
import dataclasses

OURS, FP8, EAGER, COMPILED, PADDING_FREE = "tessera", "tessera fp8", "eager", "torch.compile", "padding-free"
BF16_BOUND, FP8_BOUND = 2e-2, 5e-2  # largest relative distance of a loss


@dataclasses.dataclass(frozen=True)
class Case:
    """One model and one way to train it. Every contestant takes the same rows from the same weights: micro-batches of
    `documents` sequences of `seq` tokens, one a step."""
    name: str
    part: str
    shape: str  # of models.QWEN
    documents: int
    # How many times as fast as each rival ours is at least; None: the rival is shown alone.
    least: dict[str, float | None]
    seq: int = 1024
    rate: float = 1e-4  # of learning
    lora_r: int = 0  # 0: all weights are trained
    packed: bool = False  # instructions, several in a sequence
    checkpointing: bool = False
    with_fp8: bool = False
    goal: str = ""  # of Tessera, on an H200
    given: str = ""  # figures that others published
    most_memory: float = 0.8  # of EAGER's or PADDING_FREE's

    @property
    def contestants(self) -> list[str]:
        return [OURS, *([FP8] if self.with_fp8 else []), *self.least]

    def bounds_memory(self, rival: str) -> bool:
        return rival in (EAGER, PADDING_FREE)


def _full(shape: str, documents: int, goal: str, given: str) -> Case:
    return Case(f"{shape} full", shape, shape, documents, {EAGER: 1.3, COMPILED: 1.1}, with_fp8=True, goal=goal, given=given)


def _packed(shape: str, documents: int) -> Case:
    return Case(f"{shape} packed", shape, shape, documents, {PADDING_FREE: 1.5}, seq=2048, packed=True)


_LLMQ = "LLM.Q, H100, full, sequence 1024, bf16 / fp8: "
CASES = [
    _full("0.5B", 16, "160k / 180k", _LLMQ + "149k / 164k"), _packed("0.5B", 8),
    _full("1.5B", 8, "62k / 80k", _LLMQ + "58.9k / 73k"), _packed("1.5B", 4),
    Case("7B LoRA", "7B", "7B", 4, {EAGER: 1.3, COMPILED: 1.0}, lora_r=16, with_fp8=True),
    # Float32 weights, gradients and states of 7.6 billion are 113 of its 139 GiB.
    Case("7B full", "7B", "7B", 2, {EAGER: None}, checkpointing=True, goal="15k / 20k", given=_LLMQ + "13.9k / 19.2k"),
]
DRY_CASES = [
    Case("tiny full", "tiny", "tiny", 2, {EAGER: 1.3, COMPILED: 1.1}, seq=256, rate=1e-3, with_fp8=True),
    Case("tiny LoRA", "tiny", "tiny", 2, {EAGER: 1.3}, seq=256, rate=1e-3, lora_r=4),
    Case("tiny packed", "tiny", "tiny", 2, {PADDING_FREE: 1.5}, seq=1024, rate=1e-3, packed=True),
    Case("tiny recomputed", "tiny", "tiny", 2, {EAGER: None}, seq=256, rate=1e-3, checkpointing=True),
]
PARTS = list(dict.fromkeys(case.part for case in CASES))

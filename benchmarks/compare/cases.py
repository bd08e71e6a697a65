"""The cases: who is compared with whom, and the floors."""
from compare.context import WAYS, Way
from compare.model import Bound, Case, Rival


def _floor(*, tiles: float, vectors: float, narrow: float) -> dict[str, float]:
    """Where tile units multiply, where AVX-512 does, and where AVX2 alone does. A floor that is a number holds everywhere."""
    return {"amx": tiles, "avx512": vectors, "avx2": narrow}


def _explain_step(details: dict) -> str:
    gemm_s, step_s = details.get("gemm_s"), details.get("step_s_median")
    if gemm_s is None or step_s is None:
        return "no figure"
    library_s = details.get("library_gemm_s", 0.0)
    return (f"the matrix products alone take {gemm_s:.2f} s of the {step_s:.2f} s step (by LibTorch: {library_s:.2f} s); "
            f"{max(0.0, step_s - gemm_s):.2f} s go to attention, norms, loss, optimizer, memory traffic and waiting")


def _explain_packed(details: dict) -> str:
    if "tokens" not in details:
        return "no figure"
    return (f"matrix products as a share of the median step; {details['label_tokens'] / details['tokens']:.0%} of the tokens "
            "are labels")


def _explain_decode(details: dict) -> str:
    if "limit_tokens_per_s" not in details:
        return "no figure"
    return (f"reading the weights once a step, and the cache, from memory allows {details['limit_tokens_per_s']:.0f} tokens/s here; the rest "
            "is arithmetic and the overhead of small operations")


def _better(names: str, fp32: str, bf16: str, has_fast_bf16: bool, least: Bound = None, memory: float | None = None) -> Rival:
    """The better of a peer's two types. Without units for bfloat16 that is float32: LibTorch then multiplies bfloat16 at a
    tenth of its rate, and a step of the comparison would take minutes. Where `least` is given, the floor is then 1.1."""
    if has_fast_bf16:
        return Rival(f"the better of {names} fp32 and bf16", (fp32, bf16), least, memory)
    return Rival(f"{names} fp32, the better one without units for bf16", (fp32,), None if least is None else 1.1, memory)


def _training(has_fast_bf16: bool) -> list[Case]:
    slow = None if has_fast_bf16 else "the peer's bf16 takes minutes a step here"
    better = _better("Transformers", "transformers-fp32", "transformers-bf16", has_fast_bf16,
                     {"amx": 2.2, "avx512": 1.6}, 0.5)
    return [
        Case("full", "full finetune, fp32", "tokens/s", "ours-full-fp32",
             (Rival("Transformers eager", ("transformers-fp32",), _floor(tiles=1.4, vectors=1.8, narrow=1.25), 0.60),), "full",
             least_sol={"amx": 0.80}, explain=_explain_step),
        Case("full-bf16", "full finetune, bf16 mixed", "tokens/s", "ours-full-bf16",
             (better,), "full", explain=_explain_step),
        Case("full-bf16-mlp", "full finetune, bf16 mixed, ours with gradient_checkpointing: mlp", "tokens/s",
             "ours-full-bf16-mlp", (better,), "full", explain=_explain_step),
        Case("full-bf16-blocks", "full finetune, bf16 mixed, both recompute every block", "tokens/s",
             "ours-full-bf16-blocks",
             (Rival("Transformers bf16 autocast, checkpointing", ("transformers-bf16-blocks",)),), "full",
             explain=_explain_step, unavailable=slow),
        Case("lora", "LoRA on all linear layers, fp32", "tokens/s", "ours-lora-fp32",
             (Rival("Transformers + PEFT eager", ("peft-fp32",), _floor(tiles=1.8, vectors=1.9, narrow=1.35), 0.50),
              Rival("Transformers + PEFT compiled", ("peft-compiled",), 1.3, 0.50)), "lora", explain=_explain_step),
        Case("lora-bf16", "LoRA on all linear layers, bf16 mixed", "tokens/s", "ours-lora-bf16",
             (_better("PEFT", "peft-fp32", "peft-bf16", has_fast_bf16, {"amx": 2.8, "avx512": 2.2}, 0.45),),
             "lora", explain=_explain_step),
        Case("qlora", "QLoRA on all linear layers (NF4, double quantisation), fp32", "tokens/s", "ours-qlora-fp32",
             (Rival("Transformers + PEFT + bitsandbytes", ("peft-qlora",), 2.0, 0.35),), "qlora", explain=_explain_step),
        *(_ranks(way) for way in WAYS),
    ]


def _ranks(way: Way) -> Case:
    floor = _floor(tiles=1.8, vectors=2.2, narrow=1.7) if way.key == "sharded" else 2.0
    return Case(way.key, f"full finetune on {way.ranks} ranks, {way.title}, fp32", "tokens/s", f"ours-{way.key}",
                (Rival(way.label, (way.peer,), floor, 0.55 if way.key == "sharded" else None),), way.key,
                section=None if way.key == "sharded" else "ranks", explain=_explain_step)


def _generation(batch: int, floor: Bound, memory: float | None, has_fast_bf16: bool) -> list[Case]:
    def key(side: str, dtype: str) -> str:
        return f"{side}-generate-{batch}-{dtype}"
    title = f"generation, batch {batch}"
    return [
        Case(f"generate-{batch}", f"{title}, fp32", "tokens/s", key("ours", "fp32"),
             (Rival("Transformers", (key("transformers", "fp32"),), floor, memory),), f"generate-{batch}",
             explain=_explain_decode, must_agree=("prompt", "ids")),
        Case(f"generate-{batch}-bf16", f"{title}, bf16", "tokens/s", key("ours", "bf16"),
             (_better("Transformers", key("transformers", "fp32"), key("transformers", "bf16"), has_fast_bf16),),
             f"generate-{batch}", explain=_explain_decode),
    ]


def all_cases(has_fast_bf16: bool, has_data: bool) -> list[Case]:
    data = None if has_data else "the instruction data is not there (option --data or TESSERA_SHARED_DATA)"
    return [
        *_training(has_fast_bf16),
        Case("instruct", "instruction data, sequence 1024, LoRA, fp32", "label tokens/s", "ours-packed",
             (Rival("Transformers + PEFT padded, as many rows", ("padded-few",), 2.5),
              Rival("Transformers + PEFT padded, as many tokens", ("padded-many",), 2.5, 0.5),
              Rival("TRL packed", ("trl-packed",), 1.6, 0.5)), "instruct", explain=_explain_packed, unavailable=data),
        *_generation(1, _floor(tiles=1.5, vectors=1.5, narrow=2.0), 0.8, has_fast_bf16),
        *_generation(8, None, None, has_fast_bf16),
        Case("tokenize", "tokenisation, one thread", "MB/s", "ours-tokenize",
             (Rival("tokenizers, the best way", ("tokenizers-encode", "tokenizers-encode_batch",
                                                 "tokenizers-encode_batch_fast"), 2.0),), "tokenize", unavailable=data,
             must_agree=("num_ids", "digest")),
        Case("startup", "start-up to the first step, LoRA", "s", "ours-startup",
             (Rival("Transformers + PEFT script", ("peft-startup",)),), "startup", higher_is_better=False),
    ]

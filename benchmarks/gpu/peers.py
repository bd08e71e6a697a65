"""Tessera beside Transformers on one GPU: eager, compiled, and padding-free batches of instructions, in one run.

All take the same rows from the same random weights with the same sizes, in bfloat16 with AdamW, by turns, and each run is a
process of its own. One table says how their tokens/s and peaks of memory compare, how far their losses are apart, and
which of the promised bounds hold. A line is `ok`, `FAIL`, or `not run` with the reason; the exit code is 0 only where
every line is ok, and 3 where nothing failed and some were not run.
"""
import argparse
import json
import os
import pathlib
import shutil
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import models  # noqa: E402
import peer_table  # noqa: E402
import rows  # noqa: E402
from peer_cases import CASES, COMPILED, DRY_CASES, FP8, OURS, PARTS, Case  # noqa: E402
from peer_table import FAIL, NOT_RUN, Taken  # noqa: E402
from running import Failed, NotRun, Runner  # noqa: E402

STEPS = 11  # of each run, those before the counted ones with them
OWN_WARMUP, PEER_WARMUP = 1, 3
LIMIT_S = 240.0  # of one run
OUT_OF_MEMORY = ("out of memory", "E-MEMORY")
# As Tessera has its own allocator set.
PEER_ENV = {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "TOKENIZERS_PARALLELISM": "false"}


def instruction_file() -> pathlib.Path:
    """The first that is there: a bundle's, the shared data's, the repository's own."""
    shared = pathlib.Path(os.environ.get("TESSERA_SHARED_DATA") or HERE.parents[1] / ".." / "shared" / "data")
    places = [HERE / "instructions.json", HERE / "instructions.jsonl", shared / "alpaca_roleplay.json",
              HERE.parent.parent / "examples" / "data" / "tessera_chat.jsonl"]
    return next((place for place in places if place.exists()), places[-1])


class Comparison:
    def __init__(self, options: argparse.Namespace, cases: list[Case]) -> None:
        self.device = options.device
        self.program = str(options.bundle / "bin" / "tessera")
        self.instructions = options.instructions
        self.runner = Runner(options.folder, options.minutes)
        self.cases = cases
        self.taken = {case.name: {name: Taken() for name in case.contestants} for case in cases}

    # What all contestants of a case share.

    def model(self, case: Case) -> pathlib.Path:
        folder = self.runner.folder / f"qwen-{case.shape}"
        if not (folder / "complete").exists():
            for other in self.runner.folder.glob("qwen-*"):  # the largest takes 15 GB
                shutil.rmtree(other)
            models.write_qwen_weights(folder, case.shape)
            (folder / "complete").touch()
        return folder

    def rows(self, case: Case) -> pathlib.Path:
        path = self.runner.folder / f"{case.name.replace(' ', '-')}.jsonl"
        if not path.exists():
            vocabulary = models.QWEN[case.shape]["vocab_size"]
            needed = STEPS * case.documents
            documents = (rows.instructions(self.instructions, vocabulary, case.seq) if case.packed else
                         rows.repeating(needed, case.seq, vocabulary))
            rows.write(path, rows.enough(documents, needed, case.packed, case.seq))
        return path

    def own_command(self, case: Case, name: str) -> list[str]:
        keys = ["shuffle_merged_datasets=false", f"learning_rate={case.rate}"]
        keys += ["sample_packing=true", "sample_packing_sequentially=true"] if case.packed else []
        keys += ["fp8=true"] if name == FP8 else []
        return [self.program, "bench", "train", "--model", str(self.model(case)), "--data", str(self.rows(case)),
                "--device", self.device, "--dtype", "bf16", "--micro-batch", str(case.documents), "--seq", str(case.seq),
                "--steps", str(STEPS - OWN_WARMUP), "--json",
                *(["--adapter", "lora", "--lora-r", str(case.lora_r)] if case.lora_r else []),
                *(["--gradient-checkpointing", "true"] if case.checkpointing else []), *keys]

    def peer_command(self, case: Case, name: str) -> list[str]:
        return [sys.executable, str(HERE / "peer_steps.py"), "--model", str(self.model(case)), "--rows",
                str(self.rows(case)), "--device", self.device, "--micro-batch", str(case.documents), "--seq",
                str(case.seq), "--warmup", str(PEER_WARMUP), "--steps", str(STEPS - PEER_WARMUP),
                "--lora-r", str(case.lora_r), "--rate", str(case.rate), *(["--packed"] if case.packed else []),
                *(["--checkpointing"] if case.checkpointing else []), *(["--compile"] if name == COMPILED else [])]

    # The turns.

    def run(self, case: Case, name: str, turn: int) -> dict:
        """The figures of one run, or {"out_of_memory": ...}. Raises Failed and NotRun."""
        is_ours = name in (OURS, FP8)
        command = self.own_command(case, name) if is_ours else self.peer_command(case, name)
        env = None if is_ours else {**PEER_ENV, "TORCHINDUCTOR_CACHE_DIR": str(self.runner.folder / "inductor")}
        log = f"{case.name}-{name}-{turn}".replace(" ", "-")
        code, text = self.runner.run(log, command, LIMIT_S, env)
        told = text.strip().splitlines() or ["no word"]
        if code != 0:
            found = [line for line in told if any(words in line for words in OUT_OF_MEMORY)]
            if found:
                return {"out_of_memory": found[-1].strip()}
            raise Failed(f"exit code {code}: {([line for line in told if 'rror' in line] or told)[-1].strip()}")
        return json.loads(told[-1])

    def take(self, case: Case, name: str, turn: int) -> None:
        taken = self.taken[case.name][name]
        if taken.failure or taken.out_of_memory:
            return
        start = time.monotonic()
        try:
            found = self.run(case, name, turn)
        except NotRun as error:
            taken.not_run = str(error)
            return
        except Exception as error:  # whatever ended it, the others go on
            if self.runner.left_s() <= 0.0:  # is nobody's fault
                taken.not_run = "no time left to finish"
            else:
                taken.failure = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
            print(f"{case.name} {name}: {taken.failure or taken.not_run}", flush=True)
            return
        if "out_of_memory" in found:
            taken.out_of_memory = found["out_of_memory"]
            print(f"{case.name} {name}: out of memory", flush=True)
            return
        taken.runs.append(found)
        print(f"{case.name} {name}: {found['tokens_per_s']:,.0f} tokens/s ({time.monotonic() - start:.0f} s)", flush=True)

    def all_turns(self, turns: int) -> None:
        """Everybody once before anybody twice; a model's cases together, as only one's weights are on the disk."""
        shapes = list(dict.fromkeys(case.shape for case in self.cases))
        for shape in shapes:
            for turn in range(turns):
                for case in (case for case in self.cases if case.shape == shape):
                    for name in case.contestants:
                        self.take(case, name, turn)

    # What is said of them.

    def lines(self) -> list[peer_table.Line]:
        return [line for case in self.cases for line in peer_table.lines_of(case, self.taken[case.name])]

    def notes(self) -> list[str]:
        notes = [f"{case.name}: {words}" for case in self.cases
                 for words in (case.goal and f"the goal of Tessera's on an H200, bf16 / fp8: {case.goal}",
                               case.given and f"given, not measured here: {case.given}") if words]
        if any(case.packed for case in self.cases):
            notes.append(f"packed: instructions of {self.instructions.name}; padding-free as TRL's collator makes it "
                         "(one row, position_ids and lengths), with the attention that the row names, else sdpa")
        return notes

    def left_out(self, turns: int) -> list[str]:
        told = []
        for case in self.cases:
            for name, taken in self.taken[case.name].items():
                if len(taken.runs) < turns:
                    reason = taken.failure or taken.out_of_memory or taken.not_run or "no time left"
                    told.append(f"{case.name}, {name}: {len(taken.runs)} of {turns} runs ({reason})")
        asked = {case.part for case in self.cases}
        told += [f"part {part}: not asked for" for part in PARTS if part not in asked and asked <= set(PARTS)]
        return told


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gpu_check.sh peers", description=__doc__)
    parser.add_argument("--part", default="", help="models, separated by commas (all); one fits into 10 minutes: " + ", ".join(PARTS))
    parser.add_argument("--turns", type=int, default=3, help="runs of every contestant, by turns")
    parser.add_argument("--minutes", type=float, default=9.0, help="what is not done by then is not run")
    parser.add_argument("--device", default="cuda", help="cuda; cpu: a look at the comparison itself, with a tiny model")
    parser.add_argument("--instructions", type=pathlib.Path, default=instruction_file(),
                        help="alpaca rows (.json) or conversations (.jsonl) for packed cases")
    parser.add_argument("--bundle", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path.cwd() / "gpu-peers", help="for logs, models and rows")
    options = parser.parse_args(arguments)
    options.folder, options.instructions = options.folder.resolve(), options.instructions.resolve()
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    asked = options.part.split(",") if options.part else []
    if unknown := [part for part in asked if part not in PARTS]:
        print(f"gpu_check: no such part: {', '.join(unknown)} (known: {', '.join(PARTS)})", file=sys.stderr)
        return 2
    cases = DRY_CASES if options.device == "cpu" else [case for case in CASES if not asked or case.part in asked]
    comparison = Comparison(options, cases)
    comparison.all_turns(options.turns)
    lines = comparison.lines()
    table = "\n".join([peer_table.render(lines), "", *comparison.notes(), "", "did not run:",
                       *(f"  {words}" for words in comparison.left_out(options.turns) or ["nothing"])])
    (options.folder / "table.txt").write_text(table + "\n")
    (options.folder / "runs.json").write_text(json.dumps(
        {case: {name: taken.runs for name, taken in of_case.items()} for case, of_case in comparison.taken.items()}, indent=1))
    print("\n" + table)
    verdicts = {line.verdict for line in lines}
    return 1 if FAIL in verdicts else 3 if NOT_RUN in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())

"""The command line of benchmarks/compare_versions: our own contestants, run by an older and by a newer program."""
import argparse
import dataclasses
import pathlib
import statistics
import sys

from compare import machine, paths
from compare.contestants import all_contestants
from compare.context import Context, prepare_texts
from compare.model import Contestant, Sample
from compare.runner import Runner

_DESCRIPTION = """Runs every measurement of compare_transformers that is Tessera's own with two programs, alternately, and prints
the ratio of their medians in speed and in peak memory. Run it on a machine that does nothing else."""


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/compare_versions", description=_DESCRIPTION)
    parser.add_argument("before", type=pathlib.Path, help="the older program")
    parser.add_argument("after", type=pathlib.Path, nargs="?", default=paths.PROGRAM, help="the newer (default %(default)s)")
    parser.add_argument("--cases", metavar="A,B", help="only these contestants, such as ours-lora-fp32")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="runs of each program (default 3)")
    parser.add_argument("--model", type=pathlib.Path, default=paths.MODEL, metavar="DIR", help="a Hugging Face folder")
    parser.add_argument("--data", type=pathlib.Path, default=paths.instruction_data(), metavar="FILE",
                        help="alpaca rows for the cases that read data")
    parser.add_argument("--timeout", type=float, default=1800.0, metavar="S", help="longest single run (default 1800)")
    return parser.parse_args(arguments)


def own_contestants(program: pathlib.Path, options: argparse.Namespace) -> dict[str, Contestant]:
    has_data = options.data.is_file()
    instructions, text = prepare_texts(options.data, paths.WORK) if has_data else (None, None)
    context = Context(program=program.resolve(), python=pathlib.Path(sys.executable), workers=paths.WORKERS,
                      model=options.model.resolve(), work=paths.WORK, chat_rows=paths.CHAT_ROWS,
                      cores=machine.usable_cores(), instructions=instructions, text=text)
    needs_data = () if has_data else ("ours-packed", "ours-tokenize")
    return {key: contestant for key, contestant in all_contestants(context).items()
            if key.startswith("ours-") and key not in needs_data}


def row(key: str, before: list[Sample], after: list[Sample]) -> str:
    good = [[sample for sample in taken if sample.value is not None] for taken in (before, after)]
    if not all(good):
        failed = next(sample for taken in (before, after) for sample in taken if sample.value is None)
        return f"| {key} | failed: {failed.failure} | | | | |"
    speed = [statistics.median(sample.value for sample in taken) for taken in good]
    memory = [statistics.median(sample.peak_bytes for sample in taken) / 1e6 for taken in good]
    return (f"| {key} | {speed[0]:.2f} | {speed[1]:.2f} | {speed[1] / speed[0]:.3f} | {memory[0]:.0f} | {memory[1]:.0f} |")


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    sides = {"before": own_contestants(options.before, options), "after": own_contestants(options.after, options)}
    keys = list(sides["before"])
    if options.cases is not None:
        keys = [name.strip() for name in options.cases.split(",") if name.strip()]
        if unknown := [key for key in keys if key not in sides["before"]]:
            print(f"compare_versions: no such case: {', '.join(unknown)} (known: {', '.join(sides['before'])})", file=sys.stderr)
            return 2
    env = machine.environment(None, {})
    runners = {side: Runner({key: dataclasses.replace(value, key=f"{key} {side}") for key, value in own.items()}, env,
                            paths.WORK, options.timeout, lambda text: print(text, flush=True)) for side, own in sides.items()}
    samples: dict[tuple[str, str], list[Sample]] = {(key, side): [] for key in keys for side in sides}
    for key in keys:
        for repetition in range(1, options.repeats + 1):
            # Who goes first changes, so that neither side always finds the warmer machine.
            for side in (tuple(sides) if repetition % 2 else reversed(tuple(sides))):
                samples[key, side].append(runners[side].run_and_tell(key, repetition))
    print("\n| case | before | after | after / before | MB before | MB after |\n|---|---|---|---|---|---|")
    for key in keys:
        print(row(key, samples[key, "before"], samples[key, "after"]))
    return 0 if all(sample.value is not None for taken in samples.values() for sample in taken) else 1

"""The command line of benchmarks/compare_transformers."""
import argparse
import dataclasses
import datetime
import json
import pathlib
import sys

from compare import install, machine, paths, report
from compare.cases import all_cases
from compare.contestants import all_contestants
from compare.context import Context, prepare_texts
from compare.model import Case
from compare.runner import Runner, Samples
from compare.summary import Row, rows_of

_DESCRIPTION = """Runs Tessera and its Python peers alternately on this machine and writes medians, spread, ratios and peak
memory. The peers are installed into build/peers first; Tessera is built and the quickstart's model fetched where they are
not there yet. Results are written after every round. Run it on a machine that does nothing else."""


def _say(text: str) -> None:
    print(text, flush=True)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/compare_transformers", description=_DESCRIPTION,
                                     epilog="docs/benchmarks.md says what each case does and how to read the table.")
    parser.add_argument("--cases", metavar="A,B", help="only these (default: all but those of --ranks; --list names them)")
    parser.add_argument("--ranks", action="store_true", help="the ways to use several ranks, whose results are a section of "
                        "their own")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="runs of every contestant (default 5)")
    parser.add_argument("--model", type=pathlib.Path, metavar="DIR", help="a Hugging Face folder (default: the "
                        "quickstart's SmolLM2-135M-Instruct)")
    parser.add_argument("--data", type=pathlib.Path, default=paths.instruction_data(), metavar="FILE",
                        help="alpaca rows for the cases instruct and tokenize (default: %(default)s)")
    parser.add_argument("--out", type=pathlib.Path, default=paths.ROOT / "benchmarks" / "RESULTS.md", metavar="FILE",
                        help="the tables; the section of this kind of processor is replaced (default %(default)s)")
    parser.add_argument("--raw", type=pathlib.Path, default=paths.WORK / "results.json", metavar="FILE",
                        help="every run, as JSON (default %(default)s)")
    parser.add_argument("--tessera", type=pathlib.Path, metavar="FILE", help="a program that is built already")
    parser.add_argument("--timeout", type=float, default=1800.0, metavar="S", help="longest single run (default 1800)")
    parser.add_argument("--list", action="store_true", help="print the cases and end")
    options = parser.parse_args(arguments)
    if options.repeats < 1:
        parser.error("--repeats must be at least 1")
    return options


def choose(cases: list[Case], names: str | None, section: str | None = None) -> list[Case]:
    """Of one section, or by name. Raises ValueError for a name that is no case."""
    if names is None:
        return [case for case in cases if case.section == section]
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    known = {case.key: case for case in cases}
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError(f"no such case: {', '.join(unknown)} (known: {', '.join(known)})")
    return [case for case in cases if case.key in wanted]


def print_list(cases: list[Case]) -> None:
    for case in cases:
        against = "; ".join(rival.label for rival in case.rivals)
        _say(f"{case.key:18} {case.title}, {case.unit}, against {against}"
             + (f" (cannot run here: {case.unavailable})" if case.unavailable else ""))


def check_out(path: pathlib.Path) -> None:
    """Raises ValueError where the file is there and holds anything but results: nothing of it may be lost."""
    try:
        report.sections(paths.read_if_there(path))
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: {error}; name another file by --out") from error


def make_context(options: argparse.Namespace, cases: list[Case]) -> Context:
    install.install_peers()
    if any(case.key == "lora" for case in cases):
        install.provide_python_headers()
    if options.tessera is None:
        paths.run_script("setup.sh")
        paths.run_script("build.sh", "release", "tessera_cli")
    if options.model is None:
        paths.run_script("fetch_model.sh")
    instructions, text = (prepare_texts(options.data, paths.WORK) if options.data.is_file() else (None, None))
    return Context(program=(options.tessera or paths.PROGRAM).resolve(), python=install.peer_python(),
                   workers=paths.WORKERS, model=(options.model or paths.MODEL).resolve(), work=paths.WORK,
                   chat_rows=paths.CHAT_ROWS, cores=machine.usable_cores(), instructions=instructions, text=text)


def with_bandwidth(context: Context, env: dict[str, str]) -> Context:
    """Measures how fast memory is read; without a figure generation has no limit to be held against."""
    from compare import process, readers
    finished = process.run([str(context.python), str(context.workers / "memory_bandwidth.py"), "--model", "-", "--threads",
                            str(context.cores)], env, context.work, context.work / "logs" / "bandwidth", 300.0)
    try:
        return dataclasses.replace(context, bytes_per_s=float(readers.last_object(finished)["bytes_per_s"]))
    except (ValueError, KeyError):
        _say(f"== memory bandwidth is not known: {finished.reason()}")
        return context


def header_of(context: Context, of_machine: list[tuple[str, str]], libtorch: str,
              options: argparse.Namespace) -> list[tuple[str, str]]:
    started = datetime.datetime.now(datetime.timezone.utc)
    peers = ", ".join(f"{name} {version}" for name, version in install.stated_versions().items())
    rows = [("date", started.strftime("%Y-%m-%d %H:%M UTC")), *of_machine,
            ("Tessera", f"{machine.commit()}, LibTorch {libtorch}"), ("peers", peers),
            ("model", context.model.name), ("threads", f"{context.cores}; with 2 ranks {max(1, context.cores // 2)} a rank"),
            ("repetitions", f"{options.repeats} of each contestant, alternately, every one a process of its own")]
    if options.cases is not None:
        rows.append(("cases", f"only {options.cases}"))
    if context.bytes_per_s is not None:
        rows.append(("memory bandwidth", f"{context.bytes_per_s / 1e9:.1f} GB/s read"))
    return rows


def raw_json(header: list[tuple[str, str]], samples: Samples) -> str:
    runs = [dataclasses.asdict(sample) for taken in samples.values() for sample in taken]
    return json.dumps({"header": dict(header), "runs": runs}, indent=1) + "\n"


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        cap = machine.isa_cap()
        cases = all_cases(machine.has_fast_bf16(cap), options.data.is_file())
        if options.list:
            print_list(cases)
            return 0
        section = "ranks" if options.ranks else None
        cases = choose(cases, options.cases, section)
        check_out(options.out)
        context = make_context(options, cases)
        doctor = machine.run_doctor(context.program)
        kind = machine.kind_of(doctor)
    except ValueError as error:
        print(f"compare_transformers: {error}", file=sys.stderr)
        return 2
    cases = [case.on(kind) for case in cases]
    holds = machine.holds_of(cap, kind)
    env = machine.environment(machine.isa_limit(doctor), holds)
    if any(case.group.startswith("generate") for case in cases):
        context = with_bandwidth(context, env)
    contestants = all_contestants(context)
    labels = {key: contestant.label for key, contestant in contestants.items()}
    header = header_of(context, machine.describe(doctor, kind, env, holds), doctor.get("LibTorch", "unknown"), options)
    samples: Samples = {}

    def rows() -> list[Row]:
        return rows_of(cases, samples)

    def save() -> None:
        paths.write_whole(options.raw, raw_json(header, samples))
        new = report.section(section or kind, header, rows(), labels)
        paths.write_whole(options.out, report.write(paths.read_if_there(options.out), section or kind, new))

    try:
        Runner(contestants, env, context.work, options.timeout, _say).run(cases, options.repeats, samples, save)
    except KeyboardInterrupt:
        save()
        print("compare_transformers: interrupted; what was measured is in " + str(options.out), file=sys.stderr)
        return 130
    save()
    _say(f"== results: {options.out}; every run: {options.raw}")
    return 0 if all(row.ratio is not None for row in rows()) else 1

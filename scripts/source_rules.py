"""Runs the rules of a check over the sources of tessera/."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(name, problems_of):
    """Prints what problems_of(path below tessera/, text) yields of every source, pairs (line, what is wrong), with
    places. The exit code of the check `name`."""
    count = 0
    for path in sorted((ROOT / "tessera").rglob("*")):
        if path.suffix not in (".h", ".cpp", ".cu", ".cuh"):
            continue
        relative = path.relative_to(ROOT / "tessera").as_posix()
        for number, text in problems_of(relative, path.read_text(encoding="utf-8")):
            print(f"{path.relative_to(ROOT)}:{number}: {text}", file=sys.stderr)
            count += 1
    if count:
        print(f"{name}: {count} line(s) against the rules", file=sys.stderr)
    return 1 if count else 0

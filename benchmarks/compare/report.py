"""The results file: for each kind of processor a header, one table of all cases, and the distance to the physical limit; then
what does not depend on the kind so much that each needs its own."""
import re

from compare.model import KINDS, OTHERS
from compare.summary import Figures, Row

_MET = {True: "yes", False: "**no**", None: "-"}
_NOISY_SPREAD = 0.25
_TITLE = "# Tessera beside its peers"
_HEADINGS = {**KINDS, **OTHERS}
CHECKPOINTS = "### Checkpoints"  # the end of a section, which benchmarks/checkpoint writes
_PREFACE = f"""{_TITLE}

Written by `benchmarks/compare_transformers`; [docs/benchmarks.md](../docs/benchmarks.md) says what each case does and how it is \
measured. One section for each kind of processor, by what Tessera uses of it: a run replaces its own."""


def number(value: float) -> str:
    """Three significant digits, never an exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _figure(found: Figures | None) -> str:
    if found is None:
        return "-"
    if found.count == 1:
        return number(found.median)
    return f"{number(found.median)} ({number(found.least)}-{number(found.most)})"


def _gigabytes(found: Figures | None) -> str:
    return "-" if found is None else f"{found.peak_bytes / 1e9:.2f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def _bound(value: float | None, word: str) -> str:
    return "-" if value is None else f"{word} {value:g}x"


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |"
    return [line(header), "|" + "---|" * len(header), *map(line, rows)]


def _row(row: Row, labels: dict[str, str]) -> list[str]:
    against = labels.get(row.chosen, row.rival.label) if row.chosen else row.rival.label
    if len(row.rival.keys) > 1 and row.chosen:
        against = f"{row.rival.label}: {against}"
    return [row.case.title, row.case.unit, _figure(row.ours), against, _figure(row.theirs), _ratio(row.ratio),
            _bound(row.rival.least_ratio, ">="), _MET[row.is_fast_enough()], _gigabytes(row.ours),
            _gigabytes(row.theirs), _ratio(row.memory_ratio), _bound(row.rival.most_memory, "<="),
            _MET[row.is_small_enough()]]


def _limits(rows: list[Row]) -> list[list[str]]:
    lines, seen = [], set()
    for row in rows:
        if row.case.key in seen or row.ours is None or row.case.explain is None:
            continue
        seen.add(row.case.key)
        sol, library_sol = row.ours.details.get("sol"), row.ours.details.get("library_sol")
        least = row.case.least_sol
        lines.append([row.case.title, "-" if sol is None else f"{sol:.2f}",
                      "-" if library_sol is None else f"{library_sol:.2f}", "-" if least is None else f">= {least:.2f}",
                      _MET[None if least is None or library_sol is None else library_sol >= least],
                      row.case.explain(row.ours.details)])
    return lines


def _notes(rows: list[Row], labels: dict[str, str]) -> list[str]:
    notes = [f"- {row.case.title}, against {row.rival.label}: {row.problem}" for row in rows if row.problem]
    noisy = {}
    for row in rows:
        for key, found in ((row.case.ours, row.ours), (row.chosen, row.theirs)):
            if found is not None and (found.most - found.least) > _NOISY_SPREAD * found.median:
                noisy[key] = labels.get(key, key)
    if noisy:
        notes.append(f"- spread above {_NOISY_SPREAD:.0%} of the median: {', '.join(noisy.values())}")
    return notes


def section(kind: str, header: list[tuple[str, str]], rows: list[Row], labels: dict[str, str]) -> str:
    """What a run on this kind of processor says."""
    lines = [f"## {_HEADINGS[kind]}", ""]
    lines += table(["", ""], [list(pair) for pair in header])
    lines += ["", "### Cases", "",
              "Medians over the repetitions, the spread in brackets. Ratio: how many times as fast as theirs. Memory: the "
              "largest process, GB.", ""]
    lines += table(["case", "unit", "ours", "against", "theirs", "ratio", "floor", "met", "memory ours", "theirs", "ratio",
                    "at most", "met"], [_row(row, labels) for row in rows])
    if limits := _limits(rows):
        lines += ["", "### Distance to the physical limit", ""]
        lines += table(["case", "share of the speed of light", "by LibTorch's products", "floor", "met", "what it says"], limits)
    if notes := _notes(rows, labels):
        lines += ["", "### Notes", "", *notes]
    return "\n".join(lines)


def sections(text: str) -> dict[str, str]:
    """The sections of a results file by kind, as they stand there. Raises ValueError where the file, if it is not empty,
    is none: it would be lost."""
    if not text.strip():
        return {}
    preface, *parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    if not preface.startswith(_TITLE):
        raise ValueError(f"the file is no table of results (it does not begin with {_TITLE!r})")
    found = {}
    for part in parts:
        heading = part.splitlines()[0].removeprefix("## ").strip()
        kind = next((kind for kind, name in _HEADINGS.items() if name == heading), None)
        if kind is None or kind in found:
            raise ValueError(f"the section {heading!r} is {'not known' if kind is None else 'there twice'}")
        found[kind] = part.rstrip("\n")
    return found


def write(old: str, kind: str, new: str) -> str:
    """The whole file: `old` with the section of this kind replaced by `new`, the others untouched."""
    found = sections(old)
    kept = re.search(rf"^{CHECKPOINTS}$.*", found.get(kind, ""), flags=re.MULTILINE | re.DOTALL)
    found[kind] = new + ("\n\n" + kept[0] if kept else "")
    return "\n\n".join([_PREFACE, *(found[one] for one in _HEADINGS if one in found)]) + "\n"

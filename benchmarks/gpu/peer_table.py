"""The table of peers.py: medians, ratios, and which of the bounds hold."""
import dataclasses
import statistics

from peer_cases import BF16_BOUND, FP8, FP8_BOUND, OURS, Case

OK, FAIL, NOT_RUN = "ok", "FAIL", "not run"


@dataclasses.dataclass
class Taken:
    """All runs of one contestant of a case: their figures, and why there are no more, if so."""
    runs: list[dict] = dataclasses.field(default_factory=list)
    failure: str | None = None  # that holds against it
    not_run: str | None = None
    out_of_memory: str | None = None

    @property
    def rate(self) -> float:
        return statistics.median(run["tokens_per_s"] for run in self.runs)

    def peak(self, key: str) -> int:
        return max(run.get(key, 0) for run in self.runs)

    @property
    def losses(self) -> list[float]:
        return self.runs[0]["losses"]


@dataclasses.dataclass
class Line:
    cells: list[str]
    verdict: str
    words: str


HEADER = ["case", "contestant", "runs", "tokens/s", "(min - max)", "ours is", "needs", "GiB held", "in use", "ours is",
          "may be", "losses", "apart"]
RESERVED, LIVE = "peak_device_bytes", "peak_device_live_bytes"


def distance(ours: list[float], theirs: list[float]) -> float:
    """The largest relative distance of the steps that both took; infinite where there is none."""
    return max((abs(a - b) / abs(b) if a == a and b == b else float("inf") for a, b in zip(ours, theirs)), default=float("inf"))


def _gib(bytes_: int) -> str:
    return f"{bytes_ / 2**30:.1f}" if bytes_ else "-"


def _figures(case: Case, name: str, taken: Taken) -> list[str]:
    rates = [run["tokens_per_s"] for run in taken.runs]
    label = name if taken.runs[0].get("attention") in (None, "sdpa") else f"{name} ({taken.runs[0]['attention']})"
    return [case.name, label, str(len(rates)), f"{taken.rate:,.0f}", f"{min(rates):,.0f} - {max(rates):,.0f}", "", "",
            _gib(taken.peak(RESERVED)), _gib(taken.peak(LIVE)), "", "",
            f"{taken.losses[0]:.4f} to {taken.losses[-1]:.4f}", ""]


def _empty(case: Case, name: str, taken: Taken) -> Line:
    cells = [case.name, name, "0"] + [""] * (len(HEADER) - 3)
    if taken.failure:
        return Line(cells, FAIL, taken.failure)
    if taken.out_of_memory:
        # Of a peer that is a finding. Of ours it is a failure.
        return Line(cells, FAIL if name in (OURS, FP8) else OK, "out of memory: " + taken.out_of_memory)
    return Line(cells, NOT_RUN, taken.not_run or "no time left")


def _of_ours(case: Case, name: str, taken: Taken, bf16: Taken) -> Line:
    cells, problems = _figures(case, name, taken), []
    if taken.failure:
        problems.append(f"a later run: {taken.failure}")
    # An adapter on random weights has little to work with.
    if not taken.losses[-1] < taken.losses[0] * (1.0 if case.lora_r else 0.98):
        problems.append("it does not learn, so equal losses say little")
    if name == FP8 and bf16.runs:
        apart = distance(taken.losses, bf16.losses)
        cells[-1] = f"{apart:.1e}"
        if not apart <= FP8_BOUND:
            problems.append(f"losses {apart:.1e} off those in bf16, may be {FP8_BOUND:.0e}")
    return Line(cells, FAIL if problems else OK, "; ".join(problems))


def _of_rival(case: Case, name: str, taken: Taken, ours: Taken) -> Line:
    cells, problems = _figures(case, name, taken), []
    if taken.failure:
        problems.append(f"a later run: {taken.failure}")
    if not ours.runs:
        return Line(cells, FAIL if ours.failure or ours.out_of_memory else NOT_RUN, "nothing of ours to compare with")
    least, ratio = case.least[name], ours.rate / taken.rate
    cells[5] = f"{ratio:.2f}x"
    if least is not None:
        cells[6] = f"{least:.1f}x"
        if not ratio >= least:
            problems.append(f"{ratio:.2f}x as fast, needs {least:.1f}x")
    shares = [ours.peak(key) / taken.peak(key) for key in (RESERVED, LIVE) if taken.peak(key)]
    if shares:
        cells[9] = " ".join(f"{share:.2f}x" for share in shares)
    if case.bounds_memory(name) and least is not None:
        cells[10] = f"{case.most_memory:.1f}x"
        if shares and not max(shares) <= case.most_memory:
            problems.append(f"{max(shares):.2f} of its memory, may be {case.most_memory:.1f}")
    apart = distance(ours.losses, taken.losses)
    cells[12] = f"{apart:.1e}"
    if not apart <= BF16_BOUND:
        problems.append(f"losses {apart:.1e} apart, may be {BF16_BOUND:.0e}: not the same work")
    return Line(cells, FAIL if problems else OK, "; ".join(problems))


def lines_of(case: Case, taken: dict[str, Taken]) -> list[Line]:
    lines = []
    for name in case.contestants:
        one = taken[name]
        if not one.runs:
            lines.append(_empty(case, name, one))
        elif name in (OURS, FP8):
            lines.append(_of_ours(case, name, one, taken[OURS]))
        else:
            lines.append(_of_rival(case, name, one, taken[OURS]))
    return lines


def render(lines: list[Line]) -> str:
    rows = [HEADER, *(line.cells for line in lines)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    left = {0, 1, 4, 11}

    def row(cells: list[str], verdict: str, words: str) -> str:
        padded = [cell.ljust(width) if i in left else cell.rjust(width)
                  for i, (cell, width) in enumerate(zip(cells, widths, strict=True))]
        return ("  ".join(padded) + f"  {verdict:7}  {words}").rstrip()

    counts = ", ".join(f"{sum(line.verdict == kind for line in lines)} {kind}" for kind in (OK, FAIL, NOT_RUN))
    return "\n".join([row(HEADER, "verdict", ""), *(row(line.cells, line.verdict, line.words) for line in lines), counts])

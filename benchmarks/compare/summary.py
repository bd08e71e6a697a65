"""From samples to the figures of a row."""
import dataclasses
import statistics

from compare.model import Case, Rival, Sample


@dataclasses.dataclass(frozen=True)
class Figures:
    """Of one contestant over its repetitions."""
    count: int
    median: float
    least: float
    most: float
    peak_bytes: float  # median
    details: dict      # of the sample nearest to the median


@dataclasses.dataclass(frozen=True)
class Row:
    """One case against one rival. `problem` says what is missing; the figures that exist are still there."""
    case: Case
    rival: Rival
    chosen: str | None = None
    ours: Figures | None = None
    theirs: Figures | None = None
    ratio: float | None = None
    memory_ratio: float | None = None
    problem: str | None = None

    def is_fast_enough(self) -> bool | None:
        if self.ratio is None or self.rival.least_ratio is None:
            return None
        return self.ratio >= self.rival.least_ratio

    def is_small_enough(self) -> bool | None:
        if self.memory_ratio is None or self.rival.most_memory is None:
            return None
        return self.memory_ratio <= self.rival.most_memory


def figures(samples: list[Sample]) -> Figures | None:
    good = [sample for sample in samples if sample.value is not None]
    if not good:
        return None
    values = [sample.value for sample in good]
    median = statistics.median(values)
    nearest = min(good, key=lambda sample: abs(sample.value - median))
    return Figures(len(good), median, min(values), max(values),
                   statistics.median(sample.peak_bytes for sample in good), nearest.details)


def _first_failure(samples: list[Sample]) -> str:
    return next((sample.failure for sample in samples if sample.failure), "has not run")


def compare(case: Case, rival: Rival, samples: dict[str, list[Sample]]) -> Row:
    if case.unavailable:
        return Row(case, rival, problem=case.unavailable)
    ours = figures(samples.get(case.ours, []))
    best = max if case.higher_is_better else min
    theirs = {key: found for key in rival.keys if (found := figures(samples.get(key, []))) is not None}
    problems = [f"{key}: {_first_failure(samples.get(key, []))}" for key in (case.ours, *rival.keys)
                if figures(samples.get(key, [])) is None]
    chosen = best(theirs, key=lambda key: theirs[key].median) if theirs else None
    problem = "; ".join(problems) or None
    if ours is None or chosen is None:
        return Row(case, rival, chosen, ours, theirs.get(chosen), problem=problem)
    if differing := [name for name in case.must_agree if ours.details.get(name) != theirs[chosen].details.get(name)]:
        problem = "; ".join([*problems, f"the two sides differ in {', '.join(differing)}"])
    ratio = ours.median / theirs[chosen].median
    return Row(case, rival, chosen, ours, theirs[chosen], ratio if case.higher_is_better else 1.0 / ratio,
               ours.peak_bytes / theirs[chosen].peak_bytes, problem)


def rows_of(cases: list[Case], samples: dict[str, list[Sample]]) -> list[Row]:
    return [compare(case, rival, samples) for case in cases for rival in case.rivals]

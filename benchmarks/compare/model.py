"""The words of the comparison: contestants, cases, samples."""
import dataclasses
import pathlib
from collections.abc import Callable, Mapping

from compare.process import Finished

# Kinds of processors, by what Tessera's own kernels use of them, and the heading of each one's results.
KINDS = {"amx": "Tile units (Intel AMX)", "avx512": "AVX-512 without tile units", "avx2": "AVX2",
         "baseline": "Neither AVX2 nor AVX-512"}

# Sections of the results beside those of the kinds, and their headings.
OTHERS = {"gpu": "NVIDIA H200", "ranks": "Several ranks", "axes": "Cost of each axis", "link": "Over a slow link",
          "memory": "Memory of layouts", "proofs": "Large models in little memory",
          "curves": "Loss curves of 8 ranks", "data": "Preparation of data",
          "stream": "Streaming of data", "serving": "Serving",
          "serving_gguf": "Serving of GGUF files", "load": "A server under load"}

# One for every kind, or one for each kind that has any.
Bound = float | Mapping[str, float] | None


def bound_on(kind: str, bound: Bound) -> float | None:
    return bound.get(kind) if isinstance(bound, Mapping) else bound


@dataclasses.dataclass
class Measured:
    """What one run says: the figure of its cases, and anything worth keeping in the raw file."""
    value: float
    details: dict


@dataclasses.dataclass(frozen=True)
class Contestant:
    key: str
    label: str
    # The command; the argument is an empty folder of the run's own.
    command: Callable[[pathlib.Path], list[str]]
    # Reads the figure out of a finished run and its folder. Raises ValueError or KeyError where there is none.
    read: Callable[[Finished, pathlib.Path], Measured]
    threads: int
    # Run once, uncounted, before the others (fills caches that users fill once).
    needs_preparation: bool = False
    # A file of the run's folder whose first line ends the time to watch.
    watched_file: str | None = None


@dataclasses.dataclass(frozen=True)
class Rival:
    label: str
    # The best of them is the one compared with.
    keys: tuple[str, ...]
    least_ratio: Bound = None
    most_memory: Bound = None

    def on(self, kind: str) -> "Rival":
        """The same with the bounds of one kind of processor."""
        return dataclasses.replace(self, least_ratio=bound_on(kind, self.least_ratio),
                                   most_memory=bound_on(kind, self.most_memory))


@dataclasses.dataclass(frozen=True)
class Case:
    key: str
    title: str
    unit: str
    ours: str
    rivals: tuple[Rival, ...]
    # Cases of one group run alternately with each other and share contestants.
    group: str
    # The section of the results; None: that of the kind of processor.
    section: str | None = None
    higher_is_better: bool = True
    least_sol: Bound = None
    # The sentence about the physical limit, from the details of ours at the median; None: nothing to say.
    explain: Callable[[dict], str] | None = None
    # Details in which both sides must be equal.
    must_agree: tuple[str, ...] = ()
    # Why the case cannot run here, if so.
    unavailable: str | None = None

    def on(self, kind: str) -> "Case":
        """The same with the bounds of one kind of processor, as summary and report need them."""
        return dataclasses.replace(self, least_sol=bound_on(kind, self.least_sol),
                                   rivals=tuple(rival.on(kind) for rival in self.rivals))


@dataclasses.dataclass
class Sample:
    contestant: str
    repetition: int
    exit_code: int
    wall_s: float
    peak_bytes: int
    value: float | None
    details: dict
    failure: str | None = None

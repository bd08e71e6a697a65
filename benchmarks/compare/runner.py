"""Runs the contestants of each group alternately, every run in a process of its own."""
import pathlib
import shutil
from collections.abc import Callable

from compare import process
from compare.model import Case, Contestant, Sample

Samples = dict[str, list[Sample]]


def groups_of(cases: list[Case]) -> list[tuple[str, list[str]]]:
    """Each group's contestants once, in the order of the cases."""
    groups: dict[str, list[str]] = {}
    for case in cases:
        if case.unavailable:
            continue
        keys = groups.setdefault(case.group, [])
        for key in (case.ours, *(key for rival in case.rivals for key in rival.keys)):
            if key not in keys:
                keys.append(key)
    return list(groups.items())


class Runner:
    def __init__(self, contestants: dict[str, Contestant], env: dict[str, str], work: pathlib.Path, timeout_s: float,
                 say: Callable[[str], None]) -> None:
        self._contestants, self._env, self._work = contestants, env, work
        self._timeout_s, self._say = timeout_s, say

    def run_once(self, key: str, repetition: int) -> Sample:
        contestant = self._contestants[key]
        folder = self._work / "runs" / key
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        threads = str(contestant.threads)
        env = {**self._env, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads,
               # What is compiled for one instruction set must not be found by a run that is held to another.
               "TORCHINDUCTOR_CACHE_DIR": str(self._work / "inductor" / self._env.get("ATEN_CPU_CAPABILITY", "any"))}
        watched = None
        if contestant.watched_file:
            file = folder / contestant.watched_file
            watched = lambda: file.exists() and file.stat().st_size > 0  # noqa: E731
        try:
            finished = process.run(contestant.command(folder), env, self._work, self._work / "logs" / f"{key}.{repetition}",
                                   self._timeout_s, watched)
        except OSError as error:
            return Sample(key, repetition, -1, 0.0, 0, None, {}, f"cannot start: {error}")
        (folder / "stdout").write_text(finished.output, encoding="utf-8")
        sample = Sample(key, repetition, finished.exit_code, finished.wall_s, finished.peak_bytes, None, {})
        if finished.exit_code != 0:
            sample.failure = finished.reason()
            return sample
        try:
            measured = contestant.read(finished, folder)
            sample.value, sample.details = measured.value, measured.details
        except (ValueError, KeyError, TypeError, OSError) as error:
            sample.failure = f"unreadable answer: {error!r}"
        return sample

    def run_and_tell(self, key: str, repetition: int) -> Sample:
        sample = self.run_once(key, repetition)
        self._tell(sample)
        return sample

    def _tell(self, sample: Sample) -> None:
        label = self._contestants[sample.contestant].key
        if sample.value is None:
            self._say(f"   {label:32} failed: {sample.failure}")
        else:
            self._say(f"   {label:32} {sample.value:10.2f}   {sample.peak_bytes / 1e9:6.2f} GB   {sample.wall_s:6.1f} s")

    def run(self, cases: list[Case], repeats: int, samples: Samples, save: Callable[[], None]) -> None:
        """Adds to `samples`; `save` is called after every round, so that nothing measured is lost."""
        for group, keys in groups_of(cases):
            for key in keys:
                if self._contestants[key].needs_preparation:
                    self._say(f"== {group}: first run of {key}, not counted")
                    self.run_once(key, 0)
            for repetition in range(1, repeats + 1):
                self._say(f"== {group}: round {repetition} of {repeats}")
                for key in keys:
                    taken = samples.setdefault(key, [])
                    # Who cannot run at all need not take everybody's time.
                    if len(taken) >= 2 and all(sample.value is None for sample in taken):
                        continue
                    taken.append(self.run_and_tell(key, repetition))
                save()

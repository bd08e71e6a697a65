"""Commands that run beside a clock: each has a log, a limit of its own, and the whole run's end."""
import dataclasses
import os
import pathlib
import signal
import subprocess
import time


class Failed(Exception):
    """What does not hold, in a line."""


class NotRun(Exception):
    """Why something was not looked at."""


@dataclasses.dataclass
class Running:
    """A command that runs, until `end`."""
    process: subprocess.Popen
    log: pathlib.Path
    end: float
    limit_s: float

    def finish(self) -> tuple[int, str]:
        """The exit code and the output. What runs past its time is ended, and fails."""
        try:
            code = self.process.wait(timeout=max(0.0, self.end - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            raise Failed(f"ran past {self.limit_s:.0f} s, see {self.log.name}") from None
        return code, self.log.read_text(errors="replace")


class Runner:
    """Starts commands in a folder, which takes their logs, until `minutes` have passed."""

    def __init__(self, folder: pathlib.Path, minutes: float) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.end = time.monotonic() + 60.0 * minutes

    def left_s(self) -> float:
        return self.end - time.monotonic()

    def begin(self, name: str, command: list[str], limit_s: float, env: dict[str, str] | None = None) -> Running:
        """Raises NotRun where no time is left."""
        left = min(limit_s, self.left_s())
        if left <= 1.0:
            raise NotRun("no time left")
        log = self.folder / f"{name}.log"
        with log.open("w") as file:
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=self.folder,
                                       start_new_session=True, env={**os.environ, **(env or {})})
        return Running(process, log, time.monotonic() + left, left)

    def run(self, name: str, command: list[str], limit_s: float, env: dict[str, str] | None = None) -> tuple[int, str]:
        """The exit code and the output of begin()."""
        return self.begin(name, command, limit_s, env).finish()

    def must(self, name: str, command: list[str], limit_s: float, env: dict[str, str] | None = None) -> str:
        """The output of a command that ends well; Failed with its last word of an error for another."""
        code, text = self.run(name, command, limit_s, env)
        if code != 0:
            told = [line for line in text.splitlines() if "error[" in line or "Error" in line] or text.splitlines()
            raise Failed(f"exit code {code}: {told[-1] if told else 'no word'}")
        return text

"""One contestant's run as a process of its own: time, answer and peak memory."""
import dataclasses
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable

_POLL_S = 0.005


@dataclasses.dataclass
class Finished:
    exit_code: int
    wall_s: float
    # Of the largest process of the tree: ru_maxrss of wait4 covers the child and what it waited for.
    peak_bytes: int
    output: str
    log: str
    # Seconds until `watched` returned true; None: never.
    watched_s: float | None = None

    def reason(self) -> str:
        """Why it failed, in one line."""
        lines = [line.strip() for line in (self.log + "\n" + self.output).splitlines() if line.strip()]
        errors = [line for line in lines if "rror" in line]
        text = (errors or lines or ["no output"])[-1]
        return f"exit {self.exit_code}: {text[:200]}"


def _end_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(command: list[str], env: dict[str, str], cwd: pathlib.Path, log_stem: pathlib.Path, timeout_s: float,
        watched: Callable[[], bool] | None = None) -> Finished:
    """Keeps what the process prints in LOG_STEM.out and LOG_STEM.err."""
    log_stem.parent.mkdir(parents=True, exist_ok=True)
    out_path, err_path = (log_stem.with_name(log_stem.name + end) for end in (".out", ".err"))
    watched_s = None
    with open(out_path, "wb") as out, open(err_path, "wb") as err:
        start = time.monotonic()
        child = subprocess.Popen(command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                 start_new_session=True)
        has_timed_out = False
        try:
            while True:
                pid, status, usage = os.wait4(child.pid, os.WNOHANG)
                seconds = time.monotonic() - start
                if watched is not None and watched_s is None and watched():
                    watched_s = seconds
                if pid != 0:
                    break
                if seconds > timeout_s and not has_timed_out:
                    has_timed_out = True
                    _end_group(child.pid)
                time.sleep(_POLL_S)
        except BaseException:
            _end_group(child.pid)
            os.waitpid(child.pid, 0)
            child.returncode = -signal.SIGKILL
            raise
    child.returncode = os.waitstatus_to_exitcode(status)
    if has_timed_out:
        with open(err_path, "ab") as err:
            err.write(f"\nError: ended after {timeout_s:.0f} s\n".encode())
    return Finished(child.returncode, seconds, usage.ru_maxrss * 1024,
                    out_path.read_text(encoding="utf-8", errors="replace"),
                    err_path.read_text(encoding="utf-8", errors="replace"), watched_s)

"""What this machine is, and the environment that every contestant runs in."""
import os
import pathlib
import platform
import re
import subprocess

from compare.paths import ROOT


def usable_cores() -> int:
    return len(os.sched_getaffinity(0))


def _cpu_flags() -> set[str]:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return set(line.split(":", 1)[1].split())
    return set()


def has_fast_bf16() -> bool:
    return bool(_cpu_flags() & {"amx_bf16", "avx512_bf16"})


def doctor_rows(text: str) -> dict[str, str]:
    """The two columns of `tessera doctor` above its table of rates."""
    rows = {}
    for line in text.splitlines():
        if match := re.match(r"(\S.*?)\s{2,}(\S.*)$", line):
            rows.setdefault(match[1], match[2])
    return rows


def isa_limit(doctor: dict[str, str]) -> str | None:
    """Where AMX is advertised but unusable: what Tessera holds oneDNN at, and so what the peers are held at."""
    match = re.search(r"held at ([A-Z0-9_]+)$", doctor.get("AMX trap", ""))
    return match[1] if match else None


def run_doctor(program: pathlib.Path) -> dict[str, str]:
    result = subprocess.run([str(program), "doctor"], check=True, stdout=subprocess.PIPE, text=True)
    return doctor_rows(result.stdout)


def environment(isa: str | None) -> dict[str, str]:
    """For every contestant; the number of threads is added for each."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP", "MKL_", "OMPI_"))}
    kept.update(TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1",
                TRANSFORMERS_VERBOSITY="error", PYTHONNOUSERSITE="1", CUDA_VISIBLE_DEVICES="")
    if policy := os.environ.get("OMP_WAIT_POLICY"):
        kept["OMP_WAIT_POLICY"] = policy
    if isa:
        kept["ONEDNN_MAX_CPU_ISA"] = isa
    return kept


def commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True).stdout.strip()
    name = git("rev-parse", "--short", "HEAD") or "unknown"
    return name + (" with changes" if git("status", "--porcelain", "--untracked-files=no") else "")


def describe(doctor: dict[str, str], isa: str | None) -> list[tuple[str, str]]:
    """Rows of the report's header."""
    load = os.getloadavg()[0]
    return [
        ("processor", f"{doctor.get('processor', platform.processor())}, {usable_cores()} cores"),
        ("instruction sets", doctor.get("instruction sets", "unknown")),
        ("limit on oneDNN, for both sides", isa or os.environ.get("ONEDNN_MAX_CPU_ISA") or "none"),
        ("memory", doctor.get("memory", "unknown").split(",")[0]),
        ("system", f"Linux {'.'.join(platform.release().split('.')[:2])}, Python {platform.python_version()}"),
        ("load average before the run", f"{load:.2f}" + (" (the machine was not idle)" if load > 0.5 else "")),
    ]

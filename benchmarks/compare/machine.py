"""What this machine is, and the environment that every contestant runs in."""
import os
import pathlib
import platform
import re
import subprocess

from compare.model import KINDS
from compare.paths import ROOT

_CAP = "TESSERA_ISA"
_CAPS = ("avx2", "avx512", "amx")
# How Tessera holds LibTorch, oneDNN and MKL to a set of instructions; the peers, which are made of the same, likewise.
_HOLDS = {
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avx512": {"ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16",
               "MKL_ENABLE_INSTRUCTIONS": "AVX512"},
}


def usable_cores() -> int:
    return len(os.sched_getaffinity(0))


def _cpu_flags() -> set[str]:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return set(line.split(":", 1)[1].split())
    return set()


def isa_cap() -> str | None:
    """What TESSERA_ISA holds this run to. Raises ValueError where it names no instruction set."""
    cap = os.environ.get(_CAP) or None
    if cap is not None and cap not in _CAPS:
        raise ValueError(f"{_CAP} names no instruction set; got {cap!r}, need {', '.join(_CAPS)}")
    return cap


def has_fast_bf16(cap: str | None) -> bool:
    return cap != "avx2" and bool(_cpu_flags() & {"amx_bf16", "avx512_bf16"})


def doctor_rows(text: str) -> dict[str, str]:
    """The two columns of `tessera doctor` above its table of rates."""
    rows = {}
    for line in text.splitlines():
        if match := re.match(r"(\S.*?)\s{2,}(\S.*)$", line):
            rows.setdefault(match[1], match[2])
    return rows


def kind_of(doctor: dict[str, str]) -> str:
    """The kind of this processor (KINDS), TESSERA_ISA heeded. Raises ValueError where the program does not say."""
    words = doctor.get("in use", "").split()
    if not words or words[0] not in KINDS:
        raise ValueError("`tessera doctor` does not say which instruction sets are used (its row \"in use\"); got "
                         f"{words[0] if words else 'no such row'!r}, need one of {', '.join(KINDS)}")
    return words[0]


def holds_of(cap: str | None, kind: str) -> dict[str, str]:
    """The variables that hold the peers to what a capped Tessera uses; none where nothing is capped."""
    return _HOLDS.get(kind, {}) if cap in _HOLDS else {}


def isa_limit(doctor: dict[str, str]) -> str | None:
    """Where AMX is advertised but unusable: what Tessera holds oneDNN at, and so what the peers are held at."""
    match = re.search(r"held at ([A-Z0-9_]+)$", doctor.get("AMX trap", ""))
    return match[1] if match else None


def run_doctor(program: pathlib.Path) -> dict[str, str]:
    result = subprocess.run([str(program), "doctor"], check=True, stdout=subprocess.PIPE, text=True)
    return doctor_rows(result.stdout)


def environment(isa: str | None, holds: dict[str, str]) -> dict[str, str]:
    """For every contestant; the number of threads is added for each. `holds` goes before what the user set."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP", "MKL_", "OMPI_"))}
    kept.update(TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1",
                TRANSFORMERS_VERBOSITY="error", PYTHONNOUSERSITE="1", CUDA_VISIBLE_DEVICES="")
    if policy := os.environ.get("OMP_WAIT_POLICY"):
        kept["OMP_WAIT_POLICY"] = policy
    if isa:
        kept["ONEDNN_MAX_CPU_ISA"] = isa
    kept.update(holds)
    return kept


def commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True).stdout.strip()
    name = git("rev-parse", "--short", "HEAD") or "unknown"
    return name + (" with changes" if git("status", "--porcelain", "--untracked-files=no") else "")


def _capped(env: dict[str, str], holds: dict[str, str]) -> str:
    if not env.get(_CAP):
        return "no"
    return ", ".join([f"{_CAP}={env[_CAP]}", *(f"{name}={value}" for name, value in holds.items())])


def describe(doctor: dict[str, str], kind: str, env: dict[str, str], holds: dict[str, str]) -> list[tuple[str, str]]:
    """Rows of the report's header, of a run in the environment `env`."""
    load = os.getloadavg()[0]
    return [
        ("processor", f"{doctor.get('processor', platform.processor())}, {usable_cores()} cores"),
        ("instruction sets", doctor.get("instruction sets", "unknown")),
        ("in use by Tessera", kind),
        ("held lower, both sides", _capped(env, holds)),
        ("limit on oneDNN, for both sides", env.get("ONEDNN_MAX_CPU_ISA") or "none"),
        ("memory", doctor.get("memory", "unknown").split(",")[0]),
        ("system", f"Linux {'.'.join(platform.release().split('.')[:2])}, Python {platform.python_version()}"),
        ("load average before the run", f"{load:.2f}" + (" (the machine was not idle)" if load > 0.5 else "")),
    ]

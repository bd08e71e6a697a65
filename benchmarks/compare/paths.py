"""Where things lie, and the scripts of the repository that make them."""
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
WORK = BUILD / "compare"
PEERS = BUILD / "peers"
WORKERS = ROOT / "benchmarks" / "compare" / "peers"
REQUIREMENTS = ROOT / "benchmarks" / "compare" / "requirements.txt"
MODEL = BUILD / "quickstart" / "SmolLM2-135M-Instruct"
PROGRAM = BUILD / "release" / "tessera"
CHAT_ROWS = ROOT / "examples" / "data" / "tessera_chat.jsonl"


def cache_folder() -> pathlib.Path:
    """The per-user cache of scripts/common.sh."""
    if folder := os.environ.get("TESSERA_CACHE"):
        return pathlib.Path(folder)
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tessera"


def instruction_data() -> pathlib.Path:
    folder = pathlib.Path(os.environ.get("TESSERA_SHARED_DATA") or ROOT / ".." / "shared" / "data")
    return folder / "alpaca_roleplay.json"


def run_script(*command: str) -> None:
    subprocess.run([str(ROOT / "scripts" / command[0]), *command[1:]], check=True, cwd=ROOT)


def read_if_there(path: pathlib.Path) -> str:
    """To the byte, ends of lines included; "" where there is no such file. Raises ValueError where it is no UTF-8."""
    return path.read_bytes().decode() if path.exists() else ""


def write_whole(path: pathlib.Path, text: str) -> None:
    """Readers see the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)

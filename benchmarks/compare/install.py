"""Puts the peers of requirements.txt into build/peers. Their wheels stay in the per-user cache."""
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

from compare.paths import PEERS, REQUIREMENTS, cache_folder

_PIP = [sys.executable, "-m", "pip"]
_QUIET = ["--quiet", "--disable-pip-version-check"]
_TRIES = 3


def peer_python() -> pathlib.Path:
    return PEERS / "bin" / "python"


def stated_versions() -> dict[str, str]:
    """Name to version of the first block of requirements.txt: the peers themselves."""
    versions = {}
    for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines():
        if not line and versions:
            break
        if "==" in line and not line.startswith("#"):
            name, version = line.split("==")
            versions[name] = version
    return versions


def _fetch_wheels(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    command = [*_PIP, "download", *_QUIET, "--no-deps", "--only-binary=:all:", "--dest", str(folder),
               "--find-links", str(folder), "--find-links", str(folder.parent), "-r", str(REQUIREMENTS)]
    for attempt in range(1, _TRIES + 1):
        if subprocess.run(command).returncode == 0:
            return
        print(f"== download failed (try {attempt} of {_TRIES})", flush=True)
    raise RuntimeError("the peers could not be downloaded")


def install_peers() -> None:
    """Does nothing where build/peers already holds what requirements.txt names."""
    stamp = PEERS / ".complete"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    wheels = cache_folder() / "wheels" / "peers"
    print(f"== installing the peers into {PEERS} (2.2 GB to fetch once for each user, 4.1 GB on disk)", flush=True)
    _fetch_wheels(wheels)
    shutil.rmtree(PEERS, ignore_errors=True)
    # Debian's python3 has no ensurepip: the pip that runs outside installs into the folder.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(PEERS)], check=True)
    subprocess.run([*_PIP, "--python", str(peer_python()), "install", *_QUIET, "--no-deps", "--no-index",
                    "--find-links", str(wheels), "-r", str(REQUIREMENTS)], check=True)
    stamp.write_text(wanted)


def provide_python_headers() -> None:
    """torch.compile builds against Python.h. Where it cannot be had, the compiled contestant says so itself."""
    if (pathlib.Path(sysconfig.get_paths()["include"]) / "Python.h").exists() or not shutil.which("apt-get"):
        return
    sudo = [] if os.geteuid() == 0 else ["sudo"] if shutil.which("sudo") else None
    if sudo is not None:
        print("== installing python3-dev, which torch.compile needs", flush=True)
        subprocess.run([*sudo, "apt-get", "install", "-y", "-qq", "--no-install-recommends", "python3-dev"],
                       stdout=subprocess.DEVNULL)

"""That pip installs the wheel, that its command starts the program with the right torch, and that a broken wheel is told."""
import base64
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import wheel  # noqa: E402

NAME = "tessera_train-1.2.3-py3-none-manylinux_2_36_x86_64.whl"


def write(path, text, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


@unittest.skipUnless(shutil.which("patchelf") and os.uname().machine == "x86_64", "needs patchelf and x86-64")
class WheelTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = pathlib.Path(folder.name)
        self.package = self.here / "package"
        # `env` stands for the program: it runs the words that it is given, and without any prints its environment.
        write(self.package / "bin/mpirun", "#!/bin/sh\necho mpirun $*\n", 0o755)
        shutil.copy("/usr/bin/env", self.package / "bin/tessera")
        for library in ("libtorch_cpu.so", "libc10.so", "libcudart.so.13", "libcupti.so.13", "libgomp.so.1", "libmpi.so.40"):
            write(self.package / "lib" / library, "a library\n")
        write(self.package / "lib/openmpi/tessera-package", "tessera-1.2.3\n")
        write(self.package / "share/openmpi/help.txt", "help\n")
        write(self.package / "share/tessera/README.md", "# Tessera\n")
        write(self.package / "licenses/torch/LICENSE", "a licence\n")

    def make(self):
        return wheel.make(self.package, "1.2.3", "2.11.0", "36", self.here)

    def install(self):
        """Installs the wheel by pip and returns a function that runs a command of it, by its words."""
        site = self.here / "site"
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile",
                        "--disable-pip-version-check", "--root-user-action=ignore", "--target", site, self.make()], check=True)

        def run(*words, path=""):
            variables = {"PYTHONPATH": f"{site}:{path}", "PYTHONDONTWRITEBYTECODE": "1"}
            return subprocess.run([sys.executable, site / "bin" / words[0], *words[1:]], text=True, env=variables,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return site, run

    def write_torch(self, folder, version):
        write(folder / "torch/__init__.py", "raise ImportError('nobody imports torch')\n")
        write(folder / "torch/version.py", f"__all__ = ['__version__']\n__version__ = '{version}'\n")
        write(folder / "torch/lib/libtorch_cpu.so", "a library\n")

    def test_names_hashes_and_modes(self):
        path = self.make()
        self.assertEqual(path.name, NAME)
        self.assertEqual(wheel.check(path), [])
        info = "tessera_train-1.2.3.dist-info"
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            self.assertEqual([name for name in names if "libtorch" in name or "libc10" in name or "libcu" in name], [])
            for name in ("tessera_train/lib/libgomp.so.1", "tessera_train/lib/openmpi/tessera-package",
                         "tessera_train/share/openmpi/help.txt", f"{info}/licenses/torch/LICENSE"):
                self.assertIn(name, names)
            self.assertEqual(archive.getinfo("tessera_train/bin/tessera").external_attr >> 16, 0o100755)
            told = archive.read(f"{info}/METADATA").decode()
            self.assertIn("\nRequires-Dist: torch==2.11.0\n", told)
            self.assertIn("\nLicense-File: torch/LICENSE\n", told)
            digest = hashlib.sha256(archive.read("tessera_train/lib/libmpi.so.40")).digest()
            record = archive.read(f"{info}/RECORD").decode().splitlines()
            text = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            self.assertIn(f"tessera_train/lib/libmpi.so.40,sha256={text},10", record)
            self.assertEqual(len(record), len(names))
            self.assertIn(f"{info}/RECORD,,", record)

    def test_the_command_starts_the_program_with_the_torch_of_its_version(self):
        site, run = self.install()
        missing = run("tessera", "echo", "hello")
        self.assertIn("error[E-CONFIG-TORCH]", missing.stderr)
        self.assertIn("got no torch, need torch 2.11.0", missing.stderr)
        self.assertEqual(missing.returncode, 1)
        # A torch elsewhere is found as Python finds it.
        elsewhere = self.here / "elsewhere"
        self.write_torch(elsewhere, "2.11.0")
        self.assertIn(f"\nLD_LIBRARY_PATH={elsewhere}/torch/lib\n", "\n" + run("tessera", path=elsewhere).stdout)
        self.write_torch(site, "2.11.0+cpu")
        self.assertEqual(run("tessera", "echo", "hello", "  two").stdout, "hello   two\n")
        self.assertNotIn("LD_LIBRARY_PATH", run("tessera", path=elsewhere).stdout)
        self.assertEqual(run("tessera-mpirun", "-n", "2").stdout, "mpirun -n 2\n")
        self.assertEqual(run("tessera", "sh", "-c", "exit 7").returncode, 7)
        self.write_torch(site, "2.12.0")
        self.assertIn("got torch 2.12.0, need torch 2.11.0", run("tessera").stderr)

    def rewritten(self, change, mode=None):
        """The wheel again, with `change` called for each name and content: it returns the new content, or None to leave it out."""
        made = self.make()
        path = self.here / "again" / NAME
        path.parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(made) as old, zipfile.ZipFile(path, "w") as new:
            for entry in old.infolist():
                data = change(entry.filename, old.read(entry))
                if mode:
                    entry.external_attr = mode << 16
                if data is not None:
                    new.writestr(entry, data)
        return path

    def test_a_broken_wheel_is_told(self):
        library = "tessera_train/lib/libmpi.so.40"
        changed = self.rewritten(lambda name, data: b"another\n" if name == library else data)
        self.assertEqual(wheel.check(changed), [f"{library} is not what RECORD says"])
        lost = self.rewritten(lambda name, data: None if name == library else data)
        self.assertEqual(wheel.check(lost), [f"{library} is in only one of RECORD and wheel"])
        self.assertIn("tessera_train/bin/tessera has the mode 644", wheel.check(self.rewritten(lambda _, data: data, 0o100644)))
        renamed = self.make().rename(self.here / NAME.replace("2_36", "2_17"))
        self.assertEqual(wheel.check(renamed), ["the name has another tag than WHEEL"])
        self.assertEqual(wheel.check(renamed.rename(self.here / "tessera.whl")), ["tessera.whl is no name of this wheel"])

    def test_libraries_that_would_not_be_found_are_told(self):
        library = self.package / "lib/libgone.so"
        shutil.copy("/usr/bin/env", library)
        library.chmod(0o644)
        for change in ("--add-needed=libnowhere.so.1", "--add-needed=libtorch_cpu.so", "--set-rpath=/root/lib"):
            subprocess.run(["patchelf", *change.split("="), library], check=True)
        self.assertEqual(set(wheel.check(self.make())), {
            "tessera_train/lib/libgone.so has the run path /root/lib",
            "tessera_train/lib/libgone.so needs libnowhere.so.1, which is not in the wheel",
            "tessera_train/lib/libgone.so needs libtorch_cpu.so, which is not in the wheel"})


if __name__ == "__main__":
    unittest.main()

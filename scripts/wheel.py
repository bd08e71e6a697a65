"""The wheel tessera-train, which pip installs and which gives the command `tessera`.

wheel.py make PACKAGE VERSION TORCH_VERSION GLIBC_MINOR OUT   makes the wheel below OUT from a package's folder (package.sh)
                                                              and prints its path
wheel.py check WHEEL                                          fails unless the wheel is whole and finds what it needs

The wheel holds the package in site-packages/tessera_train, but LibTorch: the program finds that of the wheel torch, of the
version it was built with, by a run path relative to itself.
"""
import base64
import csv
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

MODULE = 'tessera_train'
# These libraries are in the wheel torch, or in the wheels of NVIDIA that it asks for.
TORCH_LIBRARIES = re.compile(r'lib(torch_cpu|c10)\.so|lib(cudart|cupti)\.so\.\d+')
GLIBC = re.compile(r'(ld-linux[\w-]*|lib(c|m|dl|pthread|rt|util|resolv|anl))\.so\.\d+')
# A torch without a libgomp of this name leaves the program its own.
PROGRAM_RUN_PATH = '$ORIGIN/../../torch/lib:$ORIGIN/../lib'
KEPT = ('bin', 'lib', 'libexec', 'share/openmpi')


def output_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def is_elf(data):
    return data[:4] == b'\x7fELF'


def run_path_of(file):
    return output_of('patchelf', '--print-rpath', str(file)).strip()


def metadata(version, torch_version, licences, readme):
    lines = ['Metadata-Version: 2.4', 'Name: tessera-train', f'Version: {version}',
             'Summary: Train and finetune large language models on many devices, in native C++20',
             'Requires-Python: >=3.10', f'Requires-Dist: torch=={torch_version}',
             *(f'License-File: {name}' for name in licences), 'Description-Content-Type: text/markdown']
    return '\n'.join(lines) + '\n\n' + readme


def record_line(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()
    return [name, f'sha256={digest}', str(len(data))]


class Writer:
    """A wheel being written: adds files, and its RECORD at the end."""

    def __init__(self, archive, info):
        self.archive, self.info, self.record = archive, info, []

    def add(self, name, data, mode=0o644):
        # One time for all files, so that equal contents make equal wheels.
        entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        entry.external_attr, entry.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
        self.archive.writestr(entry, data)
        self.record.append(record_line(name, data))

    def add_record(self):
        name, text = f'{self.info}/RECORD', io.StringIO()
        csv.writer(text, lineterminator='\n').writerows([*self.record, [name, '', '']])
        self.add(name, text.getvalue().encode())


def files_below(folder):
    return sorted(path for path in folder.rglob('*') if path.is_file())


def package_files(package):
    """The package's files that go into the wheel, as seen from the package."""
    files = [path for part in KEPT for path in files_below(package / part)]
    return [path.relative_to(package) for path in files if not TORCH_LIBRARIES.fullmatch(path.name)]


def program_for_wheel(package):
    """The program's bytes, with the run path that it has in the wheel."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(shutil.copy2(package / 'bin/tessera', folder))
        subprocess.run(['patchelf', '--force-rpath', '--set-rpath', PROGRAM_RUN_PATH, str(program)], check=True)
        return program.read_bytes()


def make(package, version, torch_version, glibc_minor, out):
    machine = os.uname().machine
    tag, info = f'py3-none-manylinux_2_{glibc_minor}_{machine}', f'{MODULE}-{version}.dist-info'
    path = out / f'{MODULE}-{version}-{tag}.whl'
    part = path.with_suffix('.part')
    licences = files_below(package / 'licenses')
    names = [str(file.relative_to(package / 'licenses')) for file in licences]
    readme = (package / 'share/tessera/README.md').read_text(encoding='utf-8')
    start = (Path(__file__).parent / 'wheel_start.py').read_text(encoding='utf-8')
    with zipfile.ZipFile(part, 'w') as archive:
        wheel = Writer(archive, info)
        wheel.add(f'{MODULE}/__init__.py', start.replace('@TORCH_VERSION@', torch_version).encode())
        wheel.add(f'{MODULE}/__main__.py', f'from {MODULE} import tessera\n\ntessera()\n'.encode())
        for file in package_files(package):
            source = package / file
            is_program = str(file) == 'bin/tessera'
            wheel.add(f'{MODULE}/{file}', program_for_wheel(package) if is_program else source.read_bytes(),
                      0o755 if os.access(source, os.X_OK) else 0o644)
        for name, file in zip(names, licences):
            wheel.add(f'{info}/licenses/{name}', file.read_bytes())
        wheel.add(f'{info}/METADATA', metadata(version, torch_version, names, readme).encode())
        wheel.add(f'{info}/WHEEL', f'Wheel-Version: 1.0\nGenerator: tessera {version}\nRoot-Is-Purelib: false\nTag: {tag}\n'.encode())
        wheel.add(f'{info}/entry_points.txt',
                  f'[console_scripts]\ntessera = {MODULE}:tessera\ntessera-mpirun = {MODULE}:mpirun\n'.encode())
        wheel.add_record()
    part.replace(path)
    return path


def record_problems(archive):
    """What the wheel's RECORD says wrongly about its files."""
    records = [name for name in archive.namelist() if name.endswith('.dist-info/RECORD')]
    if len(records) != 1:
        return [f'{len(records)} files are called RECORD']
    rows = {row[0]: row for row in csv.reader(io.StringIO(archive.read(records[0]).decode()))}
    problems = [f'{name} is in only one of RECORD and wheel' for name in set(rows) ^ set(archive.namelist())]
    for name in set(rows) & set(archive.namelist()) - set(records):
        if rows[name] != record_line(name, archive.read(name)):
            problems.append(f'{name} is not what RECORD says')
    return problems


def library_problems(folder):
    """What the ELF files of an unpacked wheel would not find, or would look for at a place of this machine."""
    files = [file for file in files_below(folder / MODULE) if is_elf(file.read_bytes()[:4])]
    own = {file.name for file in files}
    problems = []
    for file in files:
        name, path = file.relative_to(folder), run_path_of(file)
        needed = output_of('patchelf', '--print-needed', str(file)).split()
        if any(not part.startswith('$ORIGIN') for part in path.split(':') if part):
            problems.append(f'{name} has the run path {path}')
        for library in needed:
            is_torch = bool(TORCH_LIBRARIES.fullmatch(library))
            if not (library in own or GLIBC.fullmatch(library) or is_torch and str(name) == f'{MODULE}/bin/tessera'):
                problems.append(f'{name} needs {library}, which is not in the wheel')
        if needed and not path and {*needed} & own:
            problems.append(f'{name} has no run path')
    if run_path_of(folder / MODULE / 'bin/tessera') != PROGRAM_RUN_PATH:
        problems.append(f'the program has not the run path {PROGRAM_RUN_PATH}')
    return problems


def check(path):
    match = re.fullmatch(rf'{MODULE}-([\w.]+)-(py3-none-manylinux_2_\d+_\w+)\.whl', path.name)
    if not match:
        return [f'{path.name} is no name of this wheel']
    with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as folder:
        if problems := record_problems(archive):
            return problems
        modes = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in archive.infolist()}
        problems = [f'{name} has the mode {mode:o}' for name, mode in modes.items()
                    if mode != (0o755 if f'{MODULE}/bin/' in name or f'{MODULE}/libexec/' in name else 0o644)]
        if f'Tag: {match[2]}\n' not in archive.read(f'{MODULE}-{match[1]}.dist-info/WHEEL').decode():
            problems.append('the name has another tag than WHEEL')
        archive.extractall(folder)
        return problems + library_problems(Path(folder))


def main():
    if sys.argv[1:2] == ['make'] and len(sys.argv) == 7:
        package, version, torch_version, glibc_minor, out = sys.argv[2:]
        print(make(Path(package), version, torch_version, glibc_minor, Path(out)))
    elif sys.argv[1:2] == ['check'] and len(sys.argv) == 3:
        if problems := check(Path(sys.argv[2])):
            sys.exit('\n'.join(f'wheel: {problem}' for problem in problems))
    else:
        sys.exit(__doc__)


if __name__ == '__main__':
    main()

"""Starts the programs of the wheel tessera-train in Python's place: tessera, and the mpirun that fits it."""
import importlib.util
import os
import re
import sys

TORCH_VERSION = '@TORCH_VERSION@'
HERE = os.path.dirname(os.path.realpath(__file__))


def _refuse(what, got):
    sys.exit(f'tessera: error[E-CONFIG-TORCH]: {what}; got {got}, need torch {TORCH_VERSION}. '
             f'hint: pip install torch=={TORCH_VERSION}')


def _torch_folder():
    """The folder of Python's torch, whose LibTorch the program loads. Nothing of torch is imported."""
    folder = os.path.join(os.path.dirname(HERE), 'torch')
    if not os.path.exists(os.path.join(folder, 'lib', 'libtorch_cpu.so')):
        spec = importlib.util.find_spec('torch')
        folder = os.path.dirname(spec.origin) if spec and spec.origin else ''
    if not os.path.exists(os.path.join(folder, 'lib', 'libtorch_cpu.so')):
        _refuse('the program loads LibTorch, which Python does not have', 'no torch')
    with open(os.path.join(folder, 'version.py'), encoding='utf-8') as file:
        version = re.search(r"__version__ = '([^']*)'", file.read())
    if not version or version[1].split('+')[0] != TORCH_VERSION:
        _refuse("the program cannot load LibTorch of another version", f'torch {version[1] if version else "of no version"}')
    return folder


def _start(name):
    folder = _torch_folder()
    # The program's run path finds torch beside this package; elsewhere (a user's site-packages, say) this variable tells.
    if os.path.dirname(folder) != os.path.dirname(HERE):
        others = os.environ.get('LD_LIBRARY_PATH')
        os.environ['LD_LIBRARY_PATH'] = os.path.join(folder, 'lib') + (f':{others}' if others else '')
    program = os.path.join(HERE, 'bin', name)
    os.execv(program, [program, *sys.argv[1:]])


def tessera():
    _start('tessera')


def mpirun():
    _start('mpirun')

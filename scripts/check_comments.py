#!/usr/bin/env python3
"""check_comments.py [FILE...]: comments that begin like a piece of a sentence, in the files named or in all sources.

A comment is read once, by somebody who is new to the code: a sentence with a subject and a verb, which names what it speaks
of. "Of one." is none, and a line that begins so seldom belongs to one. Prints FILE:LINE for each; exits with 1 where there
are any.
"""
import re
import subprocess
import sys
from pathlib import Path

FRAGMENT = re.compile(r'\s*// (Of|What|Whether|Where|As|Those|The same|That|Which|From|In place of|With|Without)\b')


def fragments(path):
    lines = Path(path).read_text(encoding='utf-8').splitlines()
    return [f'{path}:{number}: {line.strip()}' for number, line in enumerate(lines, 1) if FRAGMENT.match(line)]


def main():
    listed = ['git', 'ls-files', '--cached', '--others', '--exclude-standard', '--deduplicate', '--']
    files = sys.argv[1:] or subprocess.run(listed + ['*.h', '*.cpp', '*.cu', '*.cuh'], check=True, capture_output=True,
                                           text=True).stdout.splitlines()
    found = [line for path in files for line in fragments(path)]
    print('\n'.join(found), end='\n' if found else '')
    sys.exit(1 if found else 0)


main()

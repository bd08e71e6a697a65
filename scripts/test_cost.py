#!/usr/bin/env python3
"""test_cost.py [BUILD_DIR...]: where the time of `./dev test` goes, from the logs of ninja and ctest.

Prints, for each build folder (those below build/ that have logs), the sums and the twenty dearest steps of the build and
runs of ctest. A step's time is the wall clock's, so steps that ran side by side count in full each.
"""
import argparse
import re
from pathlib import Path

KINDS = (('compile', r'\.o$'), ('precompile', r'\.gch$'), ('link', r'(^|/)[^./]+$|\.so(\.\d+)*$|\.a$'))


def build_steps(log):
    """Seconds of each output in a ninja log; a later line for an output takes the place of an earlier one."""
    steps = {}
    for line in log.read_text(encoding='utf-8').splitlines():
        fields = line.split('\t')
        if line.startswith('#') or len(fields) < 5:
            continue
        # Outputs that ninja also knows by an absolute path are listed twice.
        if not fields[3].startswith('/'):
            steps[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return steps


def test_runs(log):
    """Seconds of each run in ctest's LastTest.log."""
    runs, name = {}, None
    for line in log.read_text(encoding='utf-8', errors='replace').splitlines():
        if match := re.match(r'\d+/\d+ Test: (\S+)', line):
            name = match[1]
        elif (match := re.match(r'Test time =\s+([\d.]+) sec', line)) and name:
            runs[name], name = float(match[1]), None
    return runs


def kind_of(output):
    return next((kind for kind, pattern in KINDS if re.search(pattern, output)), 'other')


def print_dearest(title, costs, most):
    print(f'{title}: {len(costs)}, {sum(costs.values()):,.0f} s')
    for name, seconds in sorted(costs.items(), key=lambda item: -item[1])[:most]:
        print(f'  {seconds:8.1f}  {name}')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('builds', type=Path, nargs='*', metavar='BUILD_DIR')
    parser.add_argument('--most', type=int, default=20, help='rows of each table')
    options = parser.parse_args()
    builds = options.builds or sorted(path.parent for path in Path('build').glob('*/.ninja_log'))
    for build in builds:
        print(f'== {build}')
        if (log := build / '.ninja_log').exists():
            steps = build_steps(log)
            for kind in [kind for kind, _ in KINDS] + ['other']:
                print_dearest(f'{kind} steps', {name: s for name, s in steps.items() if kind_of(name) == kind},
                              options.most if kind == 'compile' else 3)
        if (log := build / 'Testing/Temporary/LastTest.log').exists():
            print_dearest('runs of ctest', test_runs(log), options.most)


if __name__ == '__main__':
    main()

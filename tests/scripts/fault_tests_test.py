#!/usr/bin/env python3
"""docs/faults.md names tests that there are, at least one for each fault."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def rows_of(page):
    """Fault, what happens and tests of each line of its tables."""
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3 and cells[0] not in ("fault", "---"):
            yield cells


class Faults(unittest.TestCase):
    def test_each_names_tests_that_there_are(self):
        sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.cpp"))
        tests = {f"{suite}.{name}" for suite, name in re.findall(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", sources)}
        count = 0
        for fault, what, told in rows_of((ROOT / "docs/faults.md").read_text(encoding="utf-8")):
            names = re.findall(r"`([^`]+)`", told)
            for name in names:
                pattern = re.compile(re.escape(name).replace(r"\*", r"\w*") + "$")
                self.assertTrue(any(map(pattern.match, tests)), f"there is no test {name}, of: {fault}")
            # Or it is told at another place of the page.
            self.assertTrue(names or "](#" in what, f"no test is named of: {fault}")
            count += len(names)
        self.assertGreater(count, 100)


if __name__ == "__main__":
    unittest.main()

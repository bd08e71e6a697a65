#!/usr/bin/env python3
"""Tests of how gpu_check reads what other tools print."""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))

import check  # noqa: E402


class IsClean(unittest.TestCase):
    def test_nothing_found(self):
        self.assertTrue(check.is_clean("========= ERROR SUMMARY: 0 errors\n"))
        self.assertTrue(check.is_clean("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"))

    def test_something_found(self):
        for summary in ("ERROR SUMMARY: 10 errors", "ERROR SUMMARY: 1 error",
                        "RACECHECK SUMMARY: 10 hazards displayed (0 errors, 10 warnings)",
                        "RACECHECK SUMMARY: 20 hazards displayed (0 errors, 20 warnings)", ""):
            self.assertFalse(check.is_clean(f"========= {summary}\n"), summary)


if __name__ == "__main__":
    unittest.main()

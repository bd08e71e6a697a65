"""That every bound of the comparison on a GPU can fail, and says so: programs that are told what to answer stand for
Tessera and for Transformers."""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))

import peer_cases  # noqa: E402
import peer_table  # noqa: E402
import peers  # noqa: E402
import rows  # noqa: E402
from peer_cases import COMPILED, EAGER, FP8, OURS, Case  # noqa: E402
from peer_table import FAIL, NOT_RUN, OK, Taken  # noqa: E402

CASE = Case("tiny full", "tiny", "tiny", 2, {EAGER: 1.3, COMPILED: 1.1}, seq=32, with_fp8=True)

# Writes what it was asked beside what it was told, and answers by its name.
PROGRAM = """#!{python}
import json, pathlib, sys
here = pathlib.Path({here!r})
name = "compiled" if "--compile" in sys.argv else "fp8" if "fp8=true" in sys.argv else {name!r}
told = json.loads((here / "told.json").read_text())[name]
with (here / "asked").open("a") as file:
    file.write(json.dumps([name, *sys.argv[1:]]) + chr(10))
print("a word before")
print(told if isinstance(told, str) else json.dumps(told))
sys.exit(1 if isinstance(told, str) else 0)
"""


def answer(rate: float, gib: float = 0.0, losses: tuple[float, ...] = (6.0, 5.0)) -> dict:
    held = int(gib * 2**30)
    return {"tokens_per_s": rate, "losses": list(losses), "peak_device_bytes": held, "peak_device_live_bytes": held}


class RowsTest(unittest.TestCase):
    def test_neighbours_share_a_sequence_while_they_fit(self):
        documents = [([7] * length, [7] * length) for length in (3, 4, 2, 8, 1, 1)]
        lengths = [[len(ids) for ids, _ in sequence] for sequence in rows.sequences(documents, True, 8)]
        self.assertEqual(lengths, [[3, 4], [2], [8], [1, 1]])
        self.assertEqual(len(rows.sequences(documents, False, 8)), 6)

    def test_steps_take_sequences_in_order(self):
        documents = [([i], [i]) for i in range(8)]
        taken = rows.steps(documents, 2, 2, 2, False, 1)
        self.assertEqual([[[ids[0] for ids, _ in batch] for batch in step] for step in taken], [[[0, 1], [2, 3]], [[4, 5], [6, 7]]])
        with self.assertRaisesRegex(ValueError, "8 sequences, 5 steps need 10"):
            rows.steps(documents, 5, 1, 2, False, 1)
        self.assertEqual(len(rows.enough(documents, 20, False, 1)), 24)

    def test_the_answers_of_instructions_are_trained(self):
        with tempfile.TemporaryDirectory() as here:
            path = pathlib.Path(here) / "rows.json"
            path.write_text(json.dumps([{"instruction": "Say it.", "input": "", "output": "It is it."},
                                        {"instruction": "Nothing", "output": ""}]))
            [(ids, labels)] = rows.instructions(path, 64, 100)
            self.assertEqual([id_ - rows.FIRST_WORD for id_ in ids], [0, 1, 2, 3, 4, 1, 2])
            self.assertEqual(labels, [rows.IGNORE] * 3 + ids[3:])
            self.assertEqual(rows.instructions(path, 64, 6), [])

    def test_random_rows_repeat_themselves(self):
        for ids, labels in rows.repeating(4, 300, 512):
            self.assertEqual(ids, labels)
            self.assertTrue(any(ids[period:] == ids[:-period] for period in range(32, 129)))
            self.assertTrue(all(rows.FIRST_WORD <= id_ < 512 for id_ in ids))


class TableTest(unittest.TestCase):
    def setUp(self):
        self.taken = {OURS: Taken([answer(150, 7)]), FP8: Taken([answer(180, 6)]), EAGER: Taken([answer(100, 10)]),
                      COMPILED: Taken([answer(120, 8)])}

    def line(self, name: str, case: Case = CASE) -> peer_table.Line:
        lines = dict(zip(case.contestants, peer_table.lines_of(case, self.taken)))
        self.assertIn(lines[name].cells[3], peer_table.render(list(lines.values())))
        return lines[name]

    def expect(self, name: str, verdict: str, words: str = "", case: Case = CASE) -> None:
        line = self.line(name, case)
        self.assertEqual(line.verdict, verdict, line)
        self.assertIn(words, line.words)

    def test_what_holds_is_ok(self):
        for name in self.taken:
            self.expect(name, OK)
        self.assertEqual(self.line(EAGER).cells[5:7], ["1.50x", "1.3x"])
        self.assertEqual(self.line(EAGER).cells[9:11], ["0.70x 0.70x", "0.8x"])

    def test_speed_is_bounded(self):
        self.taken[EAGER] = Taken([answer(120, 10)])
        self.expect(EAGER, FAIL, "1.25x as fast, needs 1.3x")
        self.taken[COMPILED] = Taken([answer(137, 8)])
        self.expect(COMPILED, FAIL, "1.09x as fast, needs 1.1x")
        shown = Case("tiny recomputed", "tiny", "tiny", 2, {EAGER: None})
        self.expect(EAGER, OK, case=shown)

    def test_the_median_of_the_turns_counts(self):
        self.taken[EAGER] = Taken([answer(10, 10), answer(120, 10), answer(130, 10)])
        self.expect(EAGER, FAIL, "1.25x as fast")

    def test_memory_is_bounded_by_the_worse_of_both_figures(self):
        self.taken[OURS].runs[0]["peak_device_live_bytes"] = 9 * 2**30
        self.expect(EAGER, FAIL, "0.90 of its memory, may be 0.8")
        self.expect(COMPILED, OK)

    def test_losses_must_be_of_the_same_work(self):
        self.taken[EAGER] = Taken([answer(100, 10, (6.0, 5.2))])
        self.expect(EAGER, FAIL, "not the same work")
        for losses in ((6.0, float("nan")), ()):
            self.taken[COMPILED] = Taken([answer(100, 10, losses or (float("nan"),))])
            self.expect(COMPILED, FAIL, "not the same work")
        self.taken[FP8] = Taken([answer(180, 6, (6.0, 5.4))])
        self.expect(FP8, FAIL, "off those in bf16")
        self.taken[OURS] = Taken([answer(150, 7, (6.0, 5.9))])
        self.expect(OURS, FAIL, "does not learn")

    def test_a_peer_without_memory_is_a_line_and_ours_a_failure(self):
        self.taken[EAGER] = Taken(out_of_memory="CUDA out of memory")
        self.expect(EAGER, OK, "out of memory: CUDA")
        self.taken[OURS] = Taken(out_of_memory="E-MEMORY")
        self.expect(OURS, FAIL, "out of memory")
        self.expect(COMPILED, FAIL, "nothing of ours")

    def test_what_was_not_run_does_not_count(self):
        self.taken[EAGER] = Taken()
        self.expect(EAGER, NOT_RUN, "no time left")
        self.taken[OURS] = Taken(not_run="no time left")
        self.expect(COMPILED, NOT_RUN, "nothing of ours")
        self.taken[COMPILED] = Taken(failure="exit code 1: no torch")
        self.expect(COMPILED, FAIL, "no torch")


class PeersTest(unittest.TestCase):
    def setUp(self):
        self.here = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.here / "bin").mkdir()
        program = self.here / "bin" / "tessera"
        program.write_text(PROGRAM.format(python=sys.executable, here=str(self.here), name="tessera"))
        program.chmod(0o755)
        (self.here / "peer_steps.py").write_text(PROGRAM.format(python=sys.executable, here=str(self.here), name="eager"))
        self.addCleanup(setattr, peers, "HERE", peers.HERE)
        peers.HERE = self.here
        self.addCleanup(setattr, peers, "DRY_CASES", peers.DRY_CASES)
        peers.DRY_CASES = [CASE]
        self.told = {"tessera": answer(150), "fp8": answer(180), "eager": answer(100), "compiled": answer(120)}

    def run_all(self, *more: str) -> tuple[int, str]:
        (self.here / "told.json").write_text(json.dumps(self.told))
        (self.here / "asked").unlink(missing_ok=True)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = peers.main(["--device", "cpu", "--bundle", str(self.here), "--folder", str(self.here / "out"), "--turns", "2",
                               *more])
        return code, out.getvalue()

    def asked(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.here / "asked").read_text().splitlines()]

    def test_all_take_turns_with_the_same_work(self):
        code, text = self.run_all()
        self.assertEqual(code, 0, text)
        self.assertIn("did not run:\n  nothing", text)
        asked = self.asked()
        self.assertEqual([words[0] for words in asked], ["tessera", "fp8", "eager", "compiled"] * 2)
        ours, theirs = asked[0], asked[2]
        for own, other in (("--model", "--model"), ("--data", "--rows"), ("--micro-batch", "--micro-batch"), ("--seq", "--seq")):
            self.assertEqual(ours[ours.index(own) + 1], theirs[theirs.index(other) + 1])
        self.assertIn(f"learning_rate={theirs[theirs.index('--rate') + 1]}", ours)
        self.assertEqual(int(ours[ours.index("--steps") + 1]) + 1,
                         int(theirs[theirs.index("--steps") + 1]) + int(theirs[theirs.index("--warmup") + 1]))

    def test_a_peer_that_fails_or_has_no_memory_leaves_the_others(self):
        self.told["eager"] = {"out_of_memory": "CUDA out of memory. Tried"}
        self.told["compiled"] = "SomeError: it does not compile"
        code, text = self.run_all()
        self.assertEqual(code, 1, text)
        self.assertIn("out of memory: CUDA out of memory", text)
        self.assertIn("exit code 1: SomeError: it does not compile", text)
        self.assertIn("tiny full, torch.compile: 0 of 2 runs (exit code 1: SomeError", text)
        self.assertEqual([words[0] for words in self.asked()].count("compiled"), 1)

    def test_ours_without_memory_is_found_in_its_words(self):
        self.told["tessera"] = "tessera: error[E-MEMORY-DEVICE]: the model does not fit"
        code, text = self.run_all()
        self.assertEqual(code, 1)
        self.assertIn("out of memory: tessera: error[E-MEMORY-DEVICE]", text)

    def test_what_there_is_no_time_for_was_not_run(self):
        code, text = self.run_all("--minutes", "0")
        self.assertEqual(code, 3, text)
        self.assertIn("0 ok, 0 FAIL, 4 not run", text)
        self.assertIn("tiny full, eager: 0 of 2 runs (no time left)", text)

    def test_unknown_parts_are_refused(self):
        with contextlib.redirect_stderr(io.StringIO()) as told:
            self.assertEqual(self.run_all("--part", "9B")[0], 2)
        self.assertIn("known: 0.5B, 1.5B, 7B", told.getvalue())

    def test_every_part_has_the_bounds_that_are_promised(self):
        least = {case.name: case.least for case in peer_cases.CASES}
        self.assertEqual(least["0.5B full"], {EAGER: 1.3, COMPILED: 1.1})
        self.assertEqual(least["7B LoRA"], {EAGER: 1.3, COMPILED: 1.0})
        self.assertEqual(least["1.5B packed"], {peer_cases.PADDING_FREE: 1.5})


if __name__ == "__main__":
    unittest.main()

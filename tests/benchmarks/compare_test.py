#!/usr/bin/env python3
"""Tests of the driver behind benchmarks/compare_transformers: figures, table, processes, cases."""
import json
import os
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from compare import install, machine, main, paths, process, readers, report, runner, summary  # noqa: E402
from compare.cases import all_cases  # noqa: E402
from compare.contestants import all_contestants  # noqa: E402
from compare.context import Context, prepare_texts  # noqa: E402
from compare.model import KINDS, Case, Contestant, Rival, Sample  # noqa: E402


def sample(key: str, value: float | None, peak: int = 100, **details) -> Sample:
    return Sample(key, 1, 0 if value is not None else 1, 1.0, peak, value, details,
                  None if value is not None else "exit 1: broken")


def case(**more) -> Case:
    fields = dict(key="c", title="a case", unit="tokens/s", ours="ours", rivals=(Rival("theirs", ("a", "b"), 1.5, 0.5),),
                  group="g")
    return Case(**{**fields, **more})


class SummaryTest(unittest.TestCase):
    def test_median_and_spread(self):
        found = summary.figures([sample("x", v, p, n=v) for v, p in ((5.0, 10), (1.0, 30), (2.0, 20))])
        self.assertEqual((found.count, found.median, found.least, found.most, found.peak_bytes), (3, 2.0, 1.0, 5.0, 20))
        self.assertEqual(found.details, {"n": 2.0})
        self.assertEqual(summary.figures([sample("x", 1.0), sample("x", 4.0)]).median, 2.5)

    def test_failed_runs_do_not_count(self):
        self.assertEqual(summary.figures([sample("x", None), sample("x", 3.0)]).count, 1)
        self.assertIsNone(summary.figures([sample("x", None)]))
        self.assertIsNone(summary.figures([]))

    def test_ratio_is_against_the_best(self):
        samples = {"ours": [sample("ours", 30.0, 40)], "a": [sample("a", 10.0, 100)], "b": [sample("b", 20.0, 50)]}
        row = summary.compare(case(), case().rivals[0], samples)
        self.assertEqual((row.chosen, row.ratio, row.memory_ratio), ("b", 1.5, 0.8))
        self.assertTrue(row.is_fast_enough())
        self.assertFalse(row.is_small_enough())

    def test_less_is_better(self):
        samples = {"ours": [sample("ours", 2.0)], "a": [sample("a", 10.0)], "b": [sample("b", 5.0)]}
        row = summary.compare(case(higher_is_better=False), case().rivals[0], samples)
        self.assertEqual((row.chosen, row.ratio), ("b", 2.5))

    def test_one_failing_rival_leaves_the_other(self):
        samples = {"ours": [sample("ours", 30.0)], "a": [sample("a", None)], "b": [sample("b", 20.0)]}
        row = summary.compare(case(), case().rivals[0], samples)
        self.assertEqual(row.ratio, 1.5)
        self.assertIn("a: exit 1: broken", row.problem)

    def test_missing_sides_are_said(self):
        row = summary.compare(case(), case().rivals[0], {"a": [sample("a", 1.0)]})
        self.assertIsNone(row.ratio)
        self.assertEqual(row.theirs.median, 1.0)
        self.assertIn("ours: has not run", row.problem)
        row = summary.compare(case(unavailable="no such machine"), case().rivals[0], {})
        self.assertEqual((row.ratio, row.problem), (None, "no such machine"))
        self.assertIsNone(row.is_fast_enough())

    def test_disagreement_is_said(self):
        samples = {"ours": [sample("ours", 3.0, num_ids=7)], "a": [sample("a", 1.0, num_ids=8)]}
        one = Rival("theirs", ("a",))
        self.assertIn("differ in num_ids", summary.compare(case(must_agree=("num_ids",)), one, samples).problem)
        samples["a"] = [sample("a", 1.0, num_ids=7)]
        self.assertIsNone(summary.compare(case(must_agree=("num_ids",)), one, samples).problem)


class ReportTest(unittest.TestCase):
    def test_numbers(self):
        self.assertEqual([report.number(v) for v in (1234.4, 99.94, 9.994, 0.5)], ["1,234", "99.9", "9.99", "0.50"])

    def test_section(self):
        told = case(least_sol=0.8, explain=lambda details: f"products {details['gemm_s']}")
        samples = {"ours": [sample("ours", v, 2 * 10**9, sol=0.7, library_sol=0.75, gemm_s=4) for v in (29.0, 30.0, 31.0)],
                   "a": [sample("a", 10.0, 5 * 10**9)], "b": [sample("b", None)]}
        cases = [told, case(key="d", title="another | case", unavailable="no data")]
        text = report.section("avx512", [("date", "today")], summary.rows_of(cases, samples), {"a": "Peer A", "ours": "Tessera"})
        lines = text.splitlines()
        self.assertEqual(lines[0], "## AVX-512 without tile units")
        self.assertEqual([line for line in lines[1:] if line.startswith("#")],
                         ["### Cases", "### Distance to the physical limit", "### Notes"])
        self.assertIn("| date | today |", lines)
        self.assertIn("| a case | tokens/s | 30.0 (29.0-31.0) | theirs: Peer A | 10.0 | 3.00x | >= 1.5x | yes | 2.00 | 5.00 | "
                      "0.40x | <= 0.5x | yes |", lines)
        self.assertIn("| another / case | tokens/s | - | theirs | - | - | >= 1.5x | - | - | - | - | <= 0.5x | - |", lines)
        self.assertIn("| a case | 0.70 | 0.75 | >= 0.80 | **no** | products 4 |", lines)
        self.assertIn("- another | case, against theirs: no data", lines)
        self.assertIn("- a case, against theirs: b: exit 1: broken", lines)
        for line in lines:
            if line.startswith("| a case | tokens/s") or line.startswith("| case | unit"):
                self.assertEqual(line.count("|"), 14)

    def test_noise_is_said(self):
        samples = {"ours": [sample("ours", 10.0), sample("ours", 20.0)], "a": [sample("a", 10.0)], "b": [sample("b", 9.0)]}
        text = report.section("amx", [], summary.rows_of([case()], samples), {"ours": "Tessera"})
        self.assertIn("spread above 25% of the median: Tessera", text)


class ResultsFileTest(unittest.TestCase):
    def test_every_kind_has_its_own_section(self):
        text = ""
        for kind in ("avx2", "amx", "avx512"):
            text = report.write(text, kind, f"## {KINDS[kind]}\n\nof {kind}")
        self.assertEqual([line for line in text.splitlines() if line.startswith("## ")],
                         ["## Tile units (Intel AMX)", "## AVX-512 without tile units", "## AVX2"])
        self.assertEqual(report.sections(text)["avx2"], "## AVX2\n\nof avx2")

    def test_a_run_leaves_the_other_sections_to_the_byte(self):
        odd = "## Tile units (Intel AMX)\n\n| a  |b\t|\r\n### Cases\n\n### Cases\n  ## no heading  \n\n\nend  "
        old = report.write(report.write("", "amx", odd), "avx2", "## AVX2\n\nold")
        new = report.write(old, "avx2", "## AVX2\n\nnew")
        self.assertEqual(new, old.replace("\n\nold\n", "\n\nnew\n"))
        self.assertIn(odd, new)
        added = report.write(old, "avx512", "## AVX-512 without tile units\n\nthird")
        self.assertEqual(added.replace("## AVX-512 without tile units\n\nthird\n\n", ""), old)
        self.assertEqual(report.write(old, "amx", odd), old)

    def test_the_file_of_the_repository(self):
        text = paths.read_if_there(ROOT / "benchmarks" / "RESULTS.md")
        found = report.sections(text)
        self.assertIn("amx", found)
        self.assertEqual(report.write(text, "amx", found["amx"]), text)
        self.assertEqual(report.sections(report.write(text, "baseline", f"## {KINDS['baseline']}\n\nx")),
                         {**found, "baseline": f"## {KINDS['baseline']}\n\nx"})

    def test_another_file_is_refused(self):
        self.assertEqual(report.sections(" \n"), {})
        with self.assertRaisesRegex(ValueError, "no table of results"):
            report.sections("# My notes\n")
        title = "# Tessera beside its peers\n\n"
        with self.assertRaisesRegex(ValueError, "'Cases' is not known"):
            report.sections(title + "## Cases\n")
        with self.assertRaisesRegex(ValueError, "'AVX2' is there twice"):
            report.sections(title + "## AVX2\n\na\n\n## AVX2\n\nb\n")

    def test_what_would_be_lost_ends_the_run_before_it_starts(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        notes = folder / "notes.md"
        notes.write_bytes(b"my notes\r\n")
        with self.assertRaisesRegex(ValueError, "notes.md: the file is no table"):
            main.check_out(notes)
        with self.assertRaisesRegex(ValueError, "name another file by --out"):
            main.check_out(folder)
        main.check_out(folder / "new.md")
        with (unittest.mock.patch.object(main, "make_context", side_effect=AssertionError("has started")),
              unittest.mock.patch("sys.stderr")):
            self.assertEqual(main.main(["--out", str(notes)]), 2)
        self.assertEqual(notes.read_bytes(), b"my notes\r\n")


class MachineTest(unittest.TestCase):
    DOCTOR = ("processor              Some CPU\nAMX trap               CPUID reports AMX without tile palettes; oneDNN is held at "
              "AVX512_CORE_FP16\nmemory                 8 GiB, 7 GiB free\n\nmatrix products (GFLOP/s)\n")

    def test_isa_limit_comes_from_doctor(self):
        rows = machine.doctor_rows(self.DOCTOR)
        self.assertEqual(rows["processor"], "Some CPU")
        self.assertEqual(machine.isa_limit(rows), "AVX512_CORE_FP16")
        self.assertIsNone(machine.isa_limit({"processor": "Some CPU"}))

    def test_environment_is_the_same_for_all(self):
        with unittest.mock.patch.dict(os.environ, {"OMP_NUM_THREADS": "7"}):
            env = machine.environment("AVX512_CORE_FP16", {})
        self.assertNotIn("OMP_NUM_THREADS", env)
        self.assertEqual(env["ONEDNN_MAX_CPU_ISA"], "AVX512_CORE_FP16")
        self.assertEqual(env["TOKENIZERS_PARALLELISM"], "false")

    def test_kind_comes_from_doctor(self):
        def kind(used: str) -> str:
            rows = machine.doctor_rows(self.DOCTOR.replace("\n\n", f"\nin use                 {used}\n\n", 1))
            return machine.kind_of(rows)
        for name in KINDS:
            self.assertEqual(kind(f"{name} (TESSERA_ISA=avx2|avx512|amx holds it lower)"), name)
        with self.assertRaisesRegex(ValueError, "got 'sse', need one of amx, avx512"):
            kind("sse (of old)")
        with self.assertRaisesRegex(ValueError, "got 'no such row'"):
            machine.kind_of(machine.doctor_rows(self.DOCTOR))

    def capped(self, cap: str, kind: str, **more: str) -> tuple[dict[str, str], dict[str, str]]:
        with unittest.mock.patch.dict(os.environ, {"TESSERA_ISA": cap, **more}):
            holds = machine.holds_of(machine.isa_cap(), kind)
            env = machine.environment(None, holds)
        return env, dict(machine.describe({}, kind, env, holds))

    def test_a_cap_holds_the_peers_too(self):
        names = ("TESSERA_ISA", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")
        set_by_user = {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_VERBOSE": "1"}
        env, header = self.capped("avx2", "avx2", **set_by_user)
        self.assertEqual([env.get(name) for name in names], ["avx2", "avx2", "AVX2", "AVX2"])
        self.assertNotIn("MKL_VERBOSE", env)
        self.assertEqual(header["in use by Tessera"], "avx2")
        self.assertEqual(header["held lower, both sides"], "TESSERA_ISA=avx2, ATEN_CPU_CAPABILITY=avx2, "
                         "ONEDNN_MAX_CPU_ISA=AVX2, MKL_ENABLE_INSTRUCTIONS=AVX2")
        self.assertEqual(header["limit on oneDNN, for both sides"], "AVX2")
        env, _ = self.capped("avx512", "avx512")
        self.assertEqual([env.get(name) for name in names], ["avx512", "avx512", "AVX512_CORE_FP16", "AVX512"])
        # A cap above the processor promises it nothing that it lacks.
        env, _ = self.capped("avx512", "avx2")
        self.assertEqual([env.get(name) for name in names], ["avx512", "avx2", "AVX2", "AVX2"])

    def test_without_a_cap_nobody_is_held(self):
        for cap in ("", "amx"):
            env, header = self.capped(cap, "avx512")
            self.assertNotIn("MKL_ENABLE_INSTRUCTIONS", env)
            self.assertEqual(env.get("ATEN_CPU_CAPABILITY"), os.environ.get("ATEN_CPU_CAPABILITY"))
            self.assertEqual(header["held lower, both sides"], "TESSERA_ISA=amx" if cap else "no")

    def test_a_cap_of_another_name_is_refused(self):
        with unittest.mock.patch.dict(os.environ, {"TESSERA_ISA": "sse"}), unittest.mock.patch("sys.stderr"):
            with self.assertRaisesRegex(ValueError, "got 'sse', need avx2, avx512, amx"):
                machine.isa_cap()
            self.assertEqual(main.main(["--list"]), 2)

    def test_bf16_is_not_fast_below_avx512(self):
        with unittest.mock.patch.object(machine, "_cpu_flags", return_value={"avx2", "avx512_bf16"}):
            self.assertEqual([machine.has_fast_bf16(cap) for cap in (None, "amx", "avx512", "avx2")],
                             [True, True, True, False])


class ProcessTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def run_python(self, code: str, timeout_s: float = 60.0, watched=None) -> process.Finished:
        return process.run([sys.executable, "-c", code], dict(os.environ), self.folder, self.folder / "log", timeout_s,
                           watched)

    def test_peak_is_the_largest_process_of_the_tree(self):
        size = 200_000_000
        inner = f"x = bytearray({size}); x[::4096] = bytes(len(x[::4096]))"
        finished = self.run_python(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}], check=True)")
        self.assertEqual(finished.exit_code, 0, finished.log)
        self.assertGreater(finished.peak_bytes, size)
        self.assertLess(finished.peak_bytes, 2 * size)

    def test_failure_gives_its_reason(self):
        finished = self.run_python("import sys; print('fine'); sys.exit('tessera: error[E-X]: what')")
        self.assertEqual(finished.exit_code, 1)
        self.assertEqual(finished.reason(), "exit 1: tessera: error[E-X]: what")

    def test_timeout_ends_the_process(self):
        finished = self.run_python("import time; time.sleep(600)", timeout_s=0.2)
        self.assertNotEqual(finished.exit_code, 0)
        self.assertIn("ended after", finished.reason())

    def test_watched_file_stops_the_clock(self):
        file = self.folder / "done"
        finished = self.run_python(f"open({str(file)!r}, 'w').write('x')", watched=file.exists)
        self.assertIsNotNone(finished.watched_s)
        self.assertLessEqual(finished.watched_s, finished.wall_s)


class RunnerTest(unittest.TestCase):
    def test_alternates_and_survives_failures(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        order = []

        def contestant(key: str, code: str) -> Contestant:
            def command(_folder: pathlib.Path) -> list[str]:
                order.append(key)
                return [sys.executable, "-c", code]
            return Contestant(key, key, command, readers.field("value"), 1)

        good = "import json, os; print('x'); print(json.dumps({'value': int(os.environ['OMP_NUM_THREADS'])}))"
        contestants = {"ours": contestant("ours", good), "a": contestant("a", "print('no json')"),
                       "b": contestant("b", "raise SystemExit(3)")}
        saved, samples = [], {}
        running = runner.Runner(contestants, dict(os.environ), folder, 60.0, lambda _text: None)
        running.run([case()], 3, samples, lambda: saved.append(sum(map(len, samples.values()))))
        self.assertEqual(order, ["ours", "a", "b", "ours", "a", "b", "ours"])
        self.assertEqual(saved, [3, 6, 7])
        self.assertEqual([s.value for s in samples["ours"]], [1.0, 1.0, 1.0])
        self.assertIn("does not end with a JSON object", samples["a"][0].failure)
        self.assertEqual(samples["b"][0].exit_code, 3)

    def test_missing_program_is_a_failure(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        lost = Contestant("ours", "ours", lambda _folder: ["/nowhere/tessera"], readers.field("value"), 1)
        taken = runner.Runner({"ours": lost}, {}, folder, 60.0, lambda _text: None).run_once("ours", 1)
        self.assertIn("cannot start", taken.failure)


    def test_what_is_compiled_for_one_instruction_set_is_kept_apart(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        show = "import json, os; print(json.dumps({'value': 1, 'at': os.environ['TORCHINDUCTOR_CACHE_DIR']}))"
        contestant = Contestant("a", "a", lambda _folder: [sys.executable, "-c", show], readers.field("value"), 1)
        places = {runner.Runner({"a": contestant}, env, folder, 60.0, lambda _text: None).run_once("a", 1).details["at"]
                  for env in ({}, {"ATEN_CPU_CAPABILITY": "avx2"}, {"ATEN_CPU_CAPABILITY": "avx512"})}
        self.assertEqual(len(places), 3)


class ReadersTest(unittest.TestCase):
    def test_label_rate_leaves_the_warm_up_out(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "out").mkdir()
        steps = [{"step": n, "loss": 1.0, "label_tokens": t, "tokens": 100, "step_s": s, "sol": 0.5}
                 for n, t, s in ((1, 999, 9.0), (2, 30, 1.0), (3, 50, 1.0))]
        (folder / "out" / "metrics.jsonl").write_text("".join(json.dumps(s) + "\n" for s in [*steps, {"eval_loss": 1}]))
        measured = readers.label_rate(None, folder)
        self.assertEqual((measured.value, measured.details["tokens"]), (40.0, 200))

    def test_decode_rate_knows_its_limit(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        context = Context(folder, folder, folder, folder, folder, folder, 2, bytes_per_s=2000.0)
        finished = process.Finished(0, 1.0, 1, json.dumps({"tokens_per_s": 20.0, "bytes_per_token_read": 25}), "")
        measured = readers.decode_rate(context)(finished, folder)
        self.assertEqual((measured.value, measured.details["sol"], measured.details["limit_tokens_per_s"]), (20.0, 0.25, 80.0))


class CasesTest(unittest.TestCase):
    def setUp(self):
        folder = pathlib.Path("/nowhere")
        self.context = Context(folder, folder, folder, folder, folder, folder, 4)

    def test_every_case_has_its_contestants(self):
        known = all_contestants(self.context)
        cases = all_cases(has_fast_bf16=True, has_data=True)
        self.assertEqual(len({case.key for case in cases}), len(cases))
        for one in cases:
            for key in (one.ours, *(key for rival in one.rivals for key in rival.keys)):
                self.assertIn(key, known)
                self.assertEqual(known[key].threads, known[one.ours].threads)
        used = {key for _, keys in runner.groups_of(cases) for key in keys}
        self.assertEqual(used, set(known))
        self.assertEqual(known["fsdp2"].threads, 2)

    def floors(self, kind: str) -> dict[str, list[float | None]]:
        return {one.key: [rival.least_ratio for rival in one.on(kind).rivals]
                for one in all_cases(has_fast_bf16=kind in ("amx", "avx512"), has_data=True)}

    def test_floors_are_of_the_kind_of_processor(self):
        same = {"qlora": [2.0], "full-bf16-blocks": [None], "instruct": [2.5, 2.5, 1.6], "generate-1-bf16": [None],
                "generate-8": [None], "generate-8-bf16": [None], "tokenize": [2.0], "startup": [None],
                "ddp": [2.0], "hsdp": [2.0], "tp": [2.0], "pp": [2.0], "interleaved": [2.0]}
        vectors = {**same, "full": [1.8], "full-bf16": [1.6], "full-bf16-mlp": [1.6], "lora": [1.9, 1.3],
                   "lora-bf16": [2.2], "sharded": [2.2], "generate-1": [1.5]}
        slow = {**same, "full-bf16": [1.1], "full-bf16-mlp": [1.1], "lora-bf16": [1.1]}
        self.assertEqual(self.floors("amx"), {**same, "full": [1.4], "full-bf16": [2.2], "full-bf16-mlp": [2.2],
                                              "lora": [1.8, 1.3], "lora-bf16": [2.8], "sharded": [1.8], "generate-1": [1.5]})
        self.assertEqual(self.floors("avx512"), vectors)
        self.assertEqual(self.floors("avx2"), {**slow, "full": [1.25], "lora": [1.35, 1.3], "sharded": [1.7], "generate-1": [2.0]})
        self.assertEqual(self.floors("baseline"), {**dict.fromkeys(vectors, [None]), **slow, "lora": [None, 1.3]})

    def test_bounds_on_memory_are_the_same_everywhere(self):
        bounds = {kind: [rival.most_memory for one in all_cases(True, True) for rival in one.on(kind).rivals]
                  for kind in KINDS}
        for kind in KINDS:
            self.assertEqual(bounds[kind], bounds["amx"])
        self.assertIn(0.45, bounds["amx"])

    def test_the_share_of_the_limit_is_bounded_on_tile_units_alone(self):
        shares = {kind: {one.on(kind).least_sol for one in all_cases(True, True)} for kind in KINDS}
        self.assertEqual(shares, {"amx": {None, 0.8}, "avx512": {None}, "avx2": {None}, "baseline": {None}})

    def test_cases_that_cannot_run_say_so(self):
        cases = {one.key: one for one in all_cases(has_fast_bf16=False, has_data=False)}
        self.assertTrue(cases["full-bf16-blocks"].unavailable and cases["instruct"].unavailable)
        self.assertNotIn("instruct", [group for group, _ in runner.groups_of(list(cases.values()))])
        full = dict(runner.groups_of(list(cases.values())))["full"]
        self.assertIn("ours-full-bf16", full)
        self.assertNotIn("transformers-bf16", full)

    def test_choice(self):
        cases = all_cases(True, True)
        self.assertEqual([one.key for one in main.choose(cases, "lora, full")], ["full", "lora"])
        of_ranks = main.choose(cases, None, "ranks")
        self.assertEqual([one.key for one in of_ranks], ["ddp", "hsdp", "tp", "pp", "interleaved"])
        self.assertEqual(main.choose(cases, None), [one for one in cases if one not in of_ranks])
        with self.assertRaisesRegex(ValueError, "no such case: magic"):
            main.choose(cases, "full,magic")

    def test_texts(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        data = folder / "data.json"
        data.write_text(json.dumps([{"instruction": "Do", "input": "", "output": "Done\nwell"}] * 600))
        instructions, text = prepare_texts(data, folder / "work")
        self.assertEqual(len(json.loads(instructions.read_text())), 512)
        self.assertEqual(text.read_text(), "Do\nDone\nwell\n" * 600)

    def test_stated_versions_are_the_first_block(self):
        versions = install.stated_versions()
        self.assertEqual(versions["torch"], "2.11.0")
        self.assertLessEqual({"transformers", "peft", "accelerate", "trl", "tokenizers"}, set(versions))
        self.assertNotIn("numpy", versions)

    def test_write_whole_replaces(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for text in ("first", "second"):
            paths.write_whole(folder / "deep" / "R.md", text)
        self.assertEqual(paths.read_if_there(folder / "deep" / "R.md"), "second")
        self.assertEqual(paths.read_if_there(folder / "none.md"), "")
        self.assertEqual(len(list((folder / "deep").iterdir())), 1)


if __name__ == "__main__":
    unittest.main()

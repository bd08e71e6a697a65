"""That every line of a GPU's check can fail, and says so: a program that is told what to answer stands for Tessera."""
import argparse
import json
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))

import check  # noqa: E402

DOCTOR = """LibTorch 2.11
GPU                    Some GPU (139 GiB)
GPU kernels            libtessera_cuda.so

bf16 products                 700 TFLOP/s
fp8 products                 1200 TFLOP/s
float32 products               50 TFLOP/s
tf32 products                 300 TFLOP/s
copy on the device           4000 GB/s
copy from the host             50 GB/s
"""
TESTS_PASS = "[ RUN      ] A.B\n[==========] 3 tests ran.\n[  PASSED  ] 3 tests.\n"
TESTS_SKIP = "[  SKIPPED ] A.B (0 ms)\n[  PASSED  ] 0 tests.\n[  SKIPPED ] 1 test, listed below:\n[  SKIPPED ] A.B\n"
TESTS_FAIL = "[  PASSED  ] 2 tests.\n[  FAILED  ] 1 test, listed below:\n[  FAILED  ] A.C, where GetParam() = 3\n"

# Answers by verb: what is printed, and for `train` the losses of each device, which fall by `slope` a step.
PROGRAM = """#!{python}
import json, pathlib, sys
told = json.loads(pathlib.Path({told!r}).read_text())
verb = sys.argv[1]
if verb in told.get("fails", []):
    sys.exit("tessera: error[E-TEST]: told to fail")
if verb == "train":
    keys = dict(word.split("=", 1) for word in sys.argv[3:])
    out = pathlib.Path(keys["output_dir"])
    out.mkdir()
    factor = 1.0 + (told.get("error", 0.0) if keys["device"] != "cpu" else 0.0)
    lines = [{{"loss": (6.0 - told.get("slope", 0.1) * i) * factor}} for i in range(told.get("steps", 20))]
    (out / "metrics.jsonl").write_text("".join(json.dumps(line) + chr(10) for line in lines))
    differs = told.get("differs") or told.get("obeys") and keys.get("deterministic") != "true"
    (out / "model.safetensors").write_text(out.name if differs else "weights")
elif verb == "bench":
    print(json.dumps(told["bench"]))
else:
    print(told.get(verb, ""))
"""


class GpuCheckTest(unittest.TestCase):
    def setUp(self):
        self.here = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.here / "bin").mkdir()
        (self.here / "lib").mkdir()
        self.told = {"--version": "tessera 1", "doctor": DOCTOR}
        self.tests = TESTS_PASS
        self.tests_code = 0

    def write(self, name, text):
        path = self.here / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def verdicts(self, only, device="cuda", minutes=5.0):
        (self.here / "told.json").write_text(json.dumps(self.told))
        self.write("tessera", PROGRAM.format(python=sys.executable, told=str(self.here / "told.json")))
        self.write("cuda_tests", f"#!/bin/sh\ncat <<'END'\n{self.tests}END\nexit {self.tests_code}\n")
        made = check.Check(argparse.Namespace(device=device, only=only, bundle=self.here, folder=self.here / "out",
                                              minutes=minutes))
        made.all_lines()
        self.assertTrue(made.lines, f"no line is named {only}")
        self.assertIn(made.lines[0].name, made.table())
        return [(line.verdict, line.found) for line in made.lines]

    def expect(self, only, verdict, words="", **more):
        for got, found in self.verdicts(only, **more):
            self.assertEqual(got, verdict, found)
            self.assertIn(words, found)

    def test_the_program_starts(self):
        self.expect("starts", check.OK, "tessera 1")
        self.told["fails"] = ["--version"]
        self.expect("starts", check.FAIL, "told to fail")

    def test_doctor_finds_a_gpu_and_measures_it(self):
        self.expect("doctor", check.OK, "bf16 700, fp8 1200, tf32 300")
        self.told["doctor"] = DOCTOR.replace("1200 TFLOP/s", "- no such type")
        self.told["doctor"] = self.told["doctor"].replace("fp8 products                 -", "fp8 products -")
        self.expect("doctor", check.FAIL, "no rate of fp8 products")
        self.told["doctor"] = "GPU                    none: no NVIDIA driver\n"
        self.expect("doctor", check.FAIL, "no NVIDIA driver")
        self.expect("doctor", check.NOT_RUN, "no NVIDIA driver", device="cpu")

    def test_own_kernels_are_opened(self):
        self.expect("own kernels", check.NOT_RUN, "made without")
        (self.here / "lib" / "libtessera_cuda.so").write_bytes(b"x" * 2**20)
        self.expect("own kernels", check.OK, "1.0 MiB, opened")
        self.told["doctor"] = "GPU kernels            LibTorch's: undefined symbol\n"
        self.expect("own kernels", check.FAIL, "undefined symbol")

    def test_every_test_ran_and_passed(self):
        self.expect("cuda tests", check.OK, "3 passed")
        self.expect("ops", check.OK, "3 passed")
        self.tests, self.tests_code = TESTS_SKIP, check.NOTHING_RAN
        self.expect("ops", check.FAIL, "1 skipped: [  SKIPPED ] A.B")
        self.expect("cuda tests", check.FAIL, "1 skipped: [  SKIPPED ] A.B")
        self.expect("two processes on one GPU", check.NOT_RUN, "0 passed, 1 skipped, see processes.log")
        self.expect("cuda tests", check.NOT_RUN, "1 tests need", device="cpu")
        self.tests, self.tests_code = TESTS_FAIL, 1
        self.expect("cuda tests", check.FAIL, "1 failed: A.C")
        self.tests, self.tests_code = "Segmentation fault\n", 139
        self.expect("cuda tests", check.FAIL, "without a word of the end")

    def test_losses_follow_the_cpus_and_fall(self):
        self.told["error"] = 5e-5
        self.expect("losses llama", check.OK)
        self.told["error"] = 1e-3
        self.expect("losses llama fp32", check.FAIL, "1.0e-03 off the CPU's (bound 1e-04)")
        self.expect("losses llama bf16", check.OK)
        self.told.update(error=0.0, slope=0.0)
        self.expect("losses qwen2", check.FAIL, "does not learn")
        self.told.update(slope=0.1, steps=19)
        self.expect("losses gpt2", check.FAIL, "19 steps of 20")
        self.told["fails"] = ["train"]
        self.expect("losses gpt2", check.FAIL, "told to fail")

    def test_every_test_is_in_one_line(self):
        self.write("cuda_tests", "")
        script = "#!/bin/sh\necho \"$1\" >>" + str(self.here / "asked") + "\ncat <<'END'\n" + TESTS_PASS + "END\n"
        self.tests = TESTS_PASS
        write, self.write = self.write, lambda name, text: write(name, script if name == "cuda_tests" else text)
        self.verdicts("ops,cuda tests,two processes on one GPU,ranks on one GPU")
        ops, others, processes, ranks = (self.here / "asked").read_text().split()
        self.assertEqual(ops, "--gtest_filter=*LeavesOf*:*CudaShapes*")
        self.assertEqual(ranks, "--gtest_filter=RanksOnOneGpu.*")
        self.assertEqual(others, "--gtest_filter=-*LeavesOf*:*CudaShapes*:*RatesAgainstTheCopysRate:RanksOnOneGpu.*:"
                         "RatesOfAttention*:*TwoProcessesOnOneGpu")
        self.assertEqual(processes, "--gtest_filter=*TwoProcessesOnOneGpu")

    def rates(self, *shares):
        names = ("add + norm, bf16, 16384 x 3584", "swiglu, bf16, 8192 x 18944", "adamw, float32 states, bf16 gradient")
        rows = [f"{name:44} {4000 * share / 100:7.0f} GB/s {share:5.1f} % of the copy" for name, share in zip(names, shares)]
        return "\n".join([f"{'copy':44} {4000:7.0f} GB/s", *rows, "[  PASSED  ] 1 test.\n"])

    def test_the_largest_kernels_reach_a_share_of_the_copys_rate(self):
        self.tests = self.rates(91.2, 80.0, 85.0)
        self.expect("kernel rates", check.OK, "copy 4000 GB/s; add + norm, bf16, 16384 x 3584 91 %, swiglu")
        self.tests = self.rates(91.2, 79.9, 85.0)
        self.expect("kernel rates", check.FAIL, "swiglu, bf16, 8192 x 18944: 79.9 % of the copy's rate, needs 80")
        self.tests = self.rates(91.2, 85.0)
        self.expect("kernel rates", check.FAIL, "no rate of adamw, float32 states")
        self.tests = TESTS_SKIP
        self.expect("kernel rates", check.FAIL, "skipped")
        self.expect("kernel rates", check.NOT_RUN, "need a CUDA device", device="cpu")

    def test_attention_is_faster_than_flash_attention(self):
        def rows(own, flash):
            return "\n".join(f"{name + ', documents of 4096':44} {rate:7.0f} TFLOP/s {flash:7.0f} by flash attention 2"
                             for name, rate in (("forward", own), ("backward", 450)))

        self.tests = rows(580, 360) + "\n[  PASSED  ] 1 test.\n"
        self.expect("attention rates", check.OK, "forward, documents of 4096 580, flash 360; backward")
        self.tests = rows(350, 360) + "\n[  PASSED  ] 1 test.\n"
        self.expect("attention rates", check.FAIL, "flash attention 2 is faster: forward, documents of 4096 |")
        self.tests = TESTS_PASS
        self.expect("attention rates", check.FAIL, "no rates")
        self.tests = TESTS_SKIP
        self.expect("attention rates", check.NOT_RUN, "need a CUDA device", device="cpu")

    def test_two_runs_have_the_same_bits(self):
        self.told["obeys"] = True
        self.expect("same bits", check.OK)
        self.told["differs"] = True
        self.expect("same bits", check.FAIL, "the same losses, other weights")

    def test_speed_is_held_to_its_milestone(self):
        self.told["bench"] = {"tokens_per_s": 140000.0, "peak_device_bytes": 2**30}
        self.expect("speed 0.5B", check.OK, "140,000 tokens/s, in fp8 140,000, 1.0 GiB")
        self.told["bench"]["tokens_per_s"] = 105000.0
        self.expect("speed 0.5B", check.FAIL, "below 115,000 tokens/s")
        self.told["fails"] = ["bench"]
        self.expect("speed 0.5B", check.FAIL, "told to fail")

    def test_the_sanitizers_findings_fail(self):
        tools = self.here / "tools"
        tools.mkdir()
        tool = tools / "compute-sanitizer"
        os.environ["PATH"], before = f"{tools}:{os.environ['PATH']}", os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", before)
        for text, code, passed, verdict in (
                ("ERROR SUMMARY: 0 errors", 0, TESTS_PASS, check.OK), ("ERROR SUMMARY: 2 errors", 9, TESTS_PASS, check.FAIL),
                ("RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)", 0, TESTS_PASS, check.OK),
                ("ERROR SUMMARY: 0 errors", 0, TESTS_SKIP, check.FAIL), ("ERROR SUMMARY: 0 errors", 0, "", check.FAIL),
                ("it says nothing", 0, TESTS_PASS, check.FAIL)):
            tool.write_text(f"#!/bin/sh\necho \"$@\"\necho $PYTORCH_NO_CUDA_MEMORY_CACHING\ncat <<'END'\n{passed}END\necho '========= {text}'\nexit {code}\n")
            tool.chmod(0o755)
            self.expect("sanitizer", verdict)
        asked = [(self.here / "out" / f"sanitizer-{name}.log").read_text().splitlines()[0] for name in check.SANITIZERS]
        for name, line in zip(check.SANITIZERS, asked):
            self.assertIn(f"--tool {name} ", line)
            self.assertEqual("--kernel-name kns=tessera" in line, name in ("racecheck", "synccheck"))
            tests = "*Kernel.*" if name in ("initcheck", "racecheck") else "*Sanitized*/Own*:*Kernel.*"
            self.assertTrue(line.endswith(f" --gtest_filter={tests}"), line)
        envs = {name: (self.here / "out" / f"sanitizer-{name}.log").read_text().splitlines()[1] for name in check.SANITIZERS}
        self.assertEqual(envs, {name: "1" if name in ("memcheck", "initcheck") else "" for name in check.SANITIZERS})
        self.expect("sanitizer", check.NOT_RUN, "needs a CUDA device", device="cpu")
        self.expect("sanitizer", check.NOT_RUN, "no time left", minutes=0.0)

    def test_the_sanitizers_run_side_by_side(self):
        tools = self.here / "tools"
        tools.mkdir()
        tool = tools / "compute-sanitizer"
        # Each waits until all have come, and so for ever where one comes after another.
        tool.write_text(f"#!/bin/sh\ntouch {self.here}/$2.there\n"
                        f"while [ $(ls {self.here}/*.there | wc -l) -lt 4 ]; do sleep 0.05; done\n"
                        f"cat <<'END'\n{TESTS_PASS}END\necho '========= ERROR SUMMARY: 0 errors'\n")
        tool.chmod(0o755)
        os.environ["PATH"], before = f"{tools}:{os.environ['PATH']}", os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", before)
        self.expect("sanitizer", check.OK, "3 tests clean")

    def test_what_there_is_no_time_for_was_not_run(self):
        self.expect("starts,losses", check.NOT_RUN, "no time left", minutes=0.0)

    def test_what_hangs_is_ended(self):
        self.write("slow", "#!/bin/sh\nsleep 60\n")
        made = check.Check(argparse.Namespace(device="cuda", only="", bundle=self.here, folder=self.here / "out", minutes=5.0))
        with self.assertRaisesRegex(check.Failed, "ran past 2 s, see slow.log"):
            made.run("slow", [str(self.here / "bin" / "slow")], 2)


if __name__ == "__main__":
    unittest.main()

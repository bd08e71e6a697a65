"""Holds Tessera on a GPU to what it promises: one run, one table, one line a promise, each of which can fail.

Started by gpu_check.sh, which finds the libraries. A line is `ok`, `FAIL`, or `not run` with the reason; the exit code
is 0 only where every line is ok, and 3 where nothing failed and some were not run.
"""
import argparse
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import models  # noqa: E402
from running import Failed, NotRun, Runner, Running  # noqa: E402

OK, FAIL, NOT_RUN = "ok", "FAIL", "not run"
STEPS = 20
# The largest relative distance of a loss from the CPU's in 20 steps.
LOSS_BOUNDS = {"fp32": 1e-4, "bf16": 2e-2, "fp8": 5e-2}


@dataclasses.dataclass(frozen=True)
class Speed:
    """A row of the table of speed: a full finetune, or LoRA, of one micro-batch of documents of 1024 tokens."""
    shape: str
    documents: int
    lora_r: int
    milestone: float  # tokens/s on an H200 that the first milestone asks for


# Tests of cuda_tests by gtest's filter: each op against the CPU, kernels against the copy's rate, the small ones (those
# of Tessera's kernels alone among them), axes of parallelism, and cuDNN's attention against flash attention 2.
OPS, RATES, KERNELS = "*LeavesOf*:*CudaShapes*", "*RatesAgainstTheCopysRate", "*Kernel.*"
SMALL = f"*Sanitized*/Own*:{KERNELS}"
RANKS, ATTENTION = "RanksOnOneGpu.*", "RatesOfAttention*"
# The exit code of tests that were all skipped (tests/testing/main.cpp).
NOTHING_RAN = 77
# NCCL may refuse two processes on one GPU.
PROCESSES = "*TwoProcessesOnOneGpu"
# The largest kernels that are not products, and the share of the copy's rate that each reaches at least.
LARGEST = ("add + norm, bf16", "swiglu, bf16", "adamw, float32 states")
LEAST_RATE = 80.0
SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
# Each tensor is memory of its own, so that what is read or written beside it is seen.
NO_CACHING = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTORCH_ALLOC_CONF": "expandable_segments:False"}

SPEEDS = [Speed("0.5B", 16, 0, 115e3), Speed("1.5B", 8, 0, 46e3), Speed("7B", 4, 16, 12e3)]
DRY_SPEEDS = [Speed("tiny", 2, 0, 0.0)]


def is_clean(text: str) -> bool:
    """Whether compute-sanitizer's summary tells of nothing: one may end with 0 after what it only warns of."""
    return re.search(r"SUMMARY: 0 (errors|hazards)\b", text) is not None


@dataclasses.dataclass
class Line:
    name: str
    found: str
    verdict: str
    seconds: float


class Check(Runner):
    def __init__(self, options: argparse.Namespace) -> None:
        self.device = options.device
        self.is_dry = options.device == "cpu"
        self.only = options.only.split(",") if options.only else []
        self.bundle = options.bundle
        super().__init__(options.folder, options.minutes)
        self.program = str(self.bundle / "bin" / "tessera")
        self.tests = str(self.bundle / "bin" / "cuda_tests")
        self.lines: list[Line] = []

    def is_asked(self, name: str) -> bool:
        return not self.only or any(name.startswith(only) for only in self.only)

    def line(self, name: str, work: Callable[[], str]) -> None:
        if not self.is_asked(name):
            return
        start = time.monotonic()
        try:
            if self.left_s() <= 0.0:
                raise NotRun("no time left")
            found, verdict = work(), OK
        except Failed as error:
            found, verdict = str(error), FAIL
        except NotRun as error:
            found, verdict = str(error), NOT_RUN
        except Exception as error:  # a line that cannot be read is no line that holds
            found, verdict = f"{type(error).__name__}: {error}", FAIL
        self.lines.append(Line(name, found.replace("\n", " "), verdict, time.monotonic() - start))
        print(f"{verdict:8} {name:28} {found}", flush=True)

    # The lines.

    def starts(self) -> str:
        return self.must("version", [self.program, "--version"], 60).strip()

    def doctor(self) -> str:
        text = self.must("doctor", [self.program, "doctor"], 120)
        rows = [row for row in text.splitlines() if row.startswith("GPU ")]
        if not rows:
            raise Failed("doctor says nothing of a GPU")
        if "none" in rows[0] or "not used" in rows[0]:
            if self.is_dry:
                raise NotRun(rows[0][4:].strip())
            raise Failed(rows[0][4:].strip())
        rates = {}
        for name in ("bf16 products", "fp8 products", "tf32 products", "copy on the device", "copy from the host"):
            row = next((line for line in text.splitlines() if line.startswith(name)), None)
            if row is None or row[len(name):].split()[0] == "-":
                raise Failed(f"no rate of {name}: {row}")
            rates[name] = float(row[len(name):].split()[0])
        kernels = next((line.split(None, 2)[2] for line in text.splitlines() if line.startswith("GPU kernels")), "?")
        return (f"{rows[0][4:].strip()}; bf16 {rates['bf16 products']:.0f}, fp8 {rates['fp8 products']:.0f}, tf32 "
                f"{rates['tf32 products']:.0f} TFLOP/s; copy {rates['copy on the device']:.0f} GB/s, from the host "
                f"{rates['copy from the host']:.0f}; kernels: {kernels}")

    def own_kernels(self) -> str:
        library = self.bundle / "lib" / "libtessera_cuda.so"
        if not library.exists():
            raise NotRun("the bundle was made without libtessera_cuda.so")
        text = self.must("kernels", [self.program, "doctor"], 120)
        row = next((line for line in text.splitlines() if line.startswith("GPU kernels")), None)
        if row is None:
            if self.is_dry:
                raise NotRun("no GPU, so they are not opened")
            raise Failed("doctor says nothing of them")
        if not row.endswith("libtessera_cuda.so"):
            raise Failed(row)
        return f"{library.stat().st_size / 2**20:.1f} MiB, opened"

    def passes(self, name: str, tests: str, may_skip: bool = False) -> tuple[int, str]:
        """How many of these tests of cuda_tests ran, and their output; all of them passed. One that was skipped fails, or
        with `may_skip` was not run."""
        code, text = self.run(name, [self.tests, f"--gtest_filter={tests}"], 180)
        if "[  PASSED  ]" not in text:
            raise Failed(f"exit code {code} without a word of the end: {text.strip().splitlines()[-1:]}")
        passed = int(text.split("[  PASSED  ] ")[1].split()[0])
        skipped = [line for line in text.splitlines() if line.startswith("[  SKIPPED ] ") and "listed below" not in line
                   and "(" not in line]
        failed = sorted({line.split()[3].rstrip(",") for line in text.splitlines()
                         if line.startswith("[  FAILED  ] ") and "." in line})
        if code not in (0, NOTHING_RAN) or failed:
            raise Failed(f"exit code {code}; {len(failed)} failed: {', '.join(failed[:4])}")
        if skipped and passed == 0 and self.is_dry:
            raise NotRun(f"{len(skipped)} tests need a CUDA device")
        if skipped and may_skip:
            raise NotRun(f"{passed} passed, {len(skipped)} skipped, see {name}.log")
        if skipped or passed == 0:
            raise Failed(f"{passed} passed, {len(skipped)} skipped: {', '.join(skipped[:3])}")
        return passed, text

    def cuda_tests(self, name: str, tests: str, may_skip: bool = False) -> str:
        return f"{self.passes(name, tests, may_skip)[0]} passed"

    def rates(self) -> str:
        _, text = self.passes("rates", RATES)
        shares = {row[:44].strip(): float(row[44:].split("GB/s")[1].split()[0]) for row in text.splitlines()
                  if row.endswith("% of the copy")}
        copy = next((row[44:].split()[0] for row in text.splitlines() if row.startswith("copy ")), "?")
        told = f"copy {copy} GB/s; " + ", ".join(f"{name} {share:.0f} %" for name, share in shares.items())
        for kernel in LARGEST:
            name = next((name for name in shares if name.startswith(kernel)), None)
            if name is None:
                raise Failed(f"no rate of {kernel}: {told}")
            if shares[name] < LEAST_RATE:
                raise Failed(f"{name}: {shares[name]:.1f} % of the copy's rate, needs {LEAST_RATE:.0f} | {told}")
        return told

    def attention_rates(self) -> str:
        _, text = self.passes("attention", ATTENTION)
        rates = {row[:44].strip(): (float(row[44:].split()[0]), float(row[44:].split()[2])) for row in text.splitlines()
                 if row.endswith("by flash attention 2")}
        told = "TFLOP/s: " + "; ".join(f"{name} {own:.0f}, flash {flash:.0f}" for name, (own, flash) in rates.items())
        slower = [name for name, (own, flash) in rates.items() if own < flash]
        if slower or not rates:
            raise Failed(f"flash attention 2 is faster: {', '.join(slower) or 'no rates'} | {told}")
        return told

    def train(self, name: str, family: str, dtype: str, device: str, more: list[str]) -> tuple[list[float], str]:
        """The losses of 20 steps of a tiny model, and the digest of what it came to."""
        model = models.write_tiny(self.folder / family, family)
        rows = models.write_rows(self.folder / "rows.jsonl")
        out = self.folder / name
        shutil.rmtree(out, ignore_errors=True)
        recipe = self.folder / "recipe.yaml"
        models.write_json(recipe, {  # JSON is YAML
            "base_model": str(model), "random_init": True, "datasets": [{"path": str(rows)}], "sequence_len": 1024,
            "sample_packing": True, "micro_batch_size": 2, "gradient_accumulation_steps": 2, "learning_rate": 1e-3,
            "lr_scheduler": "constant", "max_steps": STEPS, "logging_steps": 1, "seed": 3})
        self.must(name, [self.program, "train", str(recipe), f"device={device}", f"dtype={dtype}", f"output_dir={out}",
                         "overwrite_output_dir=true", *more], 120)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        losses = [line["loss"] for line in lines if "loss" in line]
        if len(losses) != STEPS:
            raise Failed(f"{len(losses)} steps of {STEPS}")
        digest = hashlib.sha256()
        for file in sorted(out.glob("*.safetensors")):
            digest.update(file.read_bytes())
        return losses, digest.hexdigest()

    @functools.cache  # noqa: B019 - one Check a process
    def cpu_losses(self, family: str, more: tuple[str, ...]) -> list[float]:
        return self.train(f"cpu-{family}" + ("-lora" if more else ""), family, "fp32", "cpu", list(more))[0]

    def follows_cpu(self, family: str, dtype: str, more: list[str]) -> str:
        kind = f"{family}-{dtype}" + ("-lora" if more else "")
        want = self.cpu_losses(family, tuple(more))
        got, _ = self.train(f"{self.device.replace(':', '')}-{kind}", family, dtype, self.device, more)
        distance = max(abs(g - w) / abs(w) for g, w in zip(got, want, strict=True))
        text = f"loss {got[0]:.4f} to {got[-1]:.4f}, at most {distance:.1e} off the CPU's (bound {LOSS_BOUNDS[dtype]:.0e})"
        if not distance <= LOSS_BOUNDS[dtype]:
            raise Failed(text)
        # An adapter on random weights has little to work with.
        if not got[-1] < (0.98 if more else 0.9) * got[0]:
            raise Failed("it does not learn: " + text)
        return text

    def same_bits(self, dtype: str) -> str:
        runs = [self.train(f"twice-{dtype}-{i}", "qwen2", dtype, self.device, ["deterministic=true"]) for i in range(2)]
        if runs[0][0] != runs[1][0]:
            step = next(i for i in range(STEPS) if runs[0][0][i] != runs[1][0][i])
            raise Failed(f"losses differ from step {step + 1} on")
        if runs[0][1] != runs[1][1]:
            raise Failed("the same losses, other weights")
        return f"losses and weights of {STEPS} steps"

    def begin_sanitizers(self) -> dict[str, Running | Exception]:
        """compute-sanitizer's tools, side by side, over the small tests: by tool what runs, or why not."""
        program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        begun: dict[str, Running | Exception] = {}
        for tool in SANITIZERS:
            # What LibTorch's libraries order by other means, and errors of calls that they expect, are not ours. Where a
            # kernel is not looked at, nor are its writes, which initcheck must know. racecheck breaks cuBLAS's kernels for
            # Hopper ("failed to handle a hardware exception").
            watched = {"memcheck": ["--report-api-errors", "no"], "initcheck": []}.get(tool, ["--kernel-name", "kns=tessera"])
            tests = KERNELS if tool in ("initcheck", "racecheck") else SMALL
            try:
                if self.is_dry:
                    raise NotRun("needs a CUDA device")
                if not pathlib.Path(program).exists():
                    raise NotRun("compute-sanitizer is neither on the PATH nor in /usr/local/cuda/bin")
                begun[tool] = self.begin(f"sanitizer-{tool}", [
                    program, "--tool", tool, *watched, "--error-exitcode", "9", self.tests, f"--gtest_filter={tests}"], 300,
                    NO_CACHING if tool in ("memcheck", "initcheck") else None)
            except NotRun as error:
                begun[tool] = error
        return begun

    def sanitizer(self, begun: Running | Exception) -> str:
        if isinstance(begun, Exception):
            raise begun
        code, text = begun.finish()
        if code != 0 or not is_clean(text):
            summary = [line for line in text.splitlines() if "SUMMARY" in line]
            raise Failed(f"exit code {code}: {summary[-1] if summary else text.strip().splitlines()[-1:]}")
        passed = text.split("[  PASSED  ] ")[-1].split()[0] if "[  PASSED  ] " in text else "0"
        if passed == "0" or "[  SKIPPED ]" in text:
            raise Failed(f"nothing found, but {passed} tests passed and some were skipped or did not run")
        return f"{passed} tests clean"

    def decoding(self, shape: str) -> str:
        model = models.write_qwen_weights(self.folder / f"decoding-{shape}", shape)
        command = [self.program, "bench", "generate", "--model", str(model), "--device", self.device, "--dtype", "bf16",
                   "--prompt-tokens", "64", "--new-tokens", "32" if self.is_dry else "256", "--json"]

        def rate(name: str, more: list[str]) -> str:
            recorded, plain = (json.loads(self.must(name + suffix, [*before, *command, *more], 100).strip().splitlines()[-1])
                               for suffix, before in (("", []), ("-plain", ["env", "TESSERA_GRAPHS=0"])))
            ratio = recorded["tokens_per_s"] / plain["tokens_per_s"]
            text = f"{recorded['tokens_per_s']:,.0f} tokens/s, {plain['tokens_per_s']:,.0f} not recorded ({ratio:.2f}x)"
            if recorded["ids"] != plain["ids"]:
                raise Failed(f"{name}: other tokens where steps are recorded | {text}")
            if len(set(recorded["ids"])) < 2:
                raise Failed(f"{name}: the same token all the time, which shows nothing | {text}")
            if ratio < 1.0 and not self.is_dry:
                raise Failed(f"{name}: slower than not recorded | {text}")
            return text

        return f"{rate('decoding', [])}; drawn {rate('decoding-drawn', ['--temperature', '0.8', '--top-p', '0.95'])}"

    def speed(self, row: Speed) -> str:
        model = models.write_qwen(self.folder / f"qwen-{row.shape}", row.shape)
        shape = ["--micro-batch", str(row.documents), "--seq", "1024"]
        lora = ["--adapter", "lora", "--lora-r", str(row.lora_r)] if row.lora_r else []

        def bench(name: str, more: list[str]) -> dict:
            own = self.must(f"{name}-{row.shape}", [
                self.program, "bench", "train", "--model", str(model), "--device", self.device, "--dtype", "bf16", *shape,
                "--steps", "8", "--json", *lora, "random_init=true", *more], 120)
            return json.loads(own.strip().splitlines()[-1])

        found, in_fp8 = bench("bench", []), bench("fp8", ["fp8=true"])
        rate, memory = found["tokens_per_s"], found.get("peak_device_bytes", 0)
        text = f"{rate:,.0f} tokens/s, in fp8 {in_fp8['tokens_per_s']:,.0f}, {memory / 2**30:.1f} GiB"
        if rate < row.milestone:
            raise Failed(f"{text} | below {row.milestone:,.0f} tokens/s")
        return text

    def all_lines(self) -> None:
        self.line("starts", self.starts)
        self.line("doctor", self.doctor)
        self.line("own kernels", self.own_kernels)
        self.line("ops", lambda: self.cuda_tests("ops", OPS))
        self.line("cuda tests", lambda: self.cuda_tests("cuda_tests", f"-{OPS}:{RATES}:{RANKS}:{ATTENTION}:{PROCESSES}"))
        self.line("two processes on one GPU", lambda: self.cuda_tests("processes", PROCESSES, may_skip=True))
        self.line("ranks on one GPU", lambda: self.cuda_tests("ranks", RANKS))
        # Beside what takes no times.
        sanitizers = self.begin_sanitizers() if any(self.is_asked(f"sanitizer {tool}") for tool in SANITIZERS) else {}
        for family in models.FAMILIES:
            for dtype in LOSS_BOUNDS:
                self.line(f"losses {family} {dtype}", lambda f=family, d=dtype: self.follows_cpu(f, d, []))
        lora = ["adapter=lora", "lora_target_linear=true", "lora_r=8", "lora_alpha=64", "learning_rate=3e-3"]
        self.line("losses qwen2 fp32 lora", lambda: self.follows_cpu("qwen2", "fp32", lora))
        for dtype in LOSS_BOUNDS:
            self.line(f"same bits {dtype}", lambda d=dtype: self.same_bits(d))
        for tool, begun in sanitizers.items():
            self.line(f"sanitizer {tool}", lambda b=begun: self.sanitizer(b))
        self.line("kernel rates", self.rates)
        self.line("attention rates", self.attention_rates)
        shape = "tiny" if self.is_dry else "0.5B"
        self.line(f"decoding {shape}", lambda: self.decoding(shape))
        for row in DRY_SPEEDS if self.is_dry else SPEEDS:
            self.line(f"speed {row.shape}", lambda r=row: self.speed(r))

    def table(self) -> str:
        width = max(len(line.name) for line in self.lines)
        rows = [f"{'check':{width}}  {'verdict':7}  {'s':>5}  found"]
        rows += [f"{line.name:{width}}  {line.verdict:7}  {line.seconds:5.0f}  {line.found}" for line in self.lines]
        counts = {verdict: sum(line.verdict == verdict for line in self.lines) for verdict in (OK, FAIL, NOT_RUN)}
        rows.append(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
        return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(prog="gpu_check.sh", description=__doc__)
    parser.add_argument("--device", default="cuda", help="cuda; cpu: a look at the check itself, with tiny models")
    parser.add_argument("--bundle", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path.cwd() / "gpu-check", help="for logs and models")
    parser.add_argument("--minutes", type=float, default=9.0, help="what is not done by then is not run")
    parser.add_argument("--only", default="", help="lines that begin so, separated by commas")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    check = Check(options)
    check.all_lines()
    if not check.lines:
        print("no line is named so", file=sys.stderr)
        return 2
    table = check.table()
    (check.folder / "table.txt").write_text(table + "\n")
    print("\n" + table)
    verdicts = {line.verdict for line in check.lines}
    return 1 if FAIL in verdicts else 3 if NOT_RUN in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())

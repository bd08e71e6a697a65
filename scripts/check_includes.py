#!/usr/bin/env python3
"""Holds every #include of tessera/ against the direction of includes (docs/architecture.md).

A folder may include itself and the folders of the levels above it. Narrower rules: only comm/ sees MPI
and NCCL, only config/ sees yaml-cpp, model code knows no communication, only models/*/parallelize.* and pipeline.* join
a model to parallel/, and the folders of tessera_base know no LibTorch. Beside includes: the environment is read
and set in core/environment.cpp alone.
"""
import pathlib
import re
import sys

LEVELS = [
    ["core"],
    ["config", "io", "ops", "comm", "offload"],
    ["nn", "text", "quantization"],
    ["parallel"],
    ["checkpoint"],
    ["optim", "peft", "data"],
    ["models"],
    ["planner"],
    ["train", "eval", "serve"],
    ["cli"],
]
LEVEL_OF = {folder: level for level, folders in enumerate(LEVELS) for folder in folders}
TORCH_FREE = {"config", "io", "text", "data"}
ENVIRONMENT = re.compile(r"\b(?:(?:secure_)?getenv|(?:un)?setenv|putenv|clearenv)\s*\(|\bextern char\s*\*\*\s*environ\b")
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]')


def problems_of(path, root):
    relative = path.relative_to(root)
    if len(relative.parts) < 2:
        return
    folder = relative.parts[0]
    if folder not in LEVEL_OF:
        yield 0, f"folder tessera/{folder} is not in the table of {pathlib.Path(__file__).name}"
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if ENVIRONMENT.search(line.split("//")[0]) and relative.as_posix() != "core/environment.cpp":
            yield number, "the environment is read and set by tessera/core/environment.h"
        if not match:
            continue
        target = match.group(1)
        if target.startswith("tessera/"):
            other = target.split("/")[1]
            if other not in LEVEL_OF:
                if "/" in target[len("tessera/"):]:
                    yield number, f"unknown folder in {target}"
                continue
            if other != folder and LEVEL_OF[other] >= LEVEL_OF[folder]:
                yield number, f"{folder}/ may not include {other}/"
            is_model_code = folder == "nn" or (folder == "models" and not relative.name.startswith(("parallelize", "pipeline")))
            if is_model_code and other in ("comm", "parallel"):
                yield number, f"single-device code may not include {other}/"
        elif target.startswith((".", "..")):
            yield number, "includes are rooted at the repository"
        elif target in ("mpi.h", "nccl.h") and folder != "comm":
            yield number, f"only comm/ includes {target}"
        elif target.startswith("yaml-cpp/") and folder != "config":
            yield number, "only config/ includes yaml-cpp"
        elif target.startswith(("torch/", "ATen/", "c10/")):
            if folder in TORCH_FREE:
                yield number, f"{folder}/ is free of LibTorch"
            if target == "torch/torch.h":
                yield number, "torch/torch.h costs 19 s a file: include narrowly"


def main():
    root = pathlib.Path(__file__).resolve().parent.parent / "tessera"
    count = 0
    for path in sorted(root.rglob("*")):
        if path.suffix not in (".h", ".cpp"):
            continue
        for number, text in problems_of(path, root):
            print(f"{path.relative_to(root.parent)}:{number}: {text}", file=sys.stderr)
            count += 1
    if count:
        print(f"check_includes: {count} line(s) against the rules", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

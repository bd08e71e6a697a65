#!/usr/bin/env python3
"""Holds every #include of tessera/ against the direction of includes (docs/architecture.md).

A folder may include itself and the folders of the levels above it. Narrower rules: only comm/ sees MPI
and NCCL, only config/ sees yaml-cpp, only io/http_client.cpp sees libcurl, only the connections of serving/ see Boost, model code knows no communication, only parallelize* and pipeline.* of models/ join
a model to parallel/, the folders of tessera_base know no LibTorch, and CUDA kernels know nothing but their table. Beside includes: the environment is read
and set in core/environment.cpp alone.
"""
import pathlib
import re
import sys

import source_rules

LEVELS = [
    ["core"],
    ["io", "device"],
    ["hub"],
    ["config"],
    ["ops", "comm"],
    ["nn", "text", "report"],
    ["parallel"],
    ["checkpoint"],
    ["optim", "peft", "data"],
    ["models", "scoring"],
    ["serving"],
    ["measure", "generation", "planner"],
    ["train"],
    ["cli"],
]
# The rooms of train/, likewise.
ROOMS = ["setup", "step", "reporters", "run"]
LEVEL_OF = {folder: level for level, folders in enumerate(LEVELS) for folder in folders}
BOOST = {"serving/http_connection.h", "serving/http_connection.cpp", "serving/http_exchange.h", "serving/http_server.cpp"}
TORCH_FREE = {"core", "config", "io", "hub", "text", "report", "data", "planner", "scoring", "serving"}
ENVIRONMENT = re.compile(r"\b(?:(?:secure_)?getenv|(?:un)?setenv|putenv|clearenv)\s*\(|\bextern char\s*\*\*\s*environ\b")
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]')


def room_level(path):
    """The place in ROOMS of a file of train/; -1 for a file of no room."""
    room = path.removeprefix("tessera/").split("/")[1]
    return ROOMS.index(room) if room in ROOMS else -1


def problems_of(path, source):
    """Pairs (line, what is wrong) of a file of tessera/ with this path below it."""
    relative = pathlib.PurePosixPath(path)
    if len(relative.parts) < 2:
        return
    folder = relative.parts[0]
    if folder not in LEVEL_OF:
        yield 0, f"folder tessera/{folder} is not in the table of {pathlib.Path(__file__).name}"
        return
    if folder == "train" and room_level(path) < 0:
        yield 0, f"{path} is in none of the rooms of train/: {', '.join(ROOMS)}"
    for number, line in enumerate(source.splitlines(), 1):
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
            if folder == other == "train" and room_level(target) > room_level(path):
                yield number, f"{path} may not include {target}: the rooms of train/ stand in the order {', '.join(ROOMS)}"
            if relative.suffix in (".cu", ".cuh") and target != "tessera/ops/cuda/kernels.h" and not target.endswith(".cuh"):
                yield number, "CUDA kernels see nothing but tessera/ops/cuda/kernels.h"
            is_model_code = folder == "nn" or (folder == "models" and not relative.name.startswith(("parallelize", "pipeline")))
            if is_model_code and other in ("comm", "parallel"):
                yield number, f"single-device code may not include {other}/"
        elif target.startswith((".", "..")):
            yield number, "includes are rooted at the repository"
        elif target in ("mpi.h", "nccl.h") and folder != "comm":
            yield number, f"only comm/ includes {target}"
        elif target.startswith("yaml-cpp/") and folder != "config":
            yield number, "only config/ includes yaml-cpp"
        elif target.startswith("curl/") and relative.as_posix() != "io/http_client.cpp":
            yield number, "only io/http_client.cpp includes libcurl"
        elif target.startswith("boost/") and relative.as_posix() not in BOOST:
            yield number, f"only {', '.join(sorted(BOOST))} include Boost"
        elif target.startswith(("torch/", "ATen/", "c10/")):
            if folder in TORCH_FREE:
                yield number, f"{folder}/ is free of LibTorch"
            if target == "torch/torch.h":
                yield number, "torch/torch.h costs 19 s a file: include narrowly"


if __name__ == "__main__":
    sys.exit(source_rules.run("check_includes", problems_of))

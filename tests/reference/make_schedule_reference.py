#!/usr/bin/env python3
"""Makes tests/reference/data/schedules.json: the learning rates of every update of short runs, and
plateaus.json: those of torch.optim.lr_scheduler.ReduceLROnPlateau after some metrics.

Each case holds the recipe's keys, the number of steps and the values of Transformers' get_scheduler, of
torch.optim.lr_scheduler.OneCycleLR, or of Axolotl's own schedules. The last come from the file that --axolotl
names (src/axolotl/utils/schedulers.py of its repository); nothing else of Axolotl is needed.
"""
import argparse
import importlib.util
import json
import math
import os

from reference_common import DATA

import torch
from transformers import get_scheduler

PEAK = 3e-4


def values(make, steps, **recipe):
    parameter = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = torch.optim.SGD([parameter], lr=PEAK)
    schedule = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        schedule.step()
    return {"recipe": recipe, "total_steps": steps, "values": rates}


def transformers_case(name, steps, warmup, kwargs=None, **recipe):
    def make(optimizer):
        return get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=steps,
                             scheduler_specific_kwargs=kwargs)

    keys = {"lr_scheduler": name, "warmup_steps": warmup, **recipe}
    if kwargs:
        keys["lr_scheduler_kwargs"] = kwargs
    return values(make, steps, **keys)


def transformers_cases():
    for steps, warmup in ((20, 0), (20, 4), (37, 5), (3, 2)):
        for name in ("cosine", "linear", "constant_with_warmup", "cosine_with_restarts", "polynomial",
                     "inverse_sqrt"):
            yield transformers_case(name, steps, warmup)
    yield transformers_case("constant", 10, 0)
    yield transformers_case("cosine", 24, 3, {"num_cycles": 1.5})
    yield transformers_case("cosine_with_restarts", 31, 3, {"num_cycles": 3})
    yield transformers_case("cosine_with_min_lr", 24, 3, {"min_lr_rate": 0.2})
    yield transformers_case("cosine_with_min_lr", 24, 3, {"min_lr": 2e-5})
    yield transformers_case("polynomial", 24, 3, {"lr_end": 2e-5, "power": 2.5})
    yield transformers_case("inverse_sqrt", 24, 3, {"timescale": 50})
    yield transformers_case("warmup_stable_decay", 40, 6, {"num_decay_steps": 12})
    yield transformers_case("warmup_stable_decay", 40, 0, {"num_decay_steps": 40})
    for kind in ("linear", "cosine", "1-sqrt"):
        yield transformers_case("warmup_stable_decay", 40, 6, {
            "num_decay_steps": 12, "num_stable_steps": 15, "min_lr_ratio": 0.1, "warmup_type": kind,
            "decay_type": kind})


def one_cycle_cases():
    for steps, warmup, div in ((30, 9, 25.0), (30, 0, 25.0), (17, 5, 4.0)):
        def make(optimizer):
            return torch.optim.lr_scheduler.OneCycleLR(
                optimizer, max_lr=PEAK, total_steps=steps + 1, pct_start=warmup / (steps + 1), div_factor=div,
                cycle_momentum=False, anneal_strategy="cos")

        case = values(make, steps, lr_scheduler="one_cycle", warmup_steps=warmup, lr_div_factor=div)
        # A step more than there are updates, as stepping behind the last one is an error there.
        case["total_steps"] = steps + 1
        yield case


def axolotl_cases(file):
    spec = importlib.util.spec_from_file_location("schedules", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def wrap(make, steps, warmup, **recipe):
        return values(lambda optimizer: make(optimizer, warmup, steps), steps, warmup_steps=warmup, **recipe)

    for steps, warmup in ((25, 0), (25, 4), (60, 10)):
        for least in (0.0, 0.1):
            yield wrap(lambda o, w, n: module.RexLR(o, max_lr=PEAK, min_lr=PEAK * least, total_steps=n,
                                                    num_warmup_steps=w),
                       steps, warmup, lr_scheduler="rex", cosine_min_lr_ratio=least)
        yield wrap(lambda o, w, n: module.get_cosine_schedule_with_min_lr(o, w, n, min_lr_ratio=0.1),
                   steps, warmup, lr_scheduler="cosine", cosine_min_lr_ratio=0.1)
        for share in (0.5, 0.83):
            yield wrap(lambda o, w, n: module.get_cosine_schedule_with_warmup_decay_constant(
                o, w, n, constant_lr_ratio=share, min_lr_ratio=0.1),
                       steps, warmup, lr_scheduler="cosine", cosine_min_lr_ratio=0.1,
                       cosine_constant_lr_ratio=share)
        yield wrap(lambda o, w, n: module.get_cosine_schedule_with_quadratic_warmup(o, w, n),
                   steps, warmup, lr_scheduler="cosine", lr_quadratic_warmup=True)

    def jagged(inner, warmup, anneal, least):
        return lambda o, w, n: module.JaggedLRRestartScheduler(o, inner(o, w, n), 15, warmup, anneal, least)

    def cosine(optimizer, warmup, steps):
        return get_scheduler("cosine", optimizer, num_warmup_steps=warmup, num_training_steps=steps)

    def rex(optimizer, warmup, steps):
        return module.RexLR(optimizer, max_lr=PEAK, min_lr=PEAK * 0.05, total_steps=steps,
                            num_warmup_steps=warmup)

    yield wrap(jagged(cosine, 10, 1, 0.001), 50, 6, lr_scheduler="cosine", jagged_restart_steps=15)
    yield wrap(jagged(cosine, 4, 3, 0.001), 50, 0, lr_scheduler="cosine", jagged_restart_steps=15,
               jagged_restart_warmup_steps=4, jagged_restart_anneal_steps=3)
    yield wrap(jagged(rex, 4, 3, 0.05), 50, 6, lr_scheduler="rex", jagged_restart_steps=15,
               jagged_restart_warmup_steps=4, jagged_restart_anneal_steps=3, cosine_min_lr_ratio=0.05)


def plateau_cases():
    """ReduceLROnPlateau after each of some metrics: (keys, metrics, learning rates)."""
    generator = torch.Generator().manual_seed(7)
    noise = torch.rand(60, generator=generator, dtype=torch.float64)
    falling = [float(2.0 * 0.97 ** i + 0.2 * n) for i, n in enumerate(noise)]
    flat = [1.0] * 40
    ties = [1.0, 0.9999, 0.99989, 0.9, 0.9, 0.9, 0.8999, 0.5, 0.6, 0.7] * 3
    for options in ({}, {"patience": 1}, {"patience": 0, "factor": 0.5}, {"patience": 2, "cooldown": 3, "factor": 0.3},
                    {"patience": 1, "threshold": 0.1}, {"patience": 1, "threshold": 0.05, "threshold_mode": "abs"},
                    {"patience": 0, "factor": 0.1, "min_lr": 2e-5}, {"patience": 0, "factor": 0.1}):
        for metrics in (falling, flat, ties):
            optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
            schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
            rates = []
            for metric in metrics:
                schedule.step(metric)
                rates.append(float(optimizer.param_groups[0]["lr"]))
            yield {"options": options, "metrics": metrics, "values": rates}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--axolotl", required=True, metavar="FILE", help="schedulers.py of Axolotl")
    arguments = parser.parse_args()
    cases = [*transformers_cases(), *one_cycle_cases(), *axolotl_cases(arguments.axolotl)]
    for case in cases:
        assert all(math.isfinite(value) for value in case["values"]), case["recipe"]
    with open(os.path.join(DATA, "schedules.json"), "w", encoding="utf-8") as file:
        file.write('{"learning_rate": %r, "cases": [\n' % PEAK)
        file.write(",\n".join(json.dumps(case) for case in cases))
        file.write("\n]}\n")
    plateaus = list(plateau_cases())
    with open(os.path.join(DATA, "plateaus.json"), "w", encoding="utf-8") as file:
        file.write('{"learning_rate": %r, "cases": [\n' % PEAK)
        file.write(",\n".join(json.dumps(case) for case in plateaus))
        file.write("\n]}\n")
    print(f"{len(cases)} cases, {len(plateaus)} plateaus")


if __name__ == "__main__":
    main()

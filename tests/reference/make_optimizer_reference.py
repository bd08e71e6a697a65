#!/usr/bin/env python3
"""Makes tests/reference/data/optimizers.json: parameters after 100 updates in float64 by PyTorch's optimizers
and by the packages that others publish.

Each case holds the optimizer's name in a recipe, its options (optimizer_args and the adam_* keys), the weight
decay, and the values of a parameter of some shape after 1, 10 and 100 updates. Start values and gradients are
sines of the element's number, which the test computes itself: value(i) = 0.7 sin(0.9 i + 0.2), and the
gradient of update t (from 1) is sin(1.3 i + 0.7 t + 0.1) (0.2 + cos(0.05 t)) times 0.4. The learning rate of update t is
0.01 (1 + 0.5 sin(0.3 t)).

Packages: torch, transformers, schedulefree 1.4.1, came-pytorch 0.1.3, lion-pytorch 0.2.5, torch-optimi 0.3.3,
pytorch_optimizer 4.1.0.
"""
import json
import math
import os

import torch

from reference_common import DATA

SHAPES = ((5, 7), (9, 4), (11,))
STEPS = (1, 10, 100)


def numbers(shape):
    return torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape)


def start(shape):
    return 0.7 * torch.sin(0.9 * numbers(shape) + 0.2)


def gradient(shape, t):
    return torch.sin(1.3 * numbers(shape) + 0.7 * t + 0.1) * (0.2 + math.cos(0.05 * t)) * 0.4


def rate(t):
    return 0.01 * (1 + 0.5 * math.sin(0.3 * t))


def run(make, shape, is_average=False):
    parameter = torch.nn.Parameter(start(shape))
    optimizer = make([parameter])
    if is_average:
        optimizer.train()
    values = []
    for t in range(1, STEPS[-1] + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate(t)
        parameter.grad = gradient(shape, t)
        optimizer.step()
        if t not in STEPS:
            continue
        if is_average:
            optimizer.eval()
        values.append(parameter.detach().reshape(-1).tolist())
        if is_average:
            optimizer.train()
    return values


def case(name, make, decay=0.1, options=None, shapes=SHAPES, is_average=False):
    return [{"optimizer": name, "options": options or {}, "weight_decay": decay, "shape": list(shape),
             "values": run(make, shape, is_average)} for shape in shapes]


def element_cases():
    from lion_pytorch import Lion
    from pytorch_optimizer import AdEMAMix
    from schedulefree import AdamWScheduleFree

    optim = torch.optim
    few = SHAPES[:1]
    yield from case("sgd", lambda p: optim.SGD(p, 1, weight_decay=0.1), shapes=few)
    yield from case("sgd", lambda p: optim.SGD(p, 1, momentum=0.9, weight_decay=0.1), shapes=few,
                    options={"momentum": 0.9})
    yield from case("sgd", lambda p: optim.SGD(p, 1, momentum=0.8, dampening=0.3), decay=0.0, shapes=few,
                    options={"momentum": 0.8, "dampening": 0.3})
    yield from case("sgd", lambda p: optim.SGD(p, 1, momentum=0.9, nesterov=True, weight_decay=0.1), shapes=few,
                    options={"momentum": 0.9, "nesterov": 1})
    yield from case("lion", lambda p: Lion(p, lr=1, betas=(0.9, 0.99), weight_decay=0.1), shapes=few,
                    options={"adam_beta2": 0.99})
    yield from case("adagrad", lambda p: optim.Adagrad(p, 1, weight_decay=0.1), shapes=few)
    yield from case("adagrad", lambda p: optim.Adagrad(p, 1, lr_decay=0.05, eps=1e-3), decay=0.0, shapes=few,
                    options={"lr_decay": 0.05, "adam_epsilon": 1e-3})
    yield from case("rmsprop", lambda p: optim.RMSprop(p, 1, weight_decay=0.1), shapes=few)
    yield from case("rmsprop", lambda p: optim.RMSprop(p, 1, alpha=0.9, momentum=0.7, centered=True), decay=0.0,
                    shapes=few, options={"alpha": 0.9, "momentum": 0.7, "centered": 1})
    yield from case("ademamix", lambda p: AdEMAMix(p, 1, betas=(0.9, 0.999, 0.9999), alpha=5.0, weight_decay=0.1,
                                                   weight_decouple=True, foreach=False), shapes=few)
    yield from case("ademamix", lambda p: AdEMAMix(p, 1, betas=(0.8, 0.95, 0.999), alpha=3.0, weight_decay=0.1,
                                                   weight_decouple=True, t_alpha_beta3=60, eps=1e-6, foreach=False),
                    shapes=few, options={"adam_beta1": 0.8, "adam_beta2": 0.95, "adam_beta3": 0.999, "alpha": 3.0,
                                         "t_alpha": 60, "t_beta3": 60, "adam_epsilon": 1e-6})
    yield from case("schedule_free_adamw", lambda p: AdamWScheduleFree(p, 1, weight_decay=0.1), shapes=few,
                    is_average=True)
    yield from case("schedule_free_adamw", lambda p: AdamWScheduleFree(p, 1, betas=(0.95, 0.99), r=1.0,
                                                                       weight_lr_power=1.0), decay=0.0,
                    shapes=few, is_average=True,
                    options={"adam_beta1": 0.95, "adam_beta2": 0.99, "r": 1.0, "weight_lr_power": 1.0})


def main():
    cases = list(element_cases())
    with open(os.path.join(DATA, "optimizers.json"), "w", encoding="utf-8") as file:
        file.write('{"updates": %s, "cases": [\n' % json.dumps(STEPS))
        file.write(",\n".join(json.dumps(case, separators=(",", ":")) for case in cases))
        file.write("\n]}\n")
    print(f"{len(cases)} cases")


if __name__ == "__main__":
    main()

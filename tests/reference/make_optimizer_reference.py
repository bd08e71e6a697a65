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

import numpy as np
import torch

from reference_common import DATA

SHAPES = ((5, 7), (9, 4), (11,))
STEPS = (1, 10, 100)
EVERY = 97  # of many values, those of every so many elements are kept


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


class Lamb(torch.optim.Optimizer):
    """Algorithm 2 of the paper, with the bounds of DeepSpeed's FusedLamb on the ratio of the norms."""

    def __init__(self, params, decay, least, most):
        super().__init__(params, {"lr": 1})
        self.decay, self.least, self.most, self.t = decay, least, most, 0

    @torch.no_grad()
    def step(self):
        self.t += 1
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            m = state["m"] = 0.9 * state.get("m", 0) + 0.1 * p.grad
            v = state["v"] = 0.999 * state.get("v", 0) + 0.001 * p.grad ** 2
            u = (m / (1 - 0.9 ** self.t)) / ((v / (1 - 0.999 ** self.t)).sqrt() + 1e-8) + self.decay * p
            ratio = min(max(float(p.norm() / u.norm()), self.least), self.most)
            p -= self.param_groups[0]["lr"] * ratio * u


class Muon(torch.optim.Optimizer):
    """Muon as its author has it ("muon_keller_jordan"), and as Moonlight has it ("muon"), in float64."""

    def __init__(self, params, kind, decay, nesterov=True):
        super().__init__(params, {"lr": 1})
        self.kind, self.decay, self.nesterov = kind, decay, nesterov

    @torch.no_grad()
    def step(self):
        lr = self.param_groups[0]["lr"]
        for p in self.param_groups[0]["params"]:
            buffer = self.state[p].setdefault("buffer", torch.zeros_like(p))
            if self.kind == "muon":
                buffer.mul_(0.95).add_(p.grad)
                g = p.grad + 0.95 * buffer if self.nesterov else buffer
                scale = 0.2 * math.sqrt(max(p.shape))
            else:
                buffer.lerp_(p.grad, 0.05)
                g = p.grad.lerp(buffer, 0.95) if self.nesterov else buffer
                scale = max(1, p.shape[0] / p.shape[1]) ** 0.5
            x = g.T if p.shape[0] > p.shape[1] else g
            x = x / (x.norm() + 1e-7)
            for _ in range(5):
                a = x @ x.T
                x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
            x = x.T if p.shape[0] > p.shape[1] else x
            p.mul_(1 - lr * self.decay)
            p -= lr * scale * x


def whole_cases():
    from came_pytorch import CAME
    from optimi import StableAdamW
    from transformers.optimization import Adafactor

    yield from case("stable_adamw", lambda p: StableAdamW(p, 1, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1,
                                                          foreach=False, triton=False))
    yield from case("stable_adamw", lambda p: StableAdamW(p, 1, betas=(0.9, 0.99), eps=1e-2, weight_decay=0.0,
                                                          foreach=False, triton=False), decay=0.0,
                    options={"adam_beta2": 0.99, "adam_epsilon": 1e-2})
    yield from case("lamb", lambda p: Lamb(p, 0.1, 0.01, 10.0))
    yield from case("lamb", lambda p: Lamb(p, 0.0, 0.5, 0.7), decay=0.0, options={"min_coeff": 0.5, "max_coeff": 0.7})
    yield from case("adafactor", lambda p: Adafactor(p, lr=1, scale_parameter=False, relative_step=False,
                                                     weight_decay=0.1), shapes=(*SHAPES, (2, 3, 4)))
    yield from case("adafactor", lambda p: Adafactor(p, lr=1, scale_parameter=False, relative_step=False,
                                                     clip_threshold=0.3, decay_rate=-0.5), decay=0.0,
                    options={"clip_threshold": 0.3, "decay_rate": -0.5}, shapes=SHAPES[:1])
    yield from case("came_pytorch", lambda p: CAME(p, lr=1, weight_decay=0.1, eps=(1e-30, 1e-16)))
    yield from case("came_pytorch", lambda p: CAME(p, lr=1, betas=(0.8, 0.9, 0.95), eps=(1e-12, 1e-3),
                                                   clip_threshold=0.5), decay=0.0, shapes=SHAPES[:1],
                    options={"adam_beta1": 0.8, "adam_beta2": 0.9, "adam_beta3": 0.95, "adam_epsilon": 1e-12,
                             "adam_epsilon2": 1e-3, "clip_threshold": 0.5})


def muon_cases():
    matrices = SHAPES[:2]
    for kind in ("muon", "muon_keller_jordan"):
        yield from case(kind, lambda p: Muon(p, kind, 0.1), shapes=matrices)
    yield from case("muon", lambda p: Muon(p, "muon", 0.1, nesterov=False), shapes=matrices[:1],
                    options={"nesterov": 0})
    # PyTorch's runs its steps in bfloat16; here they run in float64.
    narrow, torch.Tensor.bfloat16 = torch.Tensor.bfloat16, lambda self: self.clone()
    yield from case("muon_torch", lambda p: torch.optim.Muon(p, 1, weight_decay=0.1), shapes=matrices)
    yield from case("muon_torch", lambda p: torch.optim.Muon(p, 1, weight_decay=0.0,
                                                             adjust_lr_fn="match_rms_adamw"), decay=0.0,
                    shapes=matrices[:1], options={"match_rms_adamw": 1})
    torch.Tensor.bfloat16 = narrow


def dynamic_map(signed):
    """bitsandbytes' create_dynamic_map() in the variant with fused multiplication and addition."""
    f = np.float32

    def fused(a, b, c):  # exact in float64: the product of two float32 has 48 bits, and the sum few more
        return f(np.float64(a) * np.float64(b) + np.float64(c))

    values = [f(0), f(1)]
    for i in range(7):
        n = 2 ** (i if signed else i + 1) + 1
        step = f((f(1) - f(0.1)) / f(n - 1))
        edges = [fused(step, f(k), f(0.1)) if k < n // 2 else fused(-step, f(n - 1 - k), f(1)) for k in range(n)]
        for a, b in zip(edges, edges[1:]):
            value = f(f(10.0 ** (i - 6)) * f(f(a + b) / f(2)))
            values += [value, -value] if signed else [value]
    return np.sort(np.array(values, dtype=f))


def adamw_8bit(shape, decay):
    """bitsandbytes' block-wise kernel for CUDA, in float64 but for the maps and the blocks' scales."""
    maps = dynamic_map(True), dynamic_map(False)
    borders = [((m[:-1] + m[1:]) * np.float32(0.5)).astype(np.float64) for m in maps]
    p = start(shape).reshape(-1).numpy()
    size, values = p.size, []
    codes = [np.zeros(size, dtype=np.int64) for _ in maps]
    scales = [np.zeros(-(-size // 256), dtype=np.float32) for _ in maps]
    block = np.arange(size) // 256
    for t in range(1, STEPS[-1] + 1):
        g = gradient(shape, t).reshape(-1).numpy()
        old = [m[c].astype(np.float64) * s[block].astype(np.float64) for m, c, s in zip(maps, codes, scales)]
        new = [0.9 * old[0] + (1 - 0.9) * g, 0.999 * old[1] + (1 - 0.999) * g * g]
        correction = math.sqrt(1 - 0.999 ** t)
        p = p - rate(t) * correction / (1 - 0.9 ** t) * (new[0] / (np.sqrt(new[1]) + 1e-8 * correction))
        p = p * (1 - rate(t) * decay)
        for k in range(2):
            largest = np.zeros(scales[k].size)
            np.maximum.at(largest, block, np.abs(new[k]))
            scales[k] = largest.astype(np.float32)
            codes[k] = np.searchsorted(borders[k], new[k] / scales[k][block].astype(np.float64), side="left")
        codes[0] -= (new[0] < 0) & (codes[0] == 127)
        if t in STEPS:
            values.append(p[::EVERY].tolist())
    return values


def block_cases():
    for shape, decay in (((70, 61), 0.1), ((17, 300), 0.0), ((4100,), 0.1)):
        yield {"optimizer": "adamw_8bit", "options": {}, "weight_decay": decay, "shape": list(shape), "every": EVERY,
               "values": adamw_8bit(shape, decay)}
    # Fewer elements have states of 32 bits.
    yield from case("adamw_8bit", lambda p: torch.optim.AdamW(p, 1, weight_decay=0.1), shapes=SHAPES[:1])


def main():
    cases = [*element_cases(), *block_cases(), *whole_cases(), *muon_cases()]
    with open(os.path.join(DATA, "optimizers.json"), "w", encoding="utf-8") as file:
        file.write('{"updates": %s, "cases": [\n' % json.dumps(STEPS))
        file.write(",\n".join(json.dumps(case, separators=(",", ":")) for case in cases))
        file.write("\n]}\n")
    print(f"{len(cases)} cases")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes tests/reference/data/optimizers.json: parameters after 100 updates in float64 by PyTorch's optimizers
and by the packages that others publish.

Each case holds the optimizer's name in a recipe, its options (optimizer_args and the adam_* keys), the weight
decay, and the values of a parameter of some shape after 1, 10 and 100 updates. Start values and gradients are
sines of the element's number, which the test computes itself: value(i) = 0.7 sin(0.9 i + 0.2), and the
gradient of update t (from 1) is sin(1.3 i + bend i^2 + 0.7 t + 0.1) (0.2 + cos(0.05 t)) times 0.4. The learning rate of
update t is 0.01 (1 + 0.5 sin(0.3 t)). `bend` is 0 unless the case has it: without it, a gradient is of rank 2.

Packages: torch, transformers, schedulefree 1.4.1, came-pytorch 0.1.3, lion-pytorch 0.2.5, torch-optimi 0.3.3,
pytorch_optimizer 4.1.0, adam-mini 1.1.1, galore-torch 1.0, apollo-torch 1.0.3.
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


def gradient(shape, t, bend=0.0):
    i = numbers(shape)
    return torch.sin(1.3 * i + bend * i * i + 0.7 * t + 0.1) * (0.2 + math.cos(0.05 * t)) * 0.4


def rate(t):
    return 0.01 * (1 + 0.5 * math.sin(0.3 * t))


def run(make, shape, is_average=False, bend=0.0):
    parameter = torch.nn.Parameter(start(shape))
    optimizer = make([parameter])
    if is_average:
        optimizer.train()
    values = []
    for t in range(1, STEPS[-1] + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate(t)
        parameter.grad = gradient(shape, t, bend)
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


def adam_mini(shape, name, decay, blocks=(1, 1, 0)):
    """Values by the package, for a parameter of this name, or a matrix that makes queries, keys and values: each part
    of its rows that `blocks` tells apart is then a parameter of its own."""
    from adam_mini import Adam_mini

    head, group, single = blocks
    named = {}
    whole = start(shape)
    for first in range(0, shape[0], group) if head > 1 else ():
        for begin in range(first, first + group - single, head):
            named[f"q_proj.{begin}.weight"] = slice(begin, begin + head)
        if single:
            named[f"v_proj.{first}.weight"] = slice(first + group - single, first + group)
    named = named or {name: slice(None)}
    parameters = {key: torch.nn.Parameter(whole[rows].clone()) for key, rows in named.items()}
    # Its heads have dim * dim / n_heads elements.
    optimizer = Adam_mini(parameters.items(), lr=1, weight_decay=decay, dim=shape[-1] * head,
                          n_heads=shape[-1] * head, verbose=False)
    values = []
    for t in range(1, STEPS[-1] + 1):
        for entry in optimizer.param_groups:
            entry["lr"] = rate(t)
        for key, rows in named.items():
            parameters[key].grad = gradient(shape, t)[rows].clone()
        optimizer.step()
        if t in STEPS:
            for key, rows in named.items():
                whole[rows] = parameters[key].detach()
            values.append(whole.reshape(-1).tolist())
    return values


def mini_cases():
    for shape, name, decay, blocks in (((5, 7), "mlp.up.weight", 0.1, (1, 1, 0)), ((9, 4), "lm_head.weight", 0.0, (1, 1, 0)),
                                       ((12, 5), "q_proj.weight", 0.1, (3, 3, 0)),
                                       ((24, 5), "qkv.weight", 0.1, (3, 12, 3)), ((11,), "norm.weight", 0.0, (1, 1, 0)),
                                       ((11,), "mlp.up.bias", 0.0, (1, 1, 0))):
        yield {"optimizer": "adam_mini", "options": {}, "weight_decay": decay, "shape": list(shape), "name": name,
               "row_blocks": list(blocks), "values": adam_mini(shape, name, decay, blocks)}


def mixed(x):
    """The finaliser of SplitMix64, on Python's integers."""
    x = (x + 0x9E3779B97F4A7C15) % 2 ** 64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2 ** 64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2 ** 64
    return x ^ (x >> 31)


def normals(shape, seed, name, step):
    """Tessera's counter-based draws (core/rng.h): Philox4x32-10, then Box and Muller."""
    stream = 0xCBF29CE484222325
    for byte in name.encode():
        stream = (stream ^ byte) * 0x100000001B3 % 2 ** 64
    key = mixed(seed ^ mixed(stream))
    values = []
    for index in range(math.prod(shape)):
        c = [index % 2 ** 32, index >> 32, step % 2 ** 32, step >> 32]
        k = [key % 2 ** 32, key >> 32]
        for _ in range(10):
            p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [(q >> 32) ^ c[1] ^ k[0], q % 2 ** 32, (p >> 32) ^ c[3] ^ k[1], p % 2 ** 32]
            k = [(k[0] + 0x9E3779B9) % 2 ** 32, (k[1] + 0xBB67AE85) % 2 ** 32]
        u = 1 - ((c[1] << 32 | c[0]) >> 11) * 2.0 ** -53
        v = ((c[3] << 32 | c[2]) >> 11) * 2.0 ** -53
        values.append(math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * v))
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def low_rank_cases():
    """The packages compute projections in float32 and draw them by torch's generator. Here they are in float64, with
    the signs of singular vectors and the draws of Tessera, for a parameter of the name "w" and the seed 1."""
    from apollo_torch import APOLLOAdamW
    from apollo_torch import random_projector
    from galore_torch import GaLoreAdamW

    bend = 0.07

    def cases(name, make, options, decay, shapes):
        for shape in shapes:
            yield {"optimizer": name, "options": options, "weight_decay": decay, "shape": list(shape), "bend": bend,
                   "values": run(make, shape, bend=bend)}

    def group(p, options, **more):
        return [{"params": p, "rank": options.get("rank", 128), "update_proj_gap": options.get("update_proj_gap", 200),
                 "scale": options["scale"], "proj_type": "std", **more}]

    svd, wide = torch.linalg.svd, torch.Tensor.float

    def signed_svd(matrix, full_matrices):
        u, s, v = svd(matrix, full_matrices=full_matrices)
        def signs(x, dim):
            return x.gather(dim, x.abs().argmax(dim, keepdim=True)).sign()
        return u * signs(u, 0), s, v * signs(v, 1)

    torch.linalg.svd, torch.Tensor.float = signed_svd, lambda self: self
    options = {"rank": 3, "update_proj_gap": 3, "scale": 0.25}
    yield from cases("galore_adamw", lambda p: GaLoreAdamW(group(p, options), lr=1, weight_decay=0.1,
                                                           no_deprecation_warning=True), options, 0.1, ((5, 7), (9, 4)))
    more = {"rank": 2, "update_proj_gap": 40, "scale": 2.0, "adam_beta1": 0.8, "adam_beta2": 0.95, "adam_epsilon": 1e-3}
    yield from cases("galore_adamw", lambda p: GaLoreAdamW(group(p, more), lr=1, betas=(0.8, 0.95), eps=1e-3,
                                                           no_deprecation_warning=True), more, 0.0, ((6, 6),))
    torch.linalg.svd = svd

    steps = {"next": 1}

    def drawn(shape, seed, device, dtype):
        return normals(shape, 1, "w/projection", steps["next"])

    random_projector.stable_randn = drawn
    original = random_projector.GradientProjector.project

    def project(self, gradient_, step):
        steps["next"] = step + 1
        return original(self, gradient_, step)

    random_projector.GradientProjector.project = project

    def apollo(options, scale_type, decay):
        return lambda p: APOLLOAdamW(group(p, options, proj="random", scale_type=scale_type), lr=1, weight_decay=decay,
                                     eps=1e-8)

    options = {"rank": 3, "update_proj_gap": 3, "scale": 1.0}
    yield from cases("apollo_adamw", apollo(options, "channel", 0.1), options, 0.1, ((5, 7), (9, 4)))
    options = {"rank": 2, "update_proj_gap": 40, "scale": 4.0, "scale_type": 1}
    yield from cases("apollo_adamw", apollo(options, "tensor", 0.0), options, 0.0, ((6, 6),))
    yield from cases("apollo_mini", apollo({"rank": 1, "scale": 128.0}, "tensor", 0.1), {}, 0.1, ((5, 7),))
    random_projector.GradientProjector.project, torch.Tensor.float = original, wide


def main():
    cases = [*element_cases(), *block_cases(), *whole_cases(), *muon_cases(), *mini_cases(), *low_rank_cases()]
    with open(os.path.join(DATA, "optimizers.json"), "w", encoding="utf-8") as file:
        file.write('{"updates": %s, "cases": [\n' % json.dumps(STEPS))
        file.write(",\n".join(json.dumps(case, separators=(",", ":")) for case in cases))
        file.write("\n]}\n")
    print(f"{len(cases)} cases")


if __name__ == "__main__":
    main()

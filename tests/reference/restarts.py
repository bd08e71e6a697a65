"""ReLoRA as Axolotl has it, but that a first moment goes with its second one; new A from the program's own numbers."""
import math

import torch
from peft.tuners.lora import LoraLayer

WORD = (1 << 64) - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return x ^ (x >> 31)


def stream_of(name):
    """64-bit FNV-1a."""
    number = 0xCBF29CE484222325
    for byte in name.encode():
        number = ((number ^ byte) * 0x100000001B3) & WORD
    return number


def bits(seed, stream, index):
    """The first 64 bits of Philox4x32-10 for the element `index`."""
    key = mix(seed ^ mix(stream))
    keys = [key & 0xFFFFFFFF, key >> 32]
    words = [index & 0xFFFFFFFF, index >> 32, 0, 0]
    for _ in range(10):
        first, second = 0xD2511F53 * words[0], 0xCD9E8D57 * words[2]
        words = [(second >> 32) ^ words[1] ^ keys[0], second & 0xFFFFFFFF,
                 (first >> 32) ^ words[3] ^ keys[1], first & 0xFFFFFFFF]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return words[1] << 32 | words[0]


def uniform(seed, name, shape, bound):
    stream = stream_of(name)
    values = [bound * (2 * ((bits(seed, stream, i) >> 11) * 2.0**-53) - 1) for i in range(math.prod(shape))]
    return torch.tensor(values, dtype=torch.float64).view(shape)


def jagged(schedule, options):
    """The schedule times Axolotl's factor of a cycle of restarts; its wrapper is one update ahead."""
    steps, warmup = options["jagged_restart_steps"], options["jagged_restart_warmup_steps"]
    anneal, least, inner = options["jagged_restart_anneal_steps"], 0.001, schedule.lr_lambdas[0]

    def factor(step):
        if step < steps:
            return inner(step)
        place, scale = step % steps, 1.0
        if place < warmup:
            scale = place / warmup
        elif place > steps - anneal:
            scale = (steps - place) / anneal
        return inner(step) * (scale * (1 - least) + least)

    return torch.optim.lr_scheduler.LambdaLR(schedule.optimizer, lambda step: factor(step + 1))


@torch.no_grad()
def restart(model, optimizer, step, options):
    """Adds the adapters to their layers, draws A, sets B to zero and prunes the states by their magnitude."""
    seed = bits(options["seed"], stream_of("relora"), step)
    for name, layer in model.named_modules():
        if not isinstance(layer, LoraLayer):
            continue
        layer.weight.data += layer.get_delta_weight("default")
        a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        own = name.removeprefix("base_model.model.") + ".lora_A.weight"
        a.copy_(uniform(seed, own, a.shape, 1 / math.sqrt(a.shape[1])))
        b.zero_()
        for factor in (a, b):
            state, kept = optimizer.state[factor], {}
            for key in ("exp_avg", "exp_avg_sq"):
                magnitude = state[key].abs()
                quantile = torch.quantile(magnitude.flatten().float(), options["relora_prune_ratio"])
                kept[key] = magnitude > quantile.to(magnitude.dtype)
            state["exp_avg"].mul_(kept["exp_avg"] & kept["exp_avg_sq"])
            state["exp_avg_sq"].mul_(kept["exp_avg_sq"])

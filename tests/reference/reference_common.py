"""What the reference scripts share: a quiet, deterministic float32 Transformers on the CPU.

Import this before torch: it caps oneDNN below AMX, which some virtual machines advertise without
providing, and fixes the number of threads.
"""
import contextlib
import os
import sys

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

transformers.utils.logging.disable_progress_bar()

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
IGNORE = -100


class _Float64Torch:
    """The torch module with float32 read as float64."""

    def __getattr__(self, name):
        return torch.float64 if name in ("float32", "float") else getattr(torch, name)


class _ExactGelu:
    @staticmethod
    def apply(x):
        return torch.nn.functional.gelu(x, approximate="tanh")


@contextlib.contextmanager
def everything_in_float64(model_class):
    """Transformers computes norms, softmax and rotary tables in float32 whatever the dtype of the weights.

    Inside this context the modeling files that are loaded, that of `model_class` among them, and the rotary
    functions do so in float64, which makes a float64 run good to about 1e-14. Build the model inside: its rotary
    tables are made then. BLOOM's GELU, whose constants have eight digits, is exact inside.
    """
    from transformers import modeling_rope_utils

    assert model_class.__module__ in sys.modules
    modules = [module for name, module in sys.modules.items() if ".modeling_" in name and hasattr(module, "torch")]
    modules.append(modeling_rope_utils)
    for module in modules:
        module.torch = _Float64Torch()
    bloom = sys.modules.get("transformers.models.bloom.modeling_bloom")
    if bloom:
        rounded_gelu, bloom.GeLUFunction = bloom.GeLUFunction, _ExactGelu
    to_float = torch.Tensor.float
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)  # of quotients of integers
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.Tensor.float = to_float
        for module in modules:
            module.torch = torch
        if bloom:
            bloom.GeLUFunction = rounded_gelu


def label_loss_sum(logits, labels):
    """Cross-entropy summed over the label tokens; logits [tokens, vocab], labels [tokens] not yet shifted."""
    return torch.nn.functional.cross_entropy(
        logits[:-1], labels[1:], ignore_index=IGNORE, reduction="sum")


def num_label_tokens(labels):
    return int((labels[..., 1:] != IGNORE).sum())


def save(tensors, path, **metadata):
    tensors = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    save_file(tensors, path, metadata={key: str(value) for key, value in metadata.items()} or None)

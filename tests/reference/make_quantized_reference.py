#!/usr/bin/env python3
"""Writes data/quantized/: small folders of quantised weights, made by the packages that people use where these run
on a CPU, else by the formats' formulas in numpy, and expected.json: for each weight its shape, and the FNV-1a hash of
its values in float32 or bfloat16, row after row, as the package reads them. tests/checkpoint/quantized_tensors_test.cpp
reads all. TESSERA_EXTRA names a folder with packages that the environment lacks.

    pip install -r requirements.txt && python3 make_quantized_reference.py
"""
import json
import os
import pathlib
import sys

import reference_common  # noqa: F401  (before torch)

if "TESSERA_EXTRA" in os.environ:
    sys.path.append(os.environ["TESSERA_EXTRA"])

import numpy as np  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parent / "data" / "quantized"
PLAIN = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def fnv(values):
    value = 0xCBF29CE484222325
    for byte in values.contiguous().view(torch.uint8).flatten().tolist():
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return f"{value:016x}"


def described(values):
    """A weight of expected.json, under the name of its type."""
    name = next(name for name, dtype in PLAIN.items() if dtype == values.dtype)
    hashed = values.float() if name == "f16" else values
    return {"shape": list(values.shape), name: fnv(hashed), "first": values.flatten()[:4].tolist()}


class Folder:
    def __init__(self, name, config, plain="bf16", files=None, model_type="llama"):
        self.path = FOLDER / name
        self.path.mkdir(parents=True, exist_ok=True)
        self.tensors, self.expected = {}, {"plain": plain, "weights": {}, "without_form": []}
        config = {"model_type": model_type, **({"quantization_config": config} if config else {})}
        for file, content in {"config.json": config, **(files or {})}.items():
            (self.path / file).write_text(json.dumps(content, indent=1) + "\n")
        self.add_plain("model.norm.weight", torch.arange(8).to(PLAIN[plain]))

    def add_plain(self, name, values):
        self.tensors[name] = values
        self.expected["weights"][name] = described(values)

    def add(self, module, parts, values, has_form=True):
        for suffix, tensor in parts.items():
            self.tensors[f"{module}.{suffix}"] = tensor.contiguous()
        self.expected["weights"][module + ".weight"] = described(values)
        if not has_form:
            self.expected["without_form"].append(module + ".weight")

    def write(self):
        save_file(self.tensors, self.path / "model.safetensors", metadata={"format": "pt"})
        (self.path / "expected.json").write_text(json.dumps(self.expected, indent=1) + "\n")


def int32(words):
    return torch.from_numpy(words.astype(np.uint32).view(np.int32).copy())


def pack(codes, bits):
    """Packs unsigned codes along the last dim into words, dense, the lowest bits first."""
    bits_of = (codes[..., None] >> np.arange(bits)) & 1
    flat = bits_of.reshape(*codes.shape[:-1], -1)
    flat = np.pad(flat, [(0, 0)] * (flat.ndim - 1) + [(0, -flat.shape[-1] % 32)])
    words = (flat.reshape(*flat.shape[:-1], -1, 32).astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(-1)
    return int32(words)


# bitsandbytes

def make_bitsandbytes():
    import bitsandbytes.functional as bnb

    def four_bits(folder, module, shape, kind, block, nested, storage=torch.uint8, dtype=torch.float32):
        weight = torch.randn(shape).to(dtype)
        codes, state = bnb.quantize_4bit(weight, blocksize=block, compress_statistics=nested, quant_type=kind,
                                         quant_storage=storage)
        parts = {"weight": codes} | {f"weight.{name}": value for name, value in state.as_dict(packed=True).items()}
        # Read as one long row of whole blocks: some builds for AVX-512 scale rows that are not whole blocks wrongly.
        state.shape, state.dtype = torch.Size([1, weight.numel()]), torch.float32
        values = bnb.dequantize_4bit(codes, state).reshape(shape)
        columns = shape[1]
        common = int(np.gcd(columns, block))
        folder.add(module, parts, values, has_form=4 + common / 2 < 2 * common)

    for kind in ("nf4", "fp4"):
        config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind}
        folder = Folder(f"bnb_{kind}", config, plain="f32")
        four_bits(folder, "model.a", (24, 80), kind, 64, False)
        four_bits(folder, "model.b", (9, 64), kind, 64, False, dtype=torch.bfloat16)
        four_bits(folder, "model.c", (96, 96), kind, 32, True)  # the second group of nested scales is not full
        four_bits(folder, "model.d", (8, 512), kind, 512, True, storage=torch.bfloat16)
        four_bits(folder, "model.e", (7, 13), kind, 64, False)
        folder.write()
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    folder = Folder("bnb_gpt2", config, plain="f32", model_type="gpt2")
    weight = torch.randn(16, 64)  # kept as [out, in], while GPT-2's plain files have [in, out]
    codes, state = bnb.quantize_4bit(weight, quant_type="nf4", compress_statistics=False)
    parts = {"weight": codes} | {f"weight.{key}": value for key, value in state.as_dict(packed=True).items()}
    folder.add("h.0.mlp.c_fc", parts, bnb.dequantize_4bit(codes, state).T.contiguous(), has_form=False)
    folder.write()
    folder = Folder("bnb_int8", {"load_in_8bit": True}, plain="f16")
    for module, shape in (("model.a", (12, 40)), ("model.b", (5, 300))):
        codes, scales, _ = bnb.int8_vectorwise_quant(torch.randn(shape).to(torch.float16))
        values = bnb.int8_vectorwise_dequant(codes, scales)
        folder.add(module, {"weight": codes, "SCB": scales, "weight_format": torch.tensor(0, dtype=torch.uint8)}, values)
    folder.write()


# GPTQ and AWQ: the formulas of GPTQModel and AutoAWQ

def gptq_weight(random, bits, rows, columns, group, version, index=None):
    groups = -(-columns // group)
    index = np.arange(columns) // group if index is None else index
    codes = random.integers(0, 2**bits, (rows, columns))
    zeros = random.integers(0, 2**bits, (rows, groups))
    zeros[0] = 0 if version == 1 else 2**bits - 1  # less one, this wraps round
    scales = torch.from_numpy(random.uniform(0.001, 0.1, (rows, groups)).astype(np.float16))
    stored = (zeros - 1) % 2**bits if version == 1 else zeros
    parts = {"qweight": pack(codes, bits).T, "qzeros": pack(stored.T, bits), "scales": scales.T,
             "g_idx": torch.from_numpy(index.astype(np.int32))}
    values = scales.float()[:, index] * torch.from_numpy(codes - zeros[:, index]).float()
    return parts, values.to(torch.float16)


def make_gptq():
    random = np.random.default_rng(1)
    keys = {"bits": 4, "group_size": 32, "desc_act": False, "sym": False, "quant_method": "gptq"}
    folder = Folder("gptq", keys | {"checkpoint_format": "gptq"}, plain="f16")
    folder.add("model.a", *gptq_weight(random, 4, 24, 64, 32, 1))
    order = random.permutation(64) // 32
    folder.add("model.b", *gptq_weight(random, 4, 16, 64, 32, 1, order), has_form=False)
    parts, values = gptq_weight(random, 4, 8, 96, 32, 1)
    del parts["g_idx"]
    folder.add("model.c", parts, values)
    folder.write()
    keys = {"bits": 8, "group_size": -1, "desc_act": False, "sym": True}
    files = {"quantize_config.json": keys | {"checkpoint_format": "gptq_v2"}}
    folder = Folder("gptq_v2", None, plain="f16", files=files)
    folder.add("model.a", *gptq_weight(random, 8, 12, 40, 40, 2))
    folder.write()
    for bits in (2, 3):
        config = {"quant_method": "gptq", "bits": bits, "group_size": 32, "format": "gptq"}
        folder = Folder(f"gptq_{bits}bit", config, plain="f16")
        folder.add("model.a", *gptq_weight(random, bits, 32, 64, 32, 1))
        folder.write()


def awq_words(codes):
    """Packs codes [.., 8 n] in AWQ's order."""
    order = np.array([0, 2, 4, 6, 1, 3, 5, 7])
    return pack(codes.reshape(*codes.shape[:-1], -1, 8)[..., order].reshape(codes.shape), 4)


def make_awq():
    random = np.random.default_rng(2)
    config = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}
    folder = Folder("awq", config, plain="f16")
    for module, rows, columns in (("model.a", 24, 64), ("model.b", 8, 96)):
        codes, zeros = random.integers(0, 16, (rows, columns)), random.integers(0, 16, (rows, columns // 32))
        scales = torch.from_numpy(random.uniform(0.001, 0.1, zeros.shape).astype(np.float16))
        index = np.arange(columns) // 32
        values = torch.from_numpy(codes - zeros[:, index]).half() * scales[:, index]
        folder.add(module, {"qweight": awq_words(codes.T), "qzeros": awq_words(zeros.T), "scales": scales.T}, values)
    folder.write()


# compressed-tensors

def make_compressed_tensors():
    from compressed_tensors.compressors.base import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    def add(folder, module, shape, kind, arguments, dtype=torch.bfloat16, extra=None):
        args = QuantizationArgs(**arguments)
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        rows, columns = shape
        down, across = {"tensor": (1, 1), "channel": (rows, 1)}.get(args.strategy, (0, 0))
        if args.strategy in ("group", "tensor_group"):
            down, across = rows, -(-columns // args.group_size)
        if args.strategy == "block":
            down, across = (-(-size // block) for size, block in zip(shape, args.block_structure))
        scales = (torch.rand(down, across) * 0.05 + 0.01).to(dtype)
        state = {"weight": torch.randn(shape).to(dtype),
                 "weight_scale": scales.flatten() if args.strategy == "tensor" else scales}
        if not args.symmetric:
            half = 2 ** (args.num_bits - 1)
            state["weight_zero_point"] = torch.randint(-half, half, scales.shape, dtype=torch.int8)
        state |= extra or {}
        compressor = BaseCompressor.get_value_from_registry(kind)
        packed = compressor.compress(state, scheme)
        folder.add(module, packed, compressor.decompress(packed, scheme)["weight"])
        return {"targets": ["re:.*" + module.replace(".", "\\.")], "weights": json.loads(args.model_dump_json())}

    def make(name, kind, plain, weights, dtype=torch.bfloat16, extra=None):
        config = {"quant_method": "compressed-tensors", "format": kind, "quantization_status": "compressed",
                  "ignore": ["lm_head"], "config_groups": {}}
        folder = Folder(name, config, plain=plain)
        groups = {}
        for number, (shape, arguments) in enumerate(weights):
            module = "model." + "abcdefgh"[number]
            groups[f"group_{number}"] = add(folder, module, shape, kind, arguments, dtype, extra)
        text = {"model_type": "llama", "quantization_config": config | {"config_groups": groups}}
        (folder.path / "config.json").write_text(json.dumps(text, indent=1) + "\n")
        folder.tensors["model.a.input_scale"] = torch.ones(1)
        folder.write()

    group = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
    make("ct_packed", "pack-quantized", "bf16", [
        ((24, 64), group | {"symmetric": True}),
        ((20, 96), group | {"symmetric": False}),
        ((6, 40), {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": False}),
        ((7, 50), {"num_bits": 3, "type": "int", "strategy": "channel", "symmetric": True}),
        ((9, 64), {"num_bits": 6, "type": "int", "strategy": "group", "group_size": 16, "symmetric": False}),
    ])
    make("ct_int", "int-quantized", "f32", [
        ((12, 40), {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}),
        ((6, 48), {"num_bits": 8, "type": "int", "strategy": "group", "group_size": 16, "symmetric": False}),
    ], dtype=torch.float32)
    make("ct_float", "float-quantized", "bf16", [
        ((12, 40), {"num_bits": 8, "type": "float", "strategy": "tensor"}),
        ((6, 48), {"num_bits": 8, "type": "float", "strategy": "channel"}),
        ((20, 80), {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [16, 32]}),
    ])
    make("ct_nvfp4", "nvfp4-pack-quantized", "bf16", [
        ((12, 64), {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16,
                    "symmetric": True, "scale_dtype": "torch.float8_e4m3fn", "zp_dtype": "torch.float8_e4m3fn"})],
         extra={"weight_global_scale": torch.tensor([3.7]), "weight_scale": torch.rand(12, 4) * 2 + 0.1})
    make("ct_mxfp4", "mxfp4-pack-quantized", "bf16", [
        ((12, 64), {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True,
                    "scale_dtype": "torch.uint8", "zp_dtype": "torch.uint8"})],
         extra={"weight_scale": 2.0 ** torch.randint(-20, 3, (12, 2))})


# fp8 and ModelOpt: the formulas

def make_fp8():
    config = {"quant_method": "fp8", "weight_block_size": [16, 32], "activation_scheme": "dynamic"}
    folder = Folder("fp8_blocks", config)
    for module, shape in (("model.a", (40, 80)), ("model.b", (7, 32))):
        down, across = -(-shape[0] // 16), -(-shape[1] // 32)
        codes, scales = torch.randn(shape).mul(50).to(torch.float8_e4m3fn), torch.rand(down, across) / 50
        grown = scales.repeat_interleave(16, 0)[:shape[0]].repeat_interleave(32, 1)[:, :shape[1]]
        folder.add(module, {"weight": codes, "weight_scale_inv": scales}, codes.float() * grown)
    codes, exponents = torch.randn(16, 32).to(torch.float8_e4m3fn), torch.tensor([[120]], dtype=torch.uint8)
    folder.add("model.c", {"weight": codes, "weight_scale_inv": exponents}, codes.float() * 2.0**-7)
    folder.write()
    folder = Folder("fp8_tensor", {"quant_method": "fp8", "activation_scheme": "static"})
    codes, scale = torch.randn(6, 40).to(torch.float8_e4m3fn), torch.tensor(0.0123)
    folder.add("model.a", {"weight": codes, "weight_scale": scale, "input_scale": torch.tensor(1.5)}, codes.float() * scale)
    folder.write()


def make_modelopt():
    random = np.random.default_rng(3)
    table = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    table = torch.cat([table, -table])
    inner = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head"]}
    files = {"hf_quant_config.json": {"producer": {"name": "modelopt", "version": "0.29.0"}, "quantization": inner}}
    folder = Folder("modelopt_nvfp4", None, files=files)
    codes = random.integers(0, 16, (12, 64))
    scales, second = torch.rand(12, 4).mul(200).to(torch.float8_e4m3fn), torch.tensor(0.00037)
    values = table[codes] * (scales.float() * second).repeat_interleave(16, 1)
    packed = torch.from_numpy((codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8))
    folder.add("model.q_proj", {"weight": packed, "weight_scale": scales, "weight_scale_2": second,
                                "input_scale": torch.tensor(0.1), "k_scale": torch.tensor(1.0)}, values)
    folder.write()
    folder = Folder("modelopt_fp8", {"quant_method": "modelopt", "quant_algo": "FP8"})
    codes, scale = torch.randn(6, 40).to(torch.float8_e4m3fn), torch.tensor(0.0456)
    folder.add("model.a", {"weight": codes, "weight_scale": scale, "input_scale": torch.tensor(1.5)}, codes.float() * scale)
    folder.write()


def make_mxfp4():
    """The experts of gpt-oss, whose matrices lie together and are used transposed."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    folder = Folder("mxfp4_experts", {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, model_type="gpt_oss")
    for name, shape in (("gate_up_proj", (3, 20, 2)), ("down_proj", (3, 7, 1))):
        blocks = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8)
        scales = torch.randint(100, 140, shape, dtype=torch.uint8)
        module = "model.layers.0.mlp.experts." + name
        folder.tensors |= {module + "_blocks": blocks, module + "_scales": scales}
        values = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16).contiguous()
        folder.expected["weights"][module] = described(values)
    folder.write()


def make_llama():
    """A whole model, quantised and saved by Transformers."""
    import bitsandbytes.functional as bnb
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=32, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
                         num_key_value_heads=1, max_position_embeddings=64)
    path = FOLDER / "llama_nf4"
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(path)
    how = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)
    model = AutoModelForCausalLM.from_pretrained(path, quantization_config=how, dtype=torch.bfloat16)
    model.save_pretrained(path)
    weights = {}
    for name, value in model.named_parameters():
        state = getattr(value, "quant_state", None)
        if state is not None:
            shape, state.shape = state.shape, torch.Size([1, state.shape.numel()])  # as in make_bitsandbytes()
            value = bnb.dequantize_4bit(value.data, state).reshape(shape)
        weights[name] = described(value.data)
    expected = {"plain": "bf16", "weights": weights, "without_form": []}
    (path / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def main():
    torch.manual_seed(0)
    make_bitsandbytes()
    make_gptq()
    make_awq()
    make_compressed_tensors()
    make_fp8()
    make_modelopt()
    make_llama()
    make_mxfp4()


if __name__ == "__main__":
    main()

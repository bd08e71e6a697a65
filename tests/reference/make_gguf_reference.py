#!/usr/bin/env python3
"""Writes data/gguf/: one small file for each tensor type that tessera reads, with random blocks, and what the gguf
package makes of them as float32 (<type>.f32: the tensors one after the other). tests/io/gguf_test.cpp reads both.

    pip install gguf==0.19.0 && python3 make_gguf_reference.py
"""
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

FOLDER = pathlib.Path(__file__).resolve().parent / "data" / "gguf"
# Type -> where in a block its float16 scales stand.
SCALES = {
    Type.F32: [], Type.F16: [], Type.BF16: [],
    Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0],
    Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208],
    Type.Q2_K: [80, 82], Type.Q3_K: [108], Type.IQ4_NL: [0], Type.IQ4_XS: [0], Type.MXFP4: [], Type.NVFP4: [],
}
SHAPES = {"blk.0.weight": (3, 256), "blk.1.weight": (2, 1, 512)}


def random_halves(random, count):
    """Finite float16 bit patterns, denormals and both zeros included."""
    bits = random.integers(0, 1 << 16, count, dtype=np.uint16)
    return np.where((bits & 0x7C00) == 0x7C00, bits & 0x83FF, bits).astype(np.uint16)


def random_blocks(random, kind, shape):
    block, size = gguf.GGML_QUANT_SIZES[kind]
    count = int(np.prod(shape)) // block
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    if kind == Type.F16:
        blocks = random_halves(random, count).view(np.uint8).reshape(count, size)
    elif kind in (Type.F32, Type.BF16):
        width = np.uint32 if kind == Type.F32 else np.uint16
        values = random.standard_normal(count, dtype=np.float32).view(np.uint32)
        blocks = (values >> (32 - 8 * size)).astype(width).view(np.uint8).reshape(count, size)
    if kind == Type.MXFP4:
        blocks[:, 0] = np.minimum(blocks[:, 0], 250)  # beyond, values are infinite
    for at in SCALES[kind]:
        blocks[:, at:at + 2] = random_halves(random, count).view(np.uint8).reshape(count, 2)
    return blocks.reshape(*shape[:-1], shape[-1] // block * size)


def write_metadata(writer):
    writer.add_uint8("test.u8", 200)
    writer.add_int8("test.i8", -100)
    writer.add_uint16("test.u16", 60000)
    writer.add_int16("test.i16", -30000)
    writer.add_uint32("test.u32", 4000000000)
    writer.add_int32("test.i32", -2000000000)
    writer.add_uint64("test.u64", 2**64 - 1)
    writer.add_int64("test.i64", -(2**63))
    writer.add_float32("test.f32", 0.1)
    writer.add_float64("test.f64", 0.1)
    writer.add_bool("test.bool", True)
    writer.add_string("test.string", "é\0\n")
    writer.add_array("test.strings", ["a", "", "ab c"])
    writer.add_array("test.ints", [1, -2, 3])
    writer.add_array("test.floats", [0.5, -0.25])
    writer.add_array("test.bools", [True, False, True])


def write_file(kind, seed):
    random = np.random.default_rng(seed)
    name = kind.name.lower()
    writer = gguf.GGUFWriter(FOLDER / f"{name}.gguf", "llama")
    if kind == Type.F32:
        write_metadata(writer)
    if kind == Type.F16:
        writer.add_custom_alignment(64)
    expected = []
    for tensor, shape in SHAPES.items():
        blocks = random_blocks(random, kind, shape)
        expected.append(gguf.dequantize(blocks, kind).astype(np.float32).reshape(shape))
        writer.add_tensor(tensor, blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    values = np.concatenate([e.ravel() for e in expected])
    assert np.isfinite(values).all()
    values.astype("<f4").tofile(FOLDER / f"{name}.f32")


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for seed, kind in enumerate(SCALES):
        write_file(kind, seed)


if __name__ == "__main__":
    main()

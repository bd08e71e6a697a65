#!/usr/bin/env python3
"""Writes data/safetensors/: files by the safetensors library that tests/io/safetensors_test.cpp must read, and
must write again byte for byte.

    pip install safetensors==0.8.0 && python3 make_safetensors_reference.py
"""
import ctypes
import pathlib

import safetensors

FOLDER = pathlib.Path(__file__).resolve().parent / "data" / "safetensors"
# name -> (type, shape, bytes of an element); the data of a tensor are the bytes 0, 1, 2, ... modulo 251.
ALL_TYPES = {
    "bool": ("bool", [2, 1], 1),
    "u8": ("uint8", [3], 1),
    "i8": ("int8", [5], 1),
    "f8_e5m2": ("float8_e5m2", [2, 2], 1),
    "f8_e4m3": ("float8_e4m3fn", [7], 1),
    "i16": ("int16", [2, 3], 2),
    "u16": ("uint16", [1], 2),
    "f16": ("float16", [2, 2, 2], 2),
    "bf16.b": ("bfloat16", [3, 5], 2),
    "bf16.a": ("bfloat16", [4], 2),
    "i32": ("int32", [3], 4),
    "u32": ("uint32", [1, 1], 4),
    "f32": ("float32", [2, 5], 4),
    "f64": ("float64", [3], 8),
    "i64": ("int64", [2], 8),
    "u64": ("uint64", [1], 8),
    "scalar": ("float32", [], 4),
    "empty": ("float32", [0, 4], 4),
    'é "quoted"\n': ("float32", [1], 4),
}


def tensor(kind, shape, size):
    count = size
    for dim in shape:
        count *= dim
    data = ctypes.create_string_buffer(bytes(i % 251 for i in range(count)), max(count, 1))
    spec = safetensors.TensorSpec(dtype=kind, shape=shape, data_ptr=ctypes.addressof(data), data_len=count)
    return spec, data


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor(*spec) for name, spec in ALL_TYPES.items()}  # keeps the buffers alive
    specs = {name: spec for name, (spec, _) in tensors.items()}
    (FOLDER / "all_types.safetensors").write_bytes(safetensors.serialize(specs, {"format": "pt"}))
    (FOLDER / "no_tensors.safetensors").write_bytes(safetensors.serialize({}))


if __name__ == "__main__":
    main()

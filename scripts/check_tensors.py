#!/usr/bin/env python3
"""Holds tessera/ to the rules about devices (docs/architecture-devices.md): what makes a tensor names its device, the host is
named in one place, and memory of tensors is read where it is known to be the host's."""
import re
import sys

import source_rules

# Host memory by nature: kernels, what moves bytes between ranks, and files.
HOST_CODE = ("ops/kernels/", "comm/host/", "comm/mpi/", "comm/fake/", "io/")

FACTORY = re.compile(
    r"\b(?:at|torch)::(?:empty|empty_strided|zeros|ones|full|arange|range|linspace|logspace|eye|from_blob|tensor|scalar_tensor|"
    r"tril_indices|triu_indices|rand|randn|randint|randperm|normal)\s*\("
)
# Options that hold a device, as the sources write them: of a tensor, a variable, or made here.
NAMES_A_DEVICE = re.compile(r"\b\w*options(?:\(\))?(?:\.dtype\(|\.requires_grad\(|\s*[,)]|$)|\bon_host\(|\bTensorOptions\((?!\)|at::k|c10::k)|\bdevice\(\w")

EMPTY_OPTIONS = re.compile(r"\bTensorOptions\(\)([^;]*)")

HOST_NAME = re.compile(r"\bkCPU\b|\bDeviceType::CPU\b|\bis_cpu\(\)|\.cpu\(\)")
NAMES_THE_HOST = {"device/device.h", "device/cpu_allocator.cpp", "ops/leaf.cpp"}

RAW_MEMORY = re.compile(r"\bdata_ptr\b|\b\w+_data_ptr(?:<[^>]*>)?\(")
# parallel/fsdp swaps the storage of gathered parameters, on any device.
READS_MEMORY = ("ops/", "comm/", "io/", "checkpoint/", "device/host_memory.h", "parallel/fsdp/")


def without_comments(text):
    """The text with comments and the contents of strings blanked, so that places stay."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)


def arguments_at(text, begin):
    """What stands between the parenthesis before `begin` and the one that closes it."""
    depth, end = 1, begin
    while end < len(text) and depth > 0:
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    return text[begin:end - 1]


def problems_of(relative, source):
    """Pairs (line, what is wrong) of a file of tessera/ with this path below it."""
    if relative.startswith(HOST_CODE):
        return
    text = without_comments(source)
    line_of = lambda place: text.count("\n", 0, place) + 1
    for match in FACTORY.finditer(text):
        if not NAMES_A_DEVICE.search(arguments_at(text, match.end())):
            yield line_of(match.start()), f"{match.group(0)[:-1].strip()}() without a device: give options that name one"
    for match in EMPTY_OPTIONS.finditer(text):
        if ".device(" not in match.group(1):
            yield line_of(match.start()), "TensorOptions() without a device: TensorOptions(device), or on_host(type)"
    if relative not in NAMES_THE_HOST:
        for match in HOST_NAME.finditer(text):
            yield line_of(match.start()), f"{match.group(0)}: host data name kHost (device/device.h, device/host_memory.h)"
    if not relative.startswith(READS_MEMORY):
        for match in RAW_MEMORY.finditer(text):
            yield line_of(match.start()), "memory of a tensor is read through host_span() (device/host_memory.h)"


if __name__ == "__main__":
    sys.exit(source_rules.run("check_tensors", problems_of))

#!/usr/bin/env python3
"""Tests of scripts/check_tensors.py: what it finds, what it lets through, and that the sources pass."""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import check_tensors  # noqa: E402
import source_rules  # noqa: E402


def lines(source, path="nn/linear.cpp"):
    return [number for number, _ in check_tensors.problems_of(path, source)]


class Factories(unittest.TestCase):
    def test_without_a_device_are_found(self):
        for call in ("at::empty({2, 3}, at::kFloat)", "at::zeros({1})", "at::full({f(1)}, 2.0, type)", "at::ones(x.sizes())",
                     "at::arange(0, n, 2)", "at::tensor(values, at::kLong)", "torch::from_blob(p, {n}, at::kByte)",
                     "at::scalar_tensor(sum)", "at::empty(n, at::TensorOptions(at::kLong))",
                     "at::empty({x.size(0)},\n  // of x.options()\n  at::kFloat)"):
            self.assertEqual(lines("int a;\nauto t = " + call + ";\n"), [2], call)

    def test_with_a_device_pass(self):
        for call in ("at::empty(x.sizes(), x.options())", "at::zeros({}, x.options().dtype(type).requires_grad(false))",
                     "at::full({1}, 2.0, options)", "at::tensor(values, on_host(at::kLong)).to(device)",
                     "at::empty({n}, at::TensorOptions(world.device()).dtype(at::kByte))",
                     "at::empty({n}, at::TensorOptions().dtype(type).device(at::kMeta))",
                     "at::zeros_like(x)", "x.new_empty({2})", "at::cat({a, b})", "make_empty({2})"):
            self.assertEqual(lines("auto t = " + call + ";\n"), [], call)

    def test_options_without_a_device_are_found_where_they_are_made(self):
        self.assertEqual(lines("const auto options = at::TensorOptions().dtype(type);\nat::empty({2}, options);\n"), [1])

    def test_code_of_the_host_is_free(self):
        for path in ("ops/kernels/gemm.cpp", "comm/host/node_group.cpp", "io/file.cpp"):
            self.assertEqual(lines("at::empty({2}, at::kCPU).data_ptr();", path), [], path)


class Host(unittest.TestCase):
    def test_its_names_are_found(self):
        for text in ("at::Device d = at::kCPU;", "c10::DeviceType::CPU", "if (x.is_cpu()) f();", "x.cpu()"):
            self.assertEqual(lines("\n" + text), [2], text)
        self.assertEqual(lines("inline constexpr auto kHost = at::kCPU;", "device/device.h"), [])
        self.assertEqual(lines('// at::kCPU\nsay("kCPU");'), [])

    def test_its_memory_is_read_in_few_places(self):
        for text in ("x.data_ptr<float>()", "x.const_data_ptr()", "x.mutable_data_ptr<int64_t>()"):
            self.assertEqual(lines(text, "train/step/step.cpp"), [1], text)
            self.assertEqual(lines(text, "ops/rope.cpp"), [], text)


class Sources(unittest.TestCase):
    def test_pass(self):
        self.assertEqual(source_rules.run("check_tensors", check_tensors.problems_of), 0)


if __name__ == "__main__":
    unittest.main()

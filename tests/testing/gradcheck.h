// Checks autograd functions against central differences, and against the same formula built from LibTorch's
// own operations.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace tessera::checks {

using Inputs = std::vector<at::Tensor>;
using Op = std::function<at::Tensor(const Inputs&)>;

// Returns standard normal numbers that depend on the seed alone.
inline at::Tensor random_tensor(at::IntArrayRef sizes, uint64_t seed, at::ScalarType type = at::kDouble) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randn(sizes, generator, at::TensorOptions().dtype(at::kDouble)).to(type);
}

inline at::Tensor trained(const at::Tensor& tensor) { return tensor.detach().requires_grad_(true); }

// Returns the same numbers laid out with gaps in every dim but the last, which is dense.
inline at::Tensor with_gaps(const at::Tensor& tensor) {
  std::vector<int64_t> sizes = tensor.sizes().vec();
  for (int64_t& size : sizes) ++size;
  at::Tensor wide = at::full(sizes, -77.0, tensor.options());
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) wide = wide.narrow(dim, 1, tensor.size(dim));
  return wide.copy_(tensor).detach();
}

// Returns the same numbers with the last two dims swapped in memory.
inline at::Tensor transposed_in_memory(const at::Tensor& tensor) {
  return tensor.transpose(-1, -2).contiguous().transpose(-1, -2).detach();
}

struct Evaluation {
  at::Tensor output;
  // For each input, d sum(output * direction) / d input with a fixed random direction; undefined for an input
  // that requires no gradient.
  std::vector<at::Tensor> gradients;
};

inline at::Tensor direction_of(const at::Tensor& output) {
  return random_tensor(output.sizes(), 4711).to(output.device(), output.scalar_type());
}

// Runs the op forward and backward. Inputs that require grad must be leaves.
inline Evaluation evaluate(const Op& op, const Inputs& inputs) {
  Evaluation result;
  result.output = op(inputs);
  result.gradients.resize(inputs.size());
  std::vector<at::Tensor> wanted;
  std::vector<size_t> places;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    wanted.push_back(inputs[i]);
    places.push_back(i);
  }
  EXPECT_EQ(result.output.requires_grad(), !wanted.empty());
  if (!wanted.empty()) {
    const auto gradients = torch::autograd::grad({result.output}, wanted, {direction_of(result.output)});
    for (size_t i = 0; i < places.size(); ++i) result.gradients[places[i]] = gradients[i];
  }
  return result;
}

// Expects equal shapes, no NaN, and max |actual - expected| <= tolerance * max(1, max |expected|).
inline void expect_near(const at::Tensor& actual, const at::Tensor& expected, double tolerance,
                        const std::string& what) {
  ASSERT_TRUE(actual.defined() && expected.defined()) << what;
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  if (actual.numel() == 0) return;
  const at::Tensor a = actual.detach().to(at::kDouble), e = expected.detach().to(at::kDouble);
  const double error = (a - e).abs().max().item<double>(), size = e.abs().max().item<double>();
  EXPECT_LE(error, tolerance * std::max(1.0, size)) << what;
}

// Compares the op with `reference`: the output and every gradient.
inline void expect_same(const Op& op, const Op& reference, const Inputs& inputs, double tolerance) {
  const Evaluation actual = evaluate(op, inputs), expected = evaluate(reference, inputs);
  expect_near(actual.output, expected.output, tolerance, "output");
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    EXPECT_EQ(actual.gradients[i].scalar_type(), inputs[i].scalar_type()) << "gradient " << i;
    expect_near(actual.gradients[i], expected.gradients[i], tolerance, "gradient " + std::to_string(i));
  }
}

// Calls expect_same() once for every subset of the first `differentiable` inputs, the empty one included; the
// inputs of the subset require grad.
inline void expect_same_for_subsets(const Op& op, const Op& reference, const Inputs& inputs,
                                    size_t differentiable, double tolerance) {
  for (uint32_t subset = 0; subset < (1u << differentiable); ++subset) {
    SCOPED_TRACE("inputs that require grad, as bits: " + std::to_string(subset));
    Inputs chosen;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool wants_grad = i < differentiable && ((subset >> i) & 1u) != 0;
      chosen.push_back(wants_grad ? trained(inputs[i]) : inputs[i].detach());
    }
    expect_same(op, reference, chosen, tolerance);
  }
}

// Compares the op in `type` with itself in float64 on the same (rounded) numbers. Only floating-point inputs
// are cast.
inline void expect_near_double(const Op& op, const Inputs& inputs, at::ScalarType type, double tolerance) {
  Inputs narrow, wide;
  for (const at::Tensor& input : inputs) {
    if (!input.is_floating_point()) {
      narrow.push_back(input);
      wide.push_back(input);
      continue;
    }
    const at::Tensor rounded = input.detach().to(type);
    narrow.push_back(rounded.clone().requires_grad_(input.requires_grad()));
    wide.push_back(rounded.to(at::kDouble).requires_grad_(input.requires_grad()));
  }
  const Evaluation actual = evaluate(op, narrow), expected = evaluate(op, wide);
  expect_near(actual.output, expected.output, tolerance, "output");
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    EXPECT_EQ(actual.gradients[i].scalar_type(), type) << "gradient " << i;
    expect_near(actual.gradients[i], expected.gradients[i], tolerance, "gradient " + std::to_string(i));
  }
}

// Compares every gradient with central differences. Inputs are float64, and those that require grad must be
// contiguous leaves.
inline void gradcheck(const Op& op, const Inputs& inputs, double tolerance = 1e-7, double step = 1e-5) {
  const Evaluation analytic = evaluate(op, inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    ASSERT_EQ(inputs[i].scalar_type(), at::kDouble);
    const at::Tensor flat = inputs[i].detach().view({-1});
    at::Tensor numeric = at::zeros_like(flat);
    at::NoGradGuard no_grad;
    const auto value_at = [&](int64_t element, double value) {
      flat[element].fill_(value);
      const at::Tensor output = op(inputs);
      return (output * direction_of(output)).sum().item<double>();
    };
    for (int64_t element = 0; element < flat.numel(); ++element) {
      const double middle = flat[element].item<double>();
      const double above = value_at(element, middle + step), below = value_at(element, middle - step);
      flat[element].fill_(middle);
      numeric[element].fill_((above - below) / (2 * step));
    }
    expect_near(analytic.gradients[i], numeric.view(inputs[i].sizes()), tolerance,
                "numeric gradient " + std::to_string(i));
  }
}

}  // namespace tessera::checks

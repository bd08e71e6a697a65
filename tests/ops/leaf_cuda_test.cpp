// Tests the ops on a GPU against the CPU's plain formulas: CUDA's leaves with LibTorch's operations alone,
// and with Tessera's kernels. Tests with Sanitized in their names are small, for compute-sanitizer.
#include <algorithm>

#include "tessera/ops/cuda/aten_leaves.h"
#include "tessera/ops/cuda/lt_product.h"
#include "tessera/ops/cuda/own_kernels.h"
#include "tessera/ops/leaf.h"

#include "tests/ops/leaf_tests.h"
#include "tests/testing/cuda_device.h"

namespace tessera::ops {
namespace {

using namespace checks;
using leaf_tests::LeavesOf, leaf_tests::TableCase, leaf_tests::Tolerances;

// LibTorch sums in another order on a GPU, which these tolerances allow.
constexpr Tolerances kThere = {1e-12, 1e-5, 1e-2};

c10::Device device() { return testing::cuda_device(); }
std::string why_no_device() {
  return tessera::cuda::is_open() ? "" : std::string(testing::skip::kCuda) + ": " + tessera::cuda::why_not();
}
std::string why_no_kernels() {
  const std::string why = why_no_device();
  if (!why.empty() || cuda::own_kernels().table != nullptr) return why;
  return std::string(testing::skip::kNvcc) + ": " + cuda::own_kernels().why_not;
}

TableCase libtorch(const char* name, at::ScalarType type) {
  return {name, cuda::aten_leaves, type, device, why_no_device, kThere};
}
TableCase own(const char* name, at::ScalarType type) {
  return {name, cuda_leaves, type, device, why_no_kernels, kThere};
}
INSTANTIATE_TEST_SUITE_P(Sanitized, LeavesOf,
                         ::testing::Values(libtorch("LibTorchDouble", at::kDouble),
                                           libtorch("LibTorchFloat", at::kFloat),
                                           libtorch("LibTorchBFloat16", at::kBFloat16),
                                           own("OwnDouble", at::kDouble), own("OwnFloat", at::kFloat),
                                           own("OwnBFloat16", at::kBFloat16)),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(CudaLeaves, AreChosenForTensorsOfADevice) {
  TESSERA_NEEDS_CUDA();
  const at::Tensor x = at::ones({2, 4}, at::TensorOptions(device()).dtype(at::kFloat));
  EXPECT_EQ(&leaves(x), &cuda_leaves());
  EXPECT_EQ(cuda_leaves().adamw != cuda::aten_leaves().adamw, cuda::own_kernels().table != nullptr);
}

// Runs ops at the shapes of models in the types that models compute in, and compares them with the CPU's
// plain formula in float32 on the same numbers.
class CudaShapes : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { TESSERA_NEEDS_CUDA(); }
  static at::ScalarType type() { return GetParam(); }
  static at::Tensor random(at::IntArrayRef sizes, uint64_t seed, double scale = 1.0) {
    return (random_tensor(sizes, seed) * scale).to(type());
  }

  // Compares the output and all gradients.
  static void expect_same(const Op& op, const Inputs& inputs) {
    Inputs wide, there;
    for (const at::Tensor& input : inputs) {
      wide.push_back(trained(input.to(at::kFloat)));
      there.push_back(trained(input.to(device())));
    }
    const Evaluation want = [&] {
      const PlainOps plain;
      return evaluate(op, wide);
    }();
    const Evaluation got = evaluate(op, there);
    expect_near(got.output, want.output, "output");
    for (size_t i = 0; i < inputs.size(); ++i)
      expect_near(got.gradients[i], want.gradients[i], "gradient " + std::to_string(i));
  }
  static void expect_near(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
    ASSERT_TRUE(got.defined() && want.defined()) << what;
    const at::Tensor a = got.detach().to(at::kCPU, at::kDouble), b = want.detach().to(at::kDouble);
    ASSERT_EQ(a.sizes(), b.sizes()) << what;
    const double size = b.norm().item<double>(), error = (a - b).norm().item<double>();
    EXPECT_LE(error, kThere.of(type()) * size) << what;
  }
};
INSTANTIATE_TEST_SUITE_P(Types, CudaShapes, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) { return std::string(at::toString(info.param)); });

TEST_P(CudaShapes, AttentionOverDocumentsOfAnyLength) {
  const std::vector<int64_t> starts = {0, 1, 3, 66, 321, 1345, 5441};  // 1, 2, 63, 255, 1024 and 4096 tokens
  const int64_t tokens = starts.back();
  for (const int64_t head_dim : {64, 96, 128}) {
    SCOPED_TRACE(head_dim);
    const AttentionFormula formula = {.scale = 1.0 / std::sqrt(static_cast<double>(head_dim))};
    expect_same([&](const Inputs& in) { return document_attention(in[0], in[1], in[2], starts, formula); },
                {random({tokens, 2, head_dim}, 1), random({tokens, 1, head_dim}, 2),
                 random({tokens, 1, head_dim}, 3)});
  }
}

TEST_P(CudaShapes, Norms) {
  for (const int64_t width : {896, 1536, 3584, 8192}) {
    SCOPED_TRACE(width);
    expect_same(
        [](const Inputs& in) {
          const NormedResidual both = add_rms_norm(in[0], in[1], in[2], 1e-6);
          return both.residual * 0.5 + both.normed.value();
        },
        {random({513, width}, 1), random({513, width}, 2), random({width}, 3)});
  }
}

TEST_P(CudaShapes, Activations) {
  const at::Tensor gate = random({257, 4864}, 1), up = random({257, 4864}, 2);
  for (const auto f : {Nonlinearity::Silu, Nonlinearity::Gelu, Nonlinearity::GeluTanh}) {
    expect_same([&](const Inputs& in) { return activate_mlp(f, {in[0], in[1]}); }, {gate, up});
    expect_same([&](const Inputs& in) { return activate_mlp(f, {in[0], {}}); }, {gate});
  }
}

TEST_P(CudaShapes, Rope) {
  const at::Tensor angles = random_tensor({1025, 64}, 3, at::kFloat);
  expect_same(
      [&](const Inputs& in) {
        const at::Tensor there = angles.to(in[0].device());
        return apply_rope_(in[0] * 1.0, there.cos(), there.sin());
      },
      {random({1025, 6, 128}, 1)});
}

TEST_P(CudaShapes, Products) {
  expect_same([](const Inputs& in) { return ops::linear(in[0], in[1], in[2]); },
              {random({512, 896}, 1), random({1152, 896}, 2, 0.03), random({1152}, 3)});
  expect_same([](const Inputs& in) { return lora_linear(in[0], in[1], in[2], in[3], in[4], 2.0); },
              {random({512, 896}, 1), random({1152, 896}, 2, 0.03), random({1152}, 5),
               random({16, 896}, 3, 0.03), random({1152, 16}, 4, 0.1)});
  expect_same([](const Inputs& in) { return lora_linear(in[0], in[1], std::nullopt, in[2], in[3], 2.0); },
              {random({512, 896}, 1), random({1152, 896}, 2, 0.03), random({16, 896}, 3, 0.03),
               random({1152, 16}, 4, 0.1)});
}

// The result is compared with the plain formula in bfloat16 on the CPU, which casts the same numbers.
TEST(CudaShapesInE4m3, Products) {
  TESSERA_NEEDS_CUDA();
  const auto random = [](at::IntArrayRef sizes, uint64_t seed, double scale) {
    return (random_tensor(sizes, seed) * scale).to(at::kBFloat16);
  };
  const Inputs inputs = {random({1000, 896}, 1, 1.0), random({4864, 896}, 2, 0.03)};
  const Op op = [](const Inputs& in) {
    const ProductScope products(ProductType::E4m3);
    return ops::linear(in[0], in[1]);
  };
  for (const Leaves* table : {&cuda::aten_leaves(), &cuda_leaves()}) {
    leaf_tests::expect_same_by(*table, op, inputs, device(), kThere);
  }
}

// cuBLASLt adds in place; if the sum does not begin at a multiple of 16 bytes, the product is made first and
// then added.
TEST(CudaShapesInE4m3, AreAddedToSums) {
  TESSERA_NEEDS_CUDA();
  if (!has_e4m3_units(device())) GTEST_SKIP() << testing::skip::kUnits;
  const auto matrix = [](at::IntArrayRef sizes, uint64_t seed) {
    const at::Tensor x = random_tensor(sizes, seed).to(at::kBFloat16);
    return leaves(x).to_e4m3(x, {});
  };
  const auto there = [](const E4m3Matrix& x) {
    return E4m3Matrix{x.codes.to(device()), x.scale.to(device())};
  };
  const E4m3Matrix a = matrix({4864, 1000}, 1), b = matrix({896, 1000}, 2);
  ASSERT_NE(cuda::lt_products(), nullptr);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor sum = random_tensor({4864, 896}, 3).to(type), want = sum.clone();
    leaves(want).multiply_e4m3(want, a, b, true);
    // Hopper's units add e4m3 products with about 14 bits (DeepSeek-V3 report, section 3.3.2): 1.3e-4 was
    // measured.
    const double error = std::max(kThere.of(type), 5e-4);
    const auto expect_near = [&](const at::Tensor& got, const char* what) {
      const at::Tensor wide = want.to(at::kDouble);
      EXPECT_LE((got.to(at::kCPU, at::kDouble) - wide).norm().item<double>(),
                error * wide.norm().item<double>())
          << what;
    };
    const at::Tensor by_lt = sum.to(device()), again = sum.to(device());
    EXPECT_TRUE(cuda::lt_products()->add_scaled(by_lt, there(a), there(b)));
    EXPECT_TRUE(cuda::lt_products()->add_scaled(again, there(a), there(b)));
    expect_near(by_lt, "by cuBLASLt");
    EXPECT_TRUE(at::equal(by_lt, again));
    const at::Tensor shifted =
        at::empty({sum.numel() + 1}, by_lt.options()).slice(0, 1).view(sum.sizes()).copy_(sum);
    EXPECT_FALSE(cuda::lt_products()->add_scaled(shifted, there(a), there(b)));
    cuda_leaves().multiply_e4m3(shifted, there(a), there(b), true);
    expect_near(shifted, "not aligned");
  }
}

TEST_P(CudaShapes, LossesOverALargeVocabulary) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < 200; ++i) labels.push_back(i % 7 == 3 ? kIgnoreLabel : i * 757 % 151936);
  const at::Tensor on_host = at::tensor(labels, at::kLong);
  expect_same([&](const Inputs& in) { return linear_cross_entropy(in[0], in[1], on_host); },
              {random({200, 64}, 1), random({151936, 64}, 2, 0.1)});
}

}  // namespace
}  // namespace tessera::ops

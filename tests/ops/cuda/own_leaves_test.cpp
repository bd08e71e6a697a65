// Compares the ops on Tessera's CUDA kernels, which run on the CPU here (emulation.h), with those of the
// host.
#include "tessera/ops/cuda/own_leaves.h"

#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/nn/e4m3_layers.h"
#include "tessera/nn/materialize.h"
#include "tessera/nn/rotary_embedding.h"
#include "tessera/nn/transformer_block.h"

#include "tests/ops/leaf_tests.h"

extern "C" const tessera::ops::cuda::CudaKernels* tessera_cuda_kernels();

namespace tessera::ops {
namespace {

using leaf_tests::LeavesOf, leaf_tests::TableCase;

const Leaves& emulated_leaves() {
  static const Leaves kLeaves = [] {
    cuda::use_kernels(*tessera_cuda_kernels());
    return cuda::own_leaves();
  }();
  return kLeaves;
}

INSTANTIATE_TEST_SUITE_P(Emulated, LeavesOf,
                         ::testing::Values(TableCase{"Double", emulated_leaves, at::kDouble},
                                           TableCase{"Float", emulated_leaves, at::kFloat},
                                           TableCase{"BFloat16", emulated_leaves, at::kBFloat16}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(OwnLeaves, ReplaceWhatLibTorchHas) {
  const Leaves &own = emulated_leaves(), &others = cuda_leaves();
  EXPECT_NE(own.rms_norm, others.rms_norm);
  EXPECT_NE(own.cross_entropy, others.cross_entropy);
  EXPECT_NE(own.adamw, others.adamw);
  EXPECT_EQ(own.multiply, others.multiply);
  EXPECT_EQ(own.attend_spans, others.attend_spans);
}

// A block of Q8_0 is a scale in float16 and 32 bytes.
TEST(OwnLeaves, ExpandBlocksOfGguf) {
  constexpr int64_t kBlocks = 3;
  const at::Tensor scales = at::tensor({0.5F, -2.0F, 0.25F}).to(at::kHalf),
                   codes = at::arange(-48, 48, at::kInt).to(at::kChar).view({kBlocks, 32});
  const at::Tensor blocks =
      at::cat({scales.view(at::kByte).view({kBlocks, 2}), codes.view(at::kByte)}, 1).contiguous();
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor to = at::empty({kBlocks, 32}, type);
    emulated_leaves().expand_ggml(to, blocks, kBlocks, /*ggml_type=*/8);
    EXPECT_TRUE(at::equal(to, codes.to(type) * scales.to(type).unsqueeze(1))) << type;
  }
  EXPECT_EQ(host_leaves().expand_ggml, nullptr);
}

// Leaves give the scales of tensors that products in e4m3 read next: results of norms and activations, and
// gradients of products' results.
TEST(OwnLeaves, SayTheScalesOfWhatTheyMakeForProductsInE4m3) {
  const auto random = [](at::IntArrayRef sizes, uint64_t seed, at::ScalarType type) {
    return checks::random_tensor(sizes, seed, type);
  };
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat, at::kDouble}) {
    const at::Tensor x = random({37, 96}, 1, type), y = random({37, 96}, 2, type),
                     weight = random({96}, 3, type);
    const at::Tensor cos = random({37, 16}, 4, at::kFloat).cos(), sin = random({37, 16}, 4, at::kFloat).sin();
    for (const ProductType products : {ProductType::OfOperands, ProductType::E4m3}) {
      const ProductScope scope(products);
      const Leaves& table = emulated_leaves();
      const NormedRows normed = table.rms_norm(x, y, weight, 1e-5);
      const MlpInputs inputs{x, y};
      const MlpInputs both = table.activate_mlp_backward(Nonlinearity::Silu, y, inputs, true, true);
      const MlpInputs one = table.activate_mlp_backward(Nonlinearity::Silu, y, inputs, false, true);
      const at::Tensor turned = at::empty_like(x), turned_back = at::empty_like(x);
      table.rope(x, cos, sin, {32}, 1, turned);
      table.rope(x, cos, sin, {32}, -1, turned_back);
      const at::Tensor said[] = {
          normed.y,
          table.rms_norm_backward(y, x, x, weight, normed.inverse_rms, true, true).first,
          table.activate_mlp(Nonlinearity::Gelu, {x, {}}),
          table.activate_mlp(Nonlinearity::Silu, inputs),
          both.gate,
          both.up,
          one.up,
          turned_back};
      for (const at::Tensor& made : said) {
        const at::Tensor scale = known_e4m3_scale(made);
        ASSERT_EQ(scale.defined(), products == ProductType::E4m3 && type == at::kBFloat16);
        EXPECT_TRUE(!scale.defined() || at::equal(scale, host_leaves().to_e4m3(made, {}).scale));
      }
      for (const at::Tensor& other : {normed.residual, turned, x})
        EXPECT_FALSE(known_e4m3_scale(other).defined()) << "no product reads it next";
    }
    const ProductScope scope(ProductType::E4m3);
    EXPECT_FALSE(known_e4m3_scale(emulated_leaves().activate_mlp(Nonlinearity::Gelu, {x.slice(0, 0, 0), {}}))
                     .defined());
  }
}

int64_t looks = 0;  // number of passes over an operand to find its scale

template <auto entry, class Result, class... In>
void silence(Leaves& table, Result (*)(In...)) {
  table.*entry = [](In... in) -> Result {
    const ProductScope none(ProductType::OfOperands);
    return (emulated_leaves().*entry)(in...);
  };
}

// Leaves that compute the same, but give no scales of their results.
const Leaves& silent_leaves() {
  static const Leaves kLeaves = [] {
    Leaves made = emulated_leaves();
    silence<&Leaves::rms_norm>(made, made.rms_norm);
    silence<&Leaves::rms_norm_backward>(made, made.rms_norm_backward);
    silence<&Leaves::rope>(made, made.rope);
    silence<&Leaves::activate_mlp>(made, made.activate_mlp);
    silence<&Leaves::activate_mlp_backward>(made, made.activate_mlp_backward);
    return made;
  }();
  return kLeaves;
}

// Forms that have no kernel are computed by LibTorch's operations.
TEST(OwnLeaves, OtherFormsEqualTheHosts) {
  const Leaves& table = emulated_leaves();
  const at::Tensor x = at::sin(at::arange(37 * 96)).view({37, 96}), y = x.flip({0});
  const auto same = [](const at::Tensor& got, const at::Tensor& want) {
    EXPECT_TRUE(at::allclose(got, want, 1e-6, 1e-6));
  };
  for (const Nonlinearity f : {Nonlinearity::Relu, Nonlinearity::Relu2}) {
    same(table.activate_mlp(f, {x, y}), host_leaves().activate_mlp(f, {x, y}));
    const MlpInputs got = table.activate_mlp_backward(f, y, {x, x}, true, true);
    const MlpInputs want = host_leaves().activate_mlp_backward(f, y, {x, x}, true, true);
    same(got.gate, want.gate);
    same(got.up, want.up);
  }
  const at::Tensor angles = at::arange(37 * 5, at::kFloat).view({37, 5}), cos = angles.cos(),
                   sin = angles.sin();
  for (const RopeForm& form : {RopeForm{10, true}, RopeForm{32, false}, RopeForm{32, true}}) {
    const at::Tensor rows = x.narrow(1, 0, form.head_dim == 10 ? 90 : 96).contiguous();
    const at::Tensor got = at::empty_like(rows), want = at::empty_like(rows);
    table.rope(rows, cos, sin, form, 1, got);
    host_leaves().rope(rows, cos, sin, form, 1, want);
    same(got, want);
  }
}

TEST(OwnLeaves, ABlockInE4m3HasTheSameBitsWithFewerPasses) {
  constexpr int64_t kTokens = 21, kHidden = 48;
  nn::TransformerBlockOptions options;
  options.attention = {.hidden_size = kHidden, .num_heads = 3, .num_kv_heads = 3, .head_dim = 16};
  options.mlp = {.hidden_size = kHidden, .intermediate_size = 80};
  nn::SequenceContext context{{0, 9, kTokens}, nullptr, {}, {}};
  context.rotary = {
      nn::RotaryEmbedding({.head_dim = 16})
          .table(at::cat({at::arange(9), at::arange(kTokens - 9)}), context.document_starts, at::kFloat)};
  cuda::CudaKernels counting = *tessera_cuda_kernels();
  counting.e4m3_scale = [](auto... in) {
    ++looks;
    return tessera_cuda_kernels()->e4m3_scale(in...);
  };
  const auto pass = [&](const Leaves& table) {
    const auto block = std::make_shared<nn::TransformerBlock>(options, 0, at::kBFloat16);
    nn::multiply_in_e4m3(*block);
    uint64_t seed = 0;
    for (auto& item : block->named_parameters()) {
      nn::materialize(item.value(),
                      (checks::random_tensor(item.value().sizes(), ++seed) * 0.2).to(at::kBFloat16));
    }
    const at::Tensor x = checks::trained(checks::random_tensor({kTokens, kHidden}, 99, at::kBFloat16));
    const LeavesScope scope(&table);
    cuda::use_kernels(counting);
    looks = 0;
    const at::Tensor y = block->forward(x, context);
    y.backward(checks::direction_of(y));
    cuda::use_kernels(*tessera_cuda_kernels());
    std::vector<at::Tensor> values = {y, x.grad()};
    for (const at::Tensor& parameter : block->parameters()) values.push_back(parameter.grad());
    return std::pair(values, looks);
  };
  const auto [want, silent] = pass(silent_leaves());
  const auto [got, said] = pass(emulated_leaves());
  // A block without such scales looks at seven weights, the inputs of four groups of layers, and seven
  // gradients. If leaves give scales, it looks at the weights, the input of o, and the gradients of v and of
  // down (which the caller makes).
  EXPECT_EQ(silent, 7 + 4 + 7);
  EXPECT_EQ(said, 7 + 1 + 2);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], want[i])) << i;
}

TEST(OwnLeaves, AKernelThatDoesNotStartIsAnErrorWithItsName) {
  cuda::CudaKernels failing = *tessera_cuda_kernels();
  failing.rms_norm = [](auto...) { return int32_t{1}; };
  const Leaves& table = emulated_leaves();
  cuda::use_kernels(failing);
  try {
    table.rms_norm(at::ones({2, 4}), {}, at::ones({4}), 1e-5);
    FAIL() << "a norm by no kernel";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "E-INTERNAL-CUDA-KERNEL");
    EXPECT_NE(std::string(error.what()).find("rms_norm"), std::string::npos) << error.what();
  }
  cuda::use_kernels(*tessera_cuda_kernels());
}

}  // namespace
}  // namespace tessera::ops

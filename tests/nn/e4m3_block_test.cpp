// Tests how often whole layers search tensors for their absmax, and that results do not depend on it.
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/nn/call_hook.h"
#include "tessera/nn/e4m3_layers.h"
#include "tessera/nn/materialize.h"
#include "tessera/nn/rotary_embedding.h"
#include "tessera/nn/transformer_block.h"
#include "tessera/parallel/activation_checkpoint.h"
#include "tessera/peft/lora.h"

#include "tests/ops/telling_leaves.h"
#include "tests/testing/gradcheck.h"

namespace tessera::nn {
namespace {

using ops::Casts, ops::casts;

constexpr int64_t kTokens = 37, kHidden = 48, kHeadDim = 16;
constexpr int kBlocks = 2;

struct Case {
  bool has_adapters = false, has_qk_norm = false, recomputes_hidden = false, recomputes_blocks = false;
};

std::shared_ptr<TransformerBlock> make_block(const Case& kind, int64_t layer) {
  TransformerBlockOptions options;
  options.attention = {.hidden_size = kHidden, .num_heads = 3, .num_kv_heads = 3, .head_dim = kHeadDim};
  if (kind.has_qk_norm) options.attention.qk_norm = QkNormOptions{};
  options.mlp = {.hidden_size = kHidden, .intermediate_size = 96};
  const auto block = std::make_shared<TransformerBlock>(options, layer, at::kBFloat16);
  EXPECT_EQ(multiply_in_e4m3(*block), 7);
  uint64_t seed = static_cast<uint64_t>(100 * layer);
  const auto fill = [&](auto& module, bool trains) {
    for (auto& item : module.named_parameters()) {
      materialize(item.value(),
                  (checks::random_tensor(item.value().sizes(), ++seed) * 0.2).to(at::kBFloat16));
      item.value().set_requires_grad(trains);
    }
  };
  fill(*block, !kind.has_adapters);
  if (kind.has_adapters) {
    for (const auto& [name, layer_with_weight] : named_layers(*block)) {
      const auto linear = std::dynamic_pointer_cast<Linear>(layer_with_weight);
      if (linear == nullptr) continue;
      const auto adapter = std::make_shared<peft::LoraAdapter>(*linear, peft::LoraOptions{.rank = 4}, name);
      fill(*adapter, true);
      linear->set_adapter(adapter, name);
    }
  }
  if (kind.recomputes_hidden) block->recompute_hidden();
  if (kind.recomputes_blocks) parallel::checkpoint_activations(*block);
  return block;
}

struct Passed {
  std::vector<at::Tensor> values;  // the result and all gradients
  Casts forward, backward;
};

Passed pass(const Case& kind, const ops::Leaves& table) {
  SequenceContext context{{0, 11, kTokens}, nullptr, {}, {}};
  context.rotary = {
      RotaryEmbedding({.head_dim = kHeadDim})
          .table(at::cat({at::arange(11), at::arange(kTokens - 11)}), context.document_starts, at::kFloat)};
  std::vector<std::shared_ptr<TransformerBlock>> blocks;
  for (int64_t i = 0; i < kBlocks; ++i) blocks.push_back(make_block(kind, i));
  const at::Tensor input = checks::trained(checks::random_tensor({kTokens, kHidden}, 7).to(at::kBFloat16));
  const ops::LeavesScope scope(&table);
  Passed passed;
  casts = {};
  at::Tensor x = input;
  for (const auto& block : blocks) x = call(*block, x, context);
  passed.forward = std::exchange(casts, {});
  x.backward(checks::direction_of(x));
  passed.backward = casts;
  passed.values = {x, input.grad()};
  for (const auto& block : blocks) {
    for (const at::Tensor& parameter : block->parameters()) {
      if (parameter.requires_grad()) passed.values.push_back(parameter.grad());
    }
  }
  return passed;
}

// Numbers of casts in each block. The forward casts seven weights, and the inputs of q, k and v, of o, of
// gate and up, and of down. The backward casts seven weights, seven gradients plain and transposed, and the
// four inputs transposed.
constexpr int kForward = 7 + 4, kBackward = 7 + 14 + 4, kWithAdapters = 7 + 7;
// Tensors that are searched although leaves give the scales of their results: the weights, and the output of
// attention.
constexpr int kForwardLooks = 7 + 1;

Casts of_blocks(int all, int absmax) { return {kBlocks * all, kBlocks * absmax}; }
Casts operator+(const Casts& a, const Casts& b) { return {a.all + b.all, a.absmax + b.absmax}; }

void expect(const Case& kind, const Casts& forward, const Casts& backward) {
  const Passed counted = pass(kind, ops::counting_leaves()), told = pass(kind, ops::telling_leaves());
  EXPECT_EQ(counted.forward, of_blocks(kForward, kForward));
  EXPECT_EQ(told.forward, forward) << told.forward.all << ' ' << told.forward.absmax;
  EXPECT_EQ(told.backward, backward) << told.backward.all << ' ' << told.backward.absmax;
  EXPECT_EQ(counted.backward.all, told.backward.all);
  EXPECT_GT(counted.backward.absmax, told.backward.absmax);
  ASSERT_EQ(told.values.size(), counted.values.size());
  for (size_t i = 0; i < told.values.size(); ++i) {
    ASSERT_TRUE(told.values[i].defined()) << i;
    EXPECT_TRUE(at::equal(told.values[i], counted.values[i])) << i;
    EXPECT_TRUE(at::isfinite(told.values[i]).all().item<bool>()) << i;
  }
}

// In the backward these are the gradient of v, which attention makes, and that of the last block's down,
// which the caller makes.
TEST(E4m3BlockTest, LooksOnlyAtWhatNobodySaysTheScaleOf) {
  const Casts forward = of_blocks(kForward, kForwardLooks);
  expect({}, forward, of_blocks(kBackward, 1) + Casts{0, 1});
  expect({.has_adapters = true}, forward, of_blocks(kWithAdapters, 1) + Casts{0, 1});
  // Here the gradients of q and k come from norms, through a view.
  expect({.has_qk_norm = true}, forward, of_blocks(kBackward, 1) + Casts{0, 1});
}

TEST(E4m3BlockTest, WhereNothingIsSaidTheBackwardLooksAtGradientsAlone) {
  EXPECT_EQ(pass({}, ops::counting_leaves()).backward, of_blocks(kBackward, 7));
  EXPECT_EQ(pass({.has_adapters = true}, ops::counting_leaves()).backward, of_blocks(kWithAdapters, 7));
}

// Weights of recomputed layers are searched again. The gradient of a block's output passes through
// LibTorch's accumulation, which makes another tensor of it.
TEST(E4m3BlockTest, WhatIsComputedAgainIsSaidAgain) {
  const Casts forward = of_blocks(kForward, kForwardLooks);
  for (const bool has_adapters : {false, true}) {
    const int backward = has_adapters ? kWithAdapters : kBackward;
    // Gate and up are cast again: their input, whose scale is kept, and two weights.
    expect({.has_adapters = has_adapters, .recomputes_hidden = true}, forward,
           of_blocks(backward + 3, 1 + 2) + Casts{0, 1});
    expect({.has_adapters = has_adapters, .recomputes_blocks = true}, forward,
           forward + of_blocks(backward, 1 + 1));
  }
}

}  // namespace
}  // namespace tessera::nn

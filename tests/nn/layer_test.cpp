#include "tessera/nn/layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/nn/embedding.h"
#include "tessera/nn/linear.h"
#include "tessera/nn/materialize.h"
#include "tessera/nn/output_head.h"
#include "tessera/nn/rms_norm.h"
#include "tessera/nn/transformer_block.h"

namespace tessera::nn {
namespace {

void fill(torch::nn::Module& module) {
  at::manual_seed(1);
  for (auto& item : module.named_parameters()) {
    materialize(item.value(), at::randn(item.value().sizes(), item.value().scalar_type()));
  }
}

// Changes the input and the output of a layer so that the result shows both changes, and their order.
struct Marking : LayerParallel {
  ops::Activation input(const ops::Activation& x) const override { return 2 * x.value(); }
  at::Tensor output(const at::Tensor& y) const override { return 10 * y; }
};

void expect_close(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_TRUE(at::allclose(actual, expected, 1e-12, 1e-12));
}

at::Tensor normed(const at::Tensor& x, const at::Tensor& weight) {
  return weight * (x * at::rsqrt(x.pow(2).mean(-1, true) + 1e-5));
}

TEST(LayerParallel, OfALinearAddsTheBiasAfterTheOutput) {
  Linear layer(3, 5, true, at::kDouble);
  fill(layer);
  layer.set_parallel(std::make_shared<Marking>());
  const at::Tensor x = at::randn({4, 3}, at::kDouble);
  expect_close(layer.forward(x), 20 * at::linear(x, layer.weight) + layer.bias);
  const auto all = forward_all(x, {&layer, &layer});
  expect_close(all[1], 20 * at::linear(x, layer.weight) + layer.bias);
  const c10::InferenceMode few_rows;
  expect_close(forward_all(x, {&layer})[0], 20 * at::linear(x, layer.weight) + layer.bias);
}

TEST(LayerParallel, OfAnEmbedding) {
  struct Output : LayerParallel {
    at::Tensor output(const at::Tensor& y) const override { return 10 * y; }
  };
  Embedding layer(4, 3, at::kDouble);
  fill(layer);
  layer.set_parallel(std::make_shared<Output>());
  layer.set_first_row(5);
  const at::Tensor found = layer.forward(at::tensor({6, 2, 5}, at::kLong));
  expect_close(found[0], 10 * layer.weight[1]);
  expect_close(found[1], at::zeros({3}, at::kDouble));
  expect_close(found[2], 10 * layer.weight[0]);
}

TEST(LayerParallel, OfANorm) {
  RMSNorm layer(3, 1e-5, at::kDouble);
  fill(layer);
  layer.set_parallel(std::make_shared<Marking>());
  const at::Tensor x = at::randn({4, 3}, at::kDouble), delta = at::randn({4, 3}, at::kDouble);
  expect_close(layer.forward(x), 10 * normed(2 * x, layer.weight));
  const auto both = layer.add_and_norm(x, delta);
  expect_close(both.residual, x + delta);
  expect_close(both.normed.value(), 10 * normed(2 * (x + delta), layer.weight));
}

TEST(LayerParallel, OfAnOutputHead) {
  const auto norm = std::make_shared<RMSNorm>(3, 1e-5, at::kDouble);
  fill(*norm);
  const auto projection = std::make_shared<Linear>(3, 5, false, at::kDouble);
  fill(*projection);
  OutputHead head(norm, projection);
  head.set_parallel(std::make_shared<Marking>());
  const at::Tensor x = at::randn({4, 3}, at::kDouble), labels = at::tensor({1, 4, -100, 0}, at::kLong);
  const at::Tensor logits = at::linear(2 * normed(x, norm->weight), head.weight());
  expect_close(head.logits(x), 10 * logits);
  TokenBatch batch;
  batch.labels = labels;
  expect_close(head.loss(x, batch),
               at::nll_loss(at::log_softmax(logits, -1), labels, {}, at::Reduction::Sum));
}

TEST(LayerParallel, OfAttentionAndMlpSeesTheirInputOnce) {
  struct Counting : LayerParallel {
    ops::Activation input(const ops::Activation& x) const override {
      ++inputs;
      return x;
    }
    at::Tensor output(const at::Tensor& y) const override {
      ++outputs;
      return y;
    }
    mutable int inputs = 0, outputs = 0;
  };
  TransformerBlockOptions options;
  options.attention = {.hidden_size = 8, .num_heads = 2, .num_kv_heads = 1, .head_dim = 4};
  options.mlp = {.hidden_size = 8, .intermediate_size = 6};
  TransformerBlock block(options, 0, at::kDouble);
  fill(block);
  const SequenceContext context{
      {0, 5}, nullptr, {{at::randn({5, 2}, at::kDouble), at::randn({5, 2}, at::kDouble)}}};
  const at::Tensor x = at::randn({5, 8}, at::kDouble);
  const at::Tensor before = block.forward(x, context);
  for (const char* name : {"self_attn", "mlp", "self_attn.q_proj", "mlp.down_proj", "input_layernorm"}) {
    const auto counting = std::make_shared<Counting>();
    const auto layer = find_layer(block, name);
    layer->set_parallel(counting);
    EXPECT_TRUE(at::equal(block.forward(x, context), before)) << name;
    EXPECT_EQ(counting->inputs, 1) << name;
    EXPECT_EQ(counting->outputs, 1) << name;
    layer->set_parallel(nullptr);
    block.forward(x, context);
    EXPECT_EQ(counting->inputs, 1) << name;
  }
}

TEST(LayerParallel, ACoreReplacesAttention) {
  struct Values : AttentionCore {
    at::Tensor attend(const at::Tensor& q, const at::Tensor&, const at::Tensor& v, const SequenceContext&,
                      int64_t layer, const ops::AttentionFormula& formula) const override {
      EXPECT_EQ(layer, 3);
      EXPECT_EQ(formula.scale, 0.5);
      return v.repeat_interleave(q.size(1) / v.size(1), 1).contiguous();
    }
  };
  Attention layer({.hidden_size = 8, .num_heads = 2, .num_kv_heads = 1, .head_dim = 4}, 3, at::kDouble);
  fill(layer);
  layer.set_core(std::make_shared<Values>());
  const SequenceContext context{
      {0, 5}, nullptr, {{at::randn({5, 2}, at::kDouble), at::randn({5, 2}, at::kDouble)}}};
  const at::Tensor x = at::randn({5, 8}, at::kDouble);
  const at::Tensor v = at::linear(x, layer.v_proj->weight);
  expect_close(layer.forward(x, context), at::linear(at::cat({v, v}, 1), layer.o_proj->weight));
}

TEST(FindLayer, NamesTheLayersThatThereAre) {
  TransformerBlockOptions options;
  options.attention = {.hidden_size = 8, .num_heads = 2, .num_kv_heads = 1, .head_dim = 4};
  options.mlp = {.hidden_size = 8, .intermediate_size = 6};
  const TransformerBlock block(options, 0, at::kDouble);
  EXPECT_EQ(find_layer(block, "mlp.up_proj"), block.mlp->up_proj);
  try {
    find_layer(block, "mlp.up");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "E-CONFIG-LAYER");
    EXPECT_THAT(error.what(),
                ::testing::AllOf(::testing::HasSubstr("'mlp.up'"), ::testing::HasSubstr("self_attn.q_proj")));
  }
}

}  // namespace
}  // namespace tessera::nn

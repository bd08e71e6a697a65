#include "tessera/nn/attention.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/nn/kv_cache.h"
#include "tessera/nn/materialize.h"
#include "tessera/nn/rotary_embedding.h"
#include "tessera/ops/plain.h"

namespace tessera::nn {
namespace {

constexpr int64_t kHidden = 10, kHeads = 4, kKvHeads = 2, kHeadDim = 6, kTokens = 9;

AttentionOptions options() {
  return {.hidden_size = kHidden,
          .num_heads = kHeads,
          .num_kv_heads = kKvHeads,
          .head_dim = kHeadDim,
          .qkv_bias = true,
          .output_bias = true};
}

SequenceContext context(bool is_rotary) {
  SequenceContext context{{0, 4, kTokens}, nullptr, {}, {}};
  if (is_rotary) {
    context.rotary = {
        RotaryEmbedding({.head_dim = kHeadDim})
            .table(at::cat({at::arange(4), at::arange(5)}), context.document_starts, at::kDouble)};
  }
  return context;
}

void fill(torch::nn::Module& module) {
  at::manual_seed(1);
  for (auto& item : module.named_parameters()) {
    materialize(item.value(), at::randn(item.value().sizes(), item.value().scalar_type()));
  }
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_TRUE(at::allclose(actual, expected, 1e-12, 1e-12));
}

// One layer for queries, keys and values equals three layers, whose weights lie one after the other in files.
TEST(Attention, FromOneProjectionEqualsThatFromThree) {
  for (const bool is_rotary : {false, true}) {
    SCOPED_TRACE(is_rotary);
    Attention three(options(), 0, at::kDouble);
    fill(three);
    AttentionOptions fused = options();
    fused.qkv = "c_attn";
    fused.o = "c_proj";
    Attention one(fused, 0, at::kDouble);
    auto parameters = one.named_parameters();
    ASSERT_EQ(parameters.size(), 4U);
    const auto whole = [&](const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
      const at::Tensor stored = at::cat({a, b, c}).detach(), value = at::full_like(stored, std::nan(""));
      for (const StoredRows& rows : one.qkv_proj->stored_rows()) {
        value.narrow(0, rows.begin, rows.size).copy_(stored.narrow(0, rows.stored_begin, rows.size));
      }
      return value;
    };
    materialize(parameters["c_attn.weight"],
                whole(three.q_proj->weight, three.k_proj->weight, three.v_proj->weight));
    materialize(parameters["c_attn.bias"], whole(three.q_proj->bias, three.k_proj->bias, three.v_proj->bias));
    materialize(parameters["c_proj.weight"], three.o_proj->weight.detach());
    materialize(parameters["c_proj.bias"], three.o_proj->bias.detach());
    EXPECT_EQ(one.cached_heads().num_kv_heads, kKvHeads);

    const at::Tensor x = at::randn({kTokens, kHidden}, at::kDouble);
    const at::Tensor want = three.forward(x, context(is_rotary)), got = one.forward(x, context(is_rotary));
    expect_close(got, want);
    want.sin().sum().backward();
    got.sin().sum().backward();
    expect_close(
        parameters["c_attn.weight"].grad(),
        whole(three.q_proj->weight.grad(), three.k_proj->weight.grad(), three.v_proj->weight.grad()));
    // The parts of a single token are dense views.
    const at::Tensor token = x.narrow(0, 0, 1);
    SequenceContext alone = context(is_rotary);
    alone.document_starts = {0, 1};
    if (is_rotary) {
      RotaryTable& table = alone.rotary.front();
      table = {table.cos.narrow(0, 0, 1), table.sin.narrow(0, 0, 1)};
    }
    expect_close(one.forward(token, alone), three.forward(token, alone));
  }
}

// Computes attention head by head from its definition, without positions.
at::Tensor by_definition(const Attention& layer, const at::Tensor& x, const ops::AttentionFormula& formula) {
  const auto heads = [&](const std::shared_ptr<Linear>& projection) {
    return at::linear(x, projection->weight, projection->bias).view({kTokens, -1, kHeadDim});
  };
  return at::linear(ops::plain::document_attention(heads(layer.q_proj), heads(layer.k_proj),
                                                   heads(layer.v_proj), {0, 4, kTokens}, formula)
                        .reshape({kTokens, -1}),
                    layer.o_proj->weight, layer.o_proj->bias);
}

TEST(Attention, TakesAScaleAWindowASoftCapAndBothDirections) {
  const at::Tensor x = at::randn({kTokens, kHidden}, at::kDouble);
  const double usual = 1.0 / std::sqrt(static_cast<double>(kHeadDim));
  for (const ops::AttentionFormula& formula :
       {ops::AttentionFormula{usual}, ops::AttentionFormula{0.7}, ops::AttentionFormula{usual, false},
        ops::AttentionFormula{usual, true, 3}, ops::AttentionFormula{usual, false, 2},
        ops::AttentionFormula{usual, true, 0, 1.3}}) {
    AttentionOptions o = options();
    if (formula.scale != usual) o.scale = formula.scale;
    o.is_causal = formula.is_causal;
    o.window = formula.window;
    o.soft_cap = formula.soft_cap;
    Attention layer(o, 0, at::kDouble);
    fill(layer);
    expect_close(layer.forward(x, context(false)), by_definition(layer, x, formula));
  }
}

// A chunk is to attention what a document is.
TEST(Attention, ChunksSeeNoOtherChunk) {
  AttentionOptions o = options();
  o.chunk = 3;
  Attention layer(o, 0, at::kDouble), plain(options(), 0, at::kDouble);
  fill(layer);
  fill(plain);
  const at::Tensor x = at::randn({kTokens, kHidden}, at::kDouble);
  SequenceContext cut = context(true);
  cut.document_starts = {0, 3, 4, 7, kTokens};
  expect_close(layer.forward(x, context(true)), plain.forward(x, cut));
  SequenceContext with_empty = context(true);
  with_empty.document_starts = {0, 4, 4, kTokens, kTokens};
  expect_close(layer.forward(x, with_empty), plain.forward(x, cut));
  // Documents of several chunks that are spread over ranks.
  SequenceContext spread = context(true);
  spread.part = std::vector<TokenRun>{{0, kTokens}};
  try {
    layer.forward(x, spread);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "E-CONFIG-CONTEXT-PARALLEL") << error.what();
  }
}

TEST(Attention, BothDirectionsOverACacheAreRefused) {
  AttentionOptions o = options();
  o.is_causal = false;
  Attention layer(o, 0, at::kDouble);
  fill(layer);
  KvCache cache({.num_layers = 1, .num_kv_heads = kKvHeads, .head_dim = kHeadDim, .dtype = at::kDouble});
  const CacheStep step(cache, {cache.add()}, {0, kTokens});
  SequenceContext cached = context(false);
  cached.cache = &step;
  try {
    layer.forward(at::randn({kTokens, kHidden}, at::kDouble), cached);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "E-CONFIG-ATTENTION");
  }
}

}  // namespace
}  // namespace tessera::nn

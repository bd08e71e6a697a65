// Tests a model whose layers are cut by hand over ranks, which are threads of one process here, with sums
// over ranks put between its layers: loss, logits and every gradient are those of the whole model.
#include <algorithm>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/comm/fake/fake_backend.h"
#include "tessera/models/common/load.h"
#include "tessera/models/llama/config.h"
#include "tessera/models/registry.h"
#include "tessera/nn/materialize.h"
#include "tessera/nn/output_head.h"
#include "tessera/ops/pass_through.h"
#include "tessera/peft/lora.h"

namespace tessera::models {
namespace {

using World = std::shared_ptr<comm::Communicator>;

// The groups of heads are those of SmolLM2; no other two sizes are equal.
constexpr int64_t kGroups = 3, kGroup = 3, kHeadDim = 4, kHidden = 14, kInner = 11, kVocab = 31, kTokens = 13;

LlamaConfig config_of(bool tied, bool qk_norm) {
  LlamaConfig config;
  config.model_type = "llama";
  config.vocab_size = kVocab;
  config.hidden_size = kHidden;
  config.intermediate_size = kInner;
  config.num_layers = 2;
  config.num_heads = kGroups * kGroup;
  config.num_kv_heads = kGroups;
  config.head_dim = config.rope.head_dim = kHeadDim;
  config.tie_word_embeddings = tied;
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  config.qk_norm = qk_norm;
  config.initializer_range = 0.4;
  return config;
}

nn::TokenBatch batch() {
  nn::TokenBatch tokens;
  tokens.document_starts = {0, 4, 5, kTokens};
  tokens.input_ids = (at::arange(kTokens, at::kLong) * 11 + 5).remainder(kVocab);
  tokens.labels = (at::arange(kTokens, at::kLong) * 7 + 3).remainder(kVocab);
  tokens.labels.masked_fill_(at::arange(kTokens, at::kLong).remainder(3).eq(1), -100);
  tokens.position_ids = at::cat({at::arange(4), at::arange(1), at::arange(kTokens - 5)}).to(at::kLong);
  return tokens;
}

// The begin of each rank's part, and the end of the last one.
using Bounds = std::vector<int64_t>;

struct Cut {
  int64_t dim = -1, first = 0, count = 0;  // dim -1 = the whole tensor
  at::Tensor of(const at::Tensor& whole) const { return dim < 0 ? whole : whole.narrow(dim, first, count); }
};

// How groups of heads, rows of the MLP and tokens of the vocabulary are spread over ranks.
struct Plan {
  Bounds groups, inner, vocabulary;

  static Cut at(int64_t dim, const Bounds& bounds, int64_t rank, int64_t unit = 1) {
    const auto i = static_cast<size_t>(rank);
    return {dim, bounds[i] * unit, (bounds[i + 1] - bounds[i]) * unit};
  }

  Cut cut(const std::string& name, int64_t rank) const {
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    if (has("embed_tokens") || has("lm_head")) return at(0, vocabulary, rank);
    // A factor of an adapter that reads the whole input, or makes the whole output, is not cut.
    const bool by_column =
        has("q_proj") || has("k_proj") || has("v_proj") || has("gate_proj") || has("up_proj");
    if (by_column ? has("lora_A") : has("lora_B")) return {};
    const int64_t dim = by_column ? 0 : 1;
    if (has("q_proj") || has("o_proj.weight") || has("o_proj.lora_A"))
      return at(dim, groups, rank, kGroup * kHeadDim);
    if (has("k_proj") || has("v_proj")) return at(0, groups, rank, kHeadDim);
    if (has("gate_proj") || has("up_proj") || has("down_proj.weight") || has("down_proj.lora_A"))
      return at(dim, inner, rank);
    return {};
  }

  // Parameters that every rank holds whole and reads with its part of the heads or of the MLP.
  static bool has_partial_gradient(const std::string& name) {
    return name.find("q_norm") != std::string::npos || name.find("k_norm") != std::string::npos ||
           name.find(".lora_") != std::string::npos;
  }
};

struct SummedOutput : nn::LayerParallel {
  explicit SummedOutput(World w) : world(std::move(w)) {}
  at::Tensor output(const at::Tensor& y) const override {
    return ops::change_value_(y, [this](const at::Tensor& part) { world->all_reduce(part); });
  }
  World world;
};

struct SummedGradient : nn::LayerParallel {
  explicit SummedGradient(World w) : world(std::move(w)) {}
  ops::Activation input(const ops::Activation& x) const override {
    return ops::change_gradient(x, [w = world](const at::Tensor& gradient) { w->all_reduce(gradient); });
  }
  World world;
};

struct GatheredLogits : SummedGradient {
  GatheredLogits(World w, Cut own) : SummedGradient(std::move(w)), columns(own) {}
  at::Tensor output(const at::Tensor& part) const override {
    const at::Tensor logits = at::zeros({part.size(0), kVocab}, part.options().requires_grad(false));
    logits.narrow(1, columns.first, columns.count).copy_(part.detach());
    world->all_reduce(logits);
    return logits;
  }
  Cut columns;
};

void put_in(CausalLM& model, const Plan& plan, const World& world) {
  const auto sum = std::make_shared<SummedOutput>(world);
  const auto enter = std::make_shared<SummedGradient>(world);
  for (const auto& block : model.blocks()) {
    nn::find_layer(*block, "self_attn")->set_parallel(enter);
    nn::find_layer(*block, "mlp")->set_parallel(enter);
    nn::find_layer(*block, "self_attn.o_proj")->set_parallel(sum);
    nn::find_layer(*block, "mlp.down_proj")->set_parallel(sum);
  }
  const Cut rows = Plan::at(0, plan.vocabulary, world->rank());
  auto& embedding = *model.embeddings().front();
  embedding.set_first_row(rows.first);
  embedding.set_parallel(sum);
  model.head().set_parallel(std::make_shared<GatheredLogits>(world, rows));
  comm::ReduceOptions max;
  max.op = comm::ReduceOp::Max;
  dynamic_cast<nn::OutputHead&>(model.head())
      .set_part({rows.first, kVocab,
                 [world, max](const at::Tensor& values) { world->all_reduce(values, false, max); },
                 [world](const at::Tensor& values) { world->all_reduce(values); }});
}

struct Case {
  bool tied = false, qk_norm = false, lora = false, recompute = false;
};

std::shared_ptr<CausalLM> make_model(const Case& c) {
  auto model = build_model(config_of(c.tied, c.qk_norm), at::kDouble);
  if (c.lora) {
    peft::LoraOptions options;
    options.rank = 3;
    options.all_linear = true;
    peft::apply_lora(*model, options);
  }
  if (c.recompute) {
    for (const auto& block : model->blocks()) block->recompute_hidden();
  }
  return model;
}

using Tensors = std::map<std::string, at::Tensor>;

struct Outcome {
  at::Tensor loss, logits;
  Tensors gradients;
};

Outcome run(CausalLM& model) {
  Outcome outcome;
  outcome.loss = model.loss(batch());
  (outcome.loss / 7).backward();
  outcome.logits = model.logits(batch()).detach();
  for (const auto& item : model.named_parameters()) {
    if (item.value().requires_grad()) outcome.gradients[item.key()] = item.value().grad();
  }
  return outcome;
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  ASSERT_TRUE(actual.defined()) << what;
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  if (actual.numel() == 0) return;
  const double error = (actual - expected).abs().max().item<double>();
  EXPECT_LE(error, 1e-12 * std::max(1.0, expected.abs().max().item<double>())) << what;
}

void expect_equal_to_whole(const Plan& plan, const Case& c) {
  const auto whole = make_model(c);
  load_weights(*whole, *random_source(*whole, 3));
  Tensors values;
  {
    const at::NoGradGuard no_grad;
    at::manual_seed(5);
    for (auto& item : whole->named_parameters()) {
      // Biases, norms and lora_B start as constants.
      item.value().add_(at::randn_like(item.value()), 0.1);
      values[item.key()] = item.value().detach();
    }
  }
  const Outcome want = run(*whole);
  const auto ranks = static_cast<int64_t>(plan.groups.size()) - 1;
  std::vector<Outcome> got(static_cast<size_t>(ranks));
  comm::run_fake_ranks(ranks, [&](const World& world) {
    const auto model = make_model(c);
    for (auto& item : model->named_parameters()) {
      nn::materialize(item.value(), plan.cut(item.key(), world->rank()).of(values[item.key()]).clone());
    }
    put_in(*model, plan, world);
    Outcome& outcome = got[static_cast<size_t>(world->rank())];
    outcome = run(*model);
    for (auto& [name, gradient] : outcome.gradients) {
      if (Plan::has_partial_gradient(name) && plan.cut(name, world->rank()).dim < 0)
        world->all_reduce(gradient);
    }
  });
  for (int64_t rank = 0; rank < ranks; ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    const Outcome& own = got[static_cast<size_t>(rank)];
    expect_close(own.loss.detach(), want.loss.detach(), "loss");
    expect_close(own.logits, want.logits, "logits");
    EXPECT_EQ(own.gradients.size(), want.gradients.size());
    for (const auto& [name, gradient] : want.gradients) {
      expect_close(own.gradients.at(name), plan.cut(name, rank).of(gradient), name);
    }
  }
}

const Plan kPlans[] = {
    {{0, 3}, {0, 11}, {0, 31}},
    {{0, 2, 3}, {0, 4, 11}, {0, 16, 31}},
    {{0, 1, 2, 3}, {0, 5, 6, 11}, {0, 30, 30, 31}},
    // One rank has no heads, and one has no part of the MLP.
    {{0, 1, 1, 2, 3}, {0, 5, 8, 8, 11}, {0, 8, 16, 24, 31}},
};

class LayerParallelOn1To4Ranks : public ::testing::TestWithParam<Plan> {};

TEST_P(LayerParallelOn1To4Ranks, FullFinetune) { expect_equal_to_whole(GetParam(), {}); }
TEST_P(LayerParallelOn1To4Ranks, TiedWithNormsOfHeads) {
  expect_equal_to_whole(GetParam(), {.tied = true, .qk_norm = true});
}
TEST_P(LayerParallelOn1To4Ranks, RecomputedMlp) { expect_equal_to_whole(GetParam(), {.recompute = true}); }
TEST_P(LayerParallelOn1To4Ranks, Lora) { expect_equal_to_whole(GetParam(), {.tied = true, .lora = true}); }

INSTANTIATE_TEST_SUITE_P(Plans, LayerParallelOn1To4Ranks, ::testing::ValuesIn(kPlans));

}  // namespace
}  // namespace tessera::models

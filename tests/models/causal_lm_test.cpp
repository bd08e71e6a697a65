#include "tessera/models/common/causal_lm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/models/common/generate.h"
#include "tessera/models/common/initialise.h"
#include "tessera/models/llama/config.h"
#include "tessera/nn/call_hook.h"

#include "tests/models/reference_models.h"

namespace tessera::models {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

std::shared_ptr<CausalLM> small_model(bool tied = false) {
  LlamaConfig config;
  config.model_type = "llama";
  config.vocab_size = 31;
  config.hidden_size = 12;
  config.intermediate_size = 10;
  config.num_layers = 2;
  config.num_heads = 3;
  config.num_kv_heads = 1;
  config.head_dim = 4;
  config.tie_word_embeddings = tied;
  config.rope.head_dim = 4;
  config.initializer_range = 0.5;
  const auto model = build_model(config, at::kDouble);
  initialise_weights(*model, 3);
  return model;
}

std::vector<std::string> names_of(const CausalLM& model) { return model.named_parameters().keys(); }

TEST(CausalLM, ParametersAreNamedAsInHuggingFaceFiles) {
  const auto names = names_of(*small_model());
  for (const char* name :
       {"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
        "model.layers.1.self_attn.o_proj.weight", "model.layers.1.mlp.gate_proj.weight",
        "model.layers.0.input_layernorm.weight", "model.layers.0.post_attention_layernorm.weight",
        "model.norm.weight", "lm_head.weight"}) {
    EXPECT_THAT(names, Contains(name));
  }
  EXPECT_EQ(names.size(), 3U + 2U * 9U);
}

TEST(CausalLM, TiedModelsHaveNoHeadOfTheirOwn) {
  const auto model = small_model(true);
  EXPECT_THAT(names_of(*model), Not(Contains("lm_head.weight")));
  ASSERT_EQ(model->tied_parameters().size(), 1U);
  EXPECT_EQ(model->tied_parameters()[0].alias, "lm_head.weight");
  EXPECT_EQ(model->tied_parameters()[0].owner, "model.embed_tokens.weight");
  EXPECT_TRUE(small_model()->tied_parameters().empty());
}

TEST(CausalLM, IsBuiltOnTheMetaDevice) {
  const auto model = build_model(reference_folder("qwen3"), at::kBFloat16);
  for (const auto& parameter : model->parameters()) {
    EXPECT_TRUE(parameter.is_meta());
    EXPECT_TRUE(parameter.requires_grad());
    EXPECT_EQ(parameter.scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(model->blocks().size(), 3U);
}

TEST(CausalLM, LossAgreesWithLogits) {
  const auto model = small_model();
  at::manual_seed(5);
  const at::Tensor ids = at::randint(0, 31, {9}, at::kLong);
  auto batch = pack({{ids.narrow(0, 0, 4), ids.narrow(0, 0, 4)}, {ids.narrow(0, 4, 5), ids.narrow(0, 4, 5)}});
  const at::Tensor log_probabilities = at::log_softmax(model->logits(batch), -1);
  double want = 0.0;
  for (int64_t i = 0; i < 9; ++i) {
    const int64_t label = batch.labels[i].item<int64_t>();
    if (label >= 0) want -= log_probabilities[i][label].item<double>();
  }
  EXPECT_NEAR(model->loss(batch).item<double>(), want, 1e-10);
}

TEST(CausalLM, TokensOutsideTheVocabularyAreRefused) {
  const auto model = small_model();
  for (const int64_t bad : {int64_t{31}, int64_t{-1}}) {
    try {
      model->logits(pack_ids(at::tensor(std::vector<int64_t>{1, bad}, at::kLong)));
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), "E-DATA-TOKEN-ID");
    }
  }
}

TEST(CausalLM, ACacheFedInPiecesEqualsOnePass) {
  const auto model = small_model();
  at::manual_seed(6);
  const at::Tensor ids = at::randint(0, 31, {12}, at::kLong);
  const at::Tensor whole = model->logits(pack_ids(ids));
  nn::KvCache cache(2);
  int64_t done = 0;
  for (const int64_t count : {5, 1, 1, 4, 1}) {
    const at::Tensor next = model->next_logits(ids.narrow(0, done, count), cache);
    done += count;
    EXPECT_LT(max_difference(next, whole[done - 1]), 1e-12) << "after " << done << " tokens";
    EXPECT_EQ(cache.length(), done);
  }
}

struct Counter : nn::CallHook {
  explicit Counter(std::vector<std::string>* log, std::string name) : log(log), name(std::move(name)) {}
  at::Tensor run(const at::Tensor& input, const Forward& next) override {
    log->push_back("+" + name);
    at::Tensor output = next(input);
    log->push_back("-" + name);
    return output;
  }
  std::vector<std::string>* log;
  std::string name;
};

TEST(CausalLM, TheRootHookSurroundsTheBlocksAndTheLoss) {
  const auto model = small_model();
  const auto batch = pack_ids(at::tensor(std::vector<int64_t>{1, 2, 3}, at::kLong));
  const double plain = model->loss(batch).item<double>();
  std::vector<std::string> log;
  nn::add_call_hook(*model, std::make_shared<Counter>(&log, "root"));
  const auto blocks = model->blocks();
  for (size_t i = 0; i < blocks.size(); ++i) {
    nn::add_call_hook(*blocks[i], std::make_shared<Counter>(&log, "block" + std::to_string(i)));
  }
  EXPECT_EQ(model->loss(batch).item<double>(), plain);
  EXPECT_THAT(log, ElementsAre("+root", "+block0", "-block0", "+block1", "-block1", "-root"));
  EXPECT_EQ(names_of(*model).size(), 21U) << "hooks add no parameters";
}

TEST(Initialise, ASliceHoldsWhatTheWholeHolds) {
  const InitialOptions options{7, 0.1};
  const at::Tensor whole = at::empty({10, 6}, at::kDouble);
  fill_initial(whole, "model.layers.0.mlp.up_proj.weight", 0, options);
  const at::Tensor slice = at::empty({3, 6}, at::kDouble);
  fill_initial(slice, "model.layers.0.mlp.up_proj.weight", 4, options);
  EXPECT_TRUE(at::equal(slice, whole.narrow(0, 4, 3)));
  const at::Tensor other = at::empty({10, 6}, at::kDouble);
  fill_initial(other, "model.layers.1.mlp.up_proj.weight", 0, options);
  EXPECT_FALSE(at::equal(other, whole));

  const at::Tensor large = at::empty({200, 100}, at::kDouble);
  fill_initial(large, "x.weight", 0, options);
  EXPECT_NEAR(large.mean().item<double>(), 0.0, 0.003);
  EXPECT_NEAR(large.std().item<double>(), 0.1, 0.003);
}

TEST(Initialise, NormsAreOneAndBiasesZero) {
  const auto model = build_model(reference_folder("qwen2"), at::kFloat);
  initialise_weights(*model, 1);
  const auto parameters = model->named_parameters();
  EXPECT_TRUE(parameters["model.norm.weight"].eq(1).all().item<bool>());
  EXPECT_TRUE(parameters["model.layers.0.self_attn.q_proj.bias"].eq(0).all().item<bool>());
  EXPECT_NEAR(parameters["model.embed_tokens.weight"].std().item<double>(), 0.02, 0.004);
}

TEST(Sample, GreedyTakesTheFirstOfTheLikeliest) {
  EXPECT_EQ(sample(at::tensor({0.5, 2.0, 2.0, -1.0}), {}, 0), 1);
}

TEST(Sample, FollowsTheDistributionAndItsCuts) {
  const at::Tensor logits = at::log(at::tensor({0.1, 0.6, 0.05, 0.25}, at::kDouble));
  const auto counts = [&](SamplingOptions options) {
    std::vector<int64_t> hits(4);
    for (uint64_t i = 0; i < 4000; ++i) ++hits[static_cast<size_t>(sample(logits, options, i))];
    return hits;
  };
  const auto all = counts({.temperature = 1.0, .seed = 11});
  EXPECT_NEAR(static_cast<double>(all[1]), 2400.0, 120.0);
  EXPECT_NEAR(static_cast<double>(all[3]), 1000.0, 110.0);
  EXPECT_NEAR(static_cast<double>(all[0]), 400.0, 80.0);
  EXPECT_GT(all[2], 0);
  const auto top_two = counts({.temperature = 1.0, .top_k = 2, .seed = 11});
  EXPECT_EQ(top_two[0] + top_two[2], 0);
  EXPECT_GT(top_two[3], 0);
  // 0.6 alone falls short of 0.7, so the next likeliest belongs to it.
  const auto nucleus = counts({.temperature = 1.0, .top_p = 0.7, .seed = 11});
  EXPECT_EQ(nucleus[0] + nucleus[2], 0);
  EXPECT_GT(nucleus[3], 0);
  EXPECT_EQ(counts({.temperature = 1.0, .top_p = 0.5, .seed = 11})[1], 4000);
  EXPECT_EQ(counts({.temperature = 1.0, .seed = 11}), all);
  EXPECT_NE(counts({.temperature = 1.0, .seed = 12}), all);
}

TEST(Sample, RefusesBadOptionsAndBrokenLogits) {
  EXPECT_THROW((SamplingOptions{.temperature = -1.0}).check(), Error);
  EXPECT_THROW((SamplingOptions{.temperature = std::nan("")}).check(), Error);
  EXPECT_THROW((SamplingOptions{.top_p = 0.0}).check(), Error);
  EXPECT_THROW((SamplingOptions{.top_k = -1}).check(), Error);
  EXPECT_THROW(sample(at::tensor({1.0, std::nan("")}), {}, 0), Error);
  EXPECT_EQ(sample(at::tensor({-INFINITY, 1.0}), {}, 0), 1);
}

TEST(Generate, StopsAtStopIdsAtTheLimitAndOnDemand) {
  const auto model = small_model();
  GenerateOptions options;
  options.max_new_tokens = 6;
  options.stop_ids = {-1};
  const Generation free = generate(*model, {1, 2}, options);
  ASSERT_EQ(free.token_ids.size(), 6U);
  EXPECT_EQ(free.reason, FinishReason::Length);

  std::vector<int64_t> seen;
  options.on_token = [&](int64_t token) {
    seen.push_back(token);
    return seen.size() < 3;
  };
  const Generation cut = generate(*model, {1, 2}, options);
  EXPECT_EQ(cut.reason, FinishReason::Callback);
  EXPECT_EQ(cut.token_ids, seen);
  EXPECT_THAT(cut.token_ids, ElementsAre(free.token_ids[0], free.token_ids[1], free.token_ids[2]));

  options.on_token = nullptr;
  options.stop_ids = {free.token_ids[4]};
  const Generation stopped = generate(*model, {1, 2}, options);
  EXPECT_EQ(stopped.reason, FinishReason::Stop);
  EXPECT_THAT(stopped.token_ids, Not(Contains(free.token_ids[4])));
  EXPECT_LE(stopped.token_ids.size(), 4U);
  EXPECT_THROW(generate(*model, {}, options), Error);
}

}  // namespace
}  // namespace tessera::models

// Tests the states that gated delta nets and short convolutions have in the cache, beside keys and values.
#include <algorithm>
#include <map>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/comm/fake/fake_backend.h"
#include "tessera/core/error.h"
#include "tessera/generation/generate.h"
#include "tessera/generation/session.h"
#include "tessera/nn/transformer_block.h"
#include "tessera/parallel/context_parallel/context_parallel.h"

#include "tests/models/reference_models.h"
#include "tests/testing/random.h"

namespace tessera::models {
namespace {

using Ids = std::vector<int64_t>;

constexpr const char* kFamilies[] = {"qwen3_next", "qwen3_5", "qwen3_5_moe_multimodal", "lfm2", "lfm2_moe"};

at::Tensor logits_of(CausalLM& model, const Ids& ids) {
  return model.logits(pack_ids(at::tensor(ids, at::kLong)));
}

Ids random_ids(testing::Random& random, int64_t count) {
  Ids ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(random.in(3, 50));
  return ids;
}

// Sequences come and go, and get pieces of any lengths: shorter than the convolution, and longer than a chunk
// of the delta rule.
TEST(QwenHybrid, ACacheThatSequencesJoinAndLeaveEqualsWholePasses) {
  testing::Random random(11);
  for (const char* family : kFamilies) {
    SCOPED_TRACE(family);
    const auto model = load_reference_model(family, at::kDouble);
    nn::KvCache cache(model->cache_options());
    std::map<int64_t, Ids> held;
    for (int round = 0; round < 12; ++round) {
      if (held.size() < 3) held[cache.add()] = {};
      if (round % 4 == 3) {
        cache.free(held.begin()->first);
        held.erase(held.begin());
      }
      std::vector<NewTokens> batch;
      for (auto& [sequence, ids] : held) {
        const int64_t most = round % 3 == 2 ? 1 : ids.size() > 40 ? 3 : 70;
        const Ids added = random_ids(random, std::min<int64_t>(random.in(1, most), 64 - std::ssize(ids)));
        if (added.empty()) continue;
        ids.insert(ids.end(), added.begin(), added.end());
        batch.push_back({sequence, added});
      }
      if (batch.empty()) continue;
      const at::Tensor next = model->next_logits(cache, batch);
      for (size_t i = 0; i < batch.size(); ++i) {
        const Ids& ids = held[batch[i].sequence];
        const at::Tensor whole = logits_of(*model, ids);
        EXPECT_LT(max_difference(next[static_cast<int64_t>(i)], whole[std::ssize(ids) - 1]), 1e-11) << round;
      }
    }
  }
}

TEST(QwenHybrid, AContextParallelRankContinuesWholeTexts) {
  for (const char* family : {"qwen3_5", "lfm2"}) {
    SCOPED_TRACE(family);
    const Ids ids = {5, 6, 7, 8, 9, 10, 11};
    const at::Tensor want = logits_of(*load_reference_model(family, at::kDouble), ids)[6];
    comm::run_fake_ranks(2, [&](const auto& world) {
      const auto model = load_reference_model(family, at::kDouble);
      parallel::context_parallel(*model, ContextParallelMethod::Auto, world);
      nn::KvCache cache(model->cache_options());
      const int64_t sequence = cache.add();
      model->next_logits(cache, {{sequence, {ids.begin(), ids.begin() + 4}}});
      const at::Tensor next = model->next_logits(cache, {{sequence, {ids.begin() + 4, ids.end()}}});
      EXPECT_LT(max_difference(next[0], want), 1e-11);
    });
  }
}

TEST(QwenHybrid, AStepThatFailsLeavesTheStates) {
  const auto model = load_reference_model("qwen3_next", at::kDouble);
  nn::KvCache cache(model->cache_options());
  const int64_t sequence = cache.add();
  model->next_logits(cache, {{sequence, {5, 6, 7}}});
  {
    // The pass is over before it has gone through all layers.
    nn::CacheStep step(cache, {sequence}, {0, 2});
    std::vector<nn::LayerState> states = step.states(0);
    ASSERT_FALSE(states.at(0).empty());
    states[0][0] = states[0][0] + 1;
    step.set_states(0, states);
  }
  const at::Tensor next = model->next_logits(cache, {{sequence, {8}}});
  EXPECT_LT(max_difference(next[0], logits_of(*model, {5, 6, 7, 8})[3]), 1e-11);
}

// The state is that behind the last token, so a sequence cannot go back.
TEST(QwenHybrid, ASequenceIsNotCutBack) {
  const auto model = load_reference_model("qwen3_5", at::kDouble);
  nn::KvCache cache(model->cache_options());
  const int64_t sequence = cache.add();
  model->next_logits(cache, {{sequence, {5, 6, 7}}});
  EXPECT_TRUE(cache.can_truncate(sequence, 3));
  EXPECT_FALSE(cache.can_truncate(sequence, 2));
  EXPECT_THROW(cache.truncate(sequence, 2), Error);
}

TEST(QwenHybrid, AConversationGoesOnOrBeginsAnew) {
  const auto model = load_reference_model("qwen3_next", at::kDouble);
  generation::GenerateOptions options;
  options.stop_ids = {-1};
  options.max_new_tokens = 4;
  generation::Session session(*model);
  Ids prompt = {5, 9, 11, 20, 7};
  const auto first = session.answer(prompt, options);
  EXPECT_EQ(first.token_ids, generation::generate(*model, prompt, options).token_ids);
  prompt.insert(prompt.end(), first.token_ids.begin(), first.token_ids.end());
  prompt.insert(prompt.end(), {13, 14, 15});
  EXPECT_EQ(session.answer(prompt, options).token_ids,
            generation::generate(*model, prompt, options).token_ids);
  EXPECT_EQ(session.num_fed(), 4) << "the last token of the answer, and what follows it";
  // Another beginning: nothing can be kept.
  prompt[2] = 30;
  EXPECT_EQ(session.answer(prompt, options).token_ids,
            generation::generate(*model, prompt, options).token_ids);
  EXPECT_EQ(session.num_fed(), std::ssize(prompt));
}

// Only layers with attention have keys and values.
TEST(QwenHybrid, TheCacheHasPagesForAttentionAlone) {
  const auto model = load_reference_model("qwen3_next", at::kFloat);
  EXPECT_EQ(model->blocks().size(), 3U);
  EXPECT_EQ(model->cache_options().num_layers, 1);
  EXPECT_FALSE(model->decodes_alone());
  // A stage without attention.
  model->set_decode_stages({{{2, 3}}, {}});
  EXPECT_EQ(model->cache_options().num_layers, 1);
  EXPECT_EQ(model->cache_options().num_kv_heads, 1);
}

TEST(QwenHybrid, InitialValuesAreThoseOfTheFamily) {
  const auto model = build_model(reference_folder("qwen3_next"), at::kFloat);
  load_weights(*model, *random_source(*model, 1));
  const auto parameters = model->named_parameters();
  const std::string mixer = "model.layers.0.linear_attn.";
  EXPECT_TRUE(parameters["model.layers.0.input_layernorm.weight"].eq(0).all().item<bool>());
  EXPECT_TRUE(parameters[mixer + "norm.weight"].eq(1).all().item<bool>());
  EXPECT_TRUE(parameters[mixer + "dt_bias.weight"].eq(1).all().item<bool>());
  const at::Tensor rates = parameters[mixer + "A_log.weight"].exp();
  EXPECT_GE(rates.min().item<double>(), 0.01);
  EXPECT_LT(rates.max().item<double>(), 16.0);
  EXPECT_GT(rates.std().item<double>(), 1.0);
  EXPECT_NEAR(parameters[mixer + "conv1d.weight"].std().item<double>(), 0.02, 0.004);
}

}  // namespace
}  // namespace tessera::models

#include "tessera/generation/answer_biases.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/generation/generate.h"

#include "tests/models/small_model.h"

namespace tessera::generation {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
using Added = std::map<int64_t, double>;

Added map_of(std::span<const TokenBias> biases) {
  Added all;
  for (const TokenBias& bias : biases) EXPECT_TRUE(all.emplace(bias.id, bias.delta).second) << "named once";
  return all;
}

TEST(AnswerBiases, FollowTheAnswer) {
  struct Case {
    BiasOptions options;
    double presence, frequency;
    std::vector<int64_t> answer;
    Added before, after;
  };
  const BiasOptions minimum{{{5, 1.0}, {7, 2.0}}, 3, {}}, bad{{}, 0, {{4}, {1, 2, 3}, {2, 9}, {1, 99}, {}}};
  const Case cases[] = {
      {{}, 0, 0, {1, 2}, {}, {}},
      {{}, 0.5, 0.25, {}, {}, {}},
      {{}, 0.5, 0.25, {1, 2, 1, 1}, {}, {{1, -1.25}, {2, -0.75}}},
      {{}, -2.0, 0, {3, 3}, {}, {{3, 2.0}}},
      // Stop ids are 7 and 8, and some that are no tokens.
      {minimum, 0, 0, {}, {{5, 1.0}, {7, kNever}, {8, kNever}}, {}},
      {minimum, 0, 0, {1, 2}, {{5, 1.0}, {7, kNever}, {8, kNever}}, {}},
      {minimum, 0, 0, {1, 2, 3}, {{5, 1.0}, {7, 2.0}}, {}},
      {bad, 0, 0, {}, {{4, kNever}}, {}},
      {bad, 0, 0, {2}, {{4, kNever}, {9, kNever}}, {}},
      {bad, 0, 0, {1, 1, 2}, {{3, kNever}, {4, kNever}, {9, kNever}}, {}},
      {bad, 0, 0, {1, 2, 1}, {{4, kNever}}, {}},
  };
  for (const Case& each : cases) {
    AnswerBiases biases(each.options,
                        {.presence_penalty = each.presence, .frequency_penalty = each.frequency},
                        {7, 8, -1, 31}, 31);
    for (size_t size = 1; size <= each.answer.size(); ++size) biases.take(std::span(each.answer).first(size));
    EXPECT_EQ(map_of(biases.before_penalty()), each.before) << &each - cases;
    EXPECT_EQ(map_of(biases.after_penalty()), each.after) << &each - cases;
  }
  for (const TokenBias& wrong : {TokenBias{31, 1.0}, {-1, 1.0}, {3, 100.5}, {3, std::nan("")}})
    EXPECT_THROW(AnswerBiases({{wrong}, 0, {}}, {}, {}, 31), Error);
  EXPECT_THROW((SamplingOptions{.presence_penalty = 2.1}).check(), Error);
  EXPECT_THROW((SamplingOptions{.frequency_penalty = std::nan("")}).check(), Error);
}

// The wanted text takes each token greedily from the logits of the whole text so far, less the penalties.
TEST(AnswerBiases, ChangeAnAnswerAsTheirFormulaSays) {
  const auto model = models::small_model();
  const std::vector<int64_t> prompt = {1, 2, 3, 3};
  GenerateOptions options;
  options.stop_ids = {-1};
  options.max_new_tokens = 12;
  const Generation free = generate(*model, prompt, options);
  options.sampling.presence_penalty = 0.5;
  options.sampling.frequency_penalty = 1.5;
  options.biases.logit_bias = {{free.token_ids[0], -100.0}, {9, 0.25}};
  std::vector<int64_t> want, text = prompt;
  for (int i = 0; i < 12; ++i) {
    nn::KvCache cache(model->cache_options());
    const at::Tensor logits = model->next_logits(cache, {{cache.add(), text}})[0].clone();
    for (const TokenBias& bias : options.biases.logit_bias) logits[bias.id] += bias.delta;
    for (const int64_t id : std::set<int64_t>(want.begin(), want.end()))
      logits[id] -= 0.5 + 1.5 * static_cast<double>(std::ranges::count(want, id));
    want.push_back(logits.argmax().item<int64_t>());
    text.push_back(want.back());
  }
  EXPECT_EQ(generate(*model, prompt, options).token_ids, want);
  // The answer without penalties repeats itself, and is not what these make of it.
  EXPECT_NE(free.token_ids, want);
  // A stop id that comes too early is not chosen.
  GenerateOptions stopping;
  stopping.max_new_tokens = 12;
  stopping.stop_ids = {free.token_ids[0]};
  EXPECT_TRUE(generate(*model, prompt, stopping).token_ids.empty());
  stopping.biases.min_new_tokens = 5;
  const Generation later = generate(*model, prompt, stopping);
  EXPECT_GE(later.token_ids.size(), 5U);
  EXPECT_EQ(std::ranges::count(later.token_ids, free.token_ids[0]), 0);
}

}  // namespace
}  // namespace tessera::generation

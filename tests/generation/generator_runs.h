// Runs of a Generator with all that its requests have been told.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tessera/generation/generate.h"

#include "tests/models/reference_models.h"
#include "tests/testing/random.h"

namespace tessera::generation {

// All that a request has been told, to the last bit.
struct Told {
  std::vector<int64_t> ids;
  FinishReason reason = FinishReason::Length;
  std::vector<double> log_probs, of_prompt;
  bool operator==(const Told&) const = default;
};

struct Outcome {
  std::vector<Told> told;
  GeneratorCounts counts;
};

inline std::vector<double> values(const std::vector<scoring::TokenLogProbs>& log_probs) {
  std::vector<double> values;
  for (const auto& one : log_probs) values.push_back(one.log_prob);
  return values;
}

inline GenerationRequest request_of(std::vector<int64_t> prompt, int64_t max_new_tokens, uint64_t seed) {
  GenerationRequest request{std::move(prompt), {}};
  request.options.stop_ids = {-1};
  request.options.max_new_tokens = max_new_tokens;
  request.options.sampling = {.temperature = 1.2, .top_p = 0.95, .seed = seed};
  return request;
}

inline std::vector<int64_t> random_ids(testing::Random& random, int64_t count) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(random.in(3, 30));
  return ids;
}

// Runs the requests, the second half of which comes later.
inline Outcome run(models::CausalLM& model, const GeneratorOptions& options,
                   std::vector<GenerationRequest> requests) {
  Generator generator(model, options);
  Outcome outcome;
  outcome.told.resize(requests.size());
  std::vector<int64_t> numbers;
  const auto add = [&](size_t i) {
    Told& told = outcome.told[i];
    GenerateOptions& asked = requests[i].options;
    asked.on_token = [&told](int64_t id) {
      told.ids.push_back(id);
      return true;
    };
    asked.on_log_probs = [&told](int64_t, const auto& one) { told.log_probs.push_back(one.log_prob); };
    if (i % 3 == 0) asked.on_prompt_log_probs = [&told](const auto& all) { told.of_prompt = values(all); };
    numbers.push_back(generator.add(requests[i]));
  };
  const size_t half = requests.size() / 2 + 1;
  for (size_t i = 0; i < half; ++i) add(i);
  for (int step = 0; step < 3; ++step) generator.step();
  for (size_t i = half; i < requests.size(); ++i) add(i);
  const int64_t most = generator.cache().options().max_pages;
  while (generator.step()) {
    if (most > 0) {
      EXPECT_LE(generator.cache().used_pages(), most);
    }
    EXPECT_LE(generator.num_running(), options.max_batch);
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const Generation result = generator.take(numbers[i]).value();
    EXPECT_EQ(result.token_ids, outcome.told[i].ids) << "each token is told once, in order";
    outcome.told[i].reason = result.reason;
  }
  EXPECT_EQ(generator.cache().used_pages(), 0);
  outcome.counts = generator.counts();
  return outcome;
}

// Expects the same answers, with log-probabilities that differ in their last digits alone.
inline void expect_near(const Outcome& got, const Outcome& want) {
  for (size_t i = 0; i < want.told.size(); ++i) {
    EXPECT_EQ(got.told[i].ids, want.told[i].ids) << "request " << i;
    EXPECT_EQ(got.told[i].reason, want.told[i].reason) << "request " << i;
    for (const auto part : {&Told::log_probs, &Told::of_prompt}) {
      const auto &own = got.told[i].*part, &other = want.told[i].*part;
      ASSERT_EQ(own.size(), other.size()) << "request " << i;
      for (size_t k = 0; k < own.size(); ++k) ASSERT_NEAR(own[k], other[k], 1e-10) << "request " << i;
    }
  }
}

// Returns a tiny model with gated delta nets that takes longer texts than its files say.
inline std::shared_ptr<models::CausalLM> hybrid_model() {
  const auto base = models::BaseModel::open(models::reference_folder("qwen3_next"))
                        .with_config({{"max_position_embeddings", "256"}});
  const auto model = models::build_model(base.config(), at::kDouble);
  models::load_weights(*model, base.tensors());
  return model;
}

}  // namespace tessera::generation

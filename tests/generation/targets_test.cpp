// Tests of the generation of targets by encoder-decoders.
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/generation/generate.h"
#include "tessera/generation/score_tokens.h"
#include "tessera/generation/serving_engine.h"
#include "tessera/generation/session.h"

#include "tests/models/reference_models.h"

namespace tessera::generation {
namespace {

const std::string& flan_folder() {
  static const std::string folder = testing::source_folder() + "/tests/reference/data/seq2seq/flan";
  return folder;
}

std::shared_ptr<models::CausalLM> flan() {
  const models::BaseModel base = models::BaseModel::open(flan_folder());
  const auto model = models::build_model(base.config(), at::kDouble);
  models::load_weights(*model, base.tensors());
  model->eval();
  return model;
}

std::vector<int64_t> ids_of(const std::string& name) {
  const at::Tensor ids = models::TensorFile(flan_folder() + "/reference.safetensors").get(name);
  return {ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + ids.numel()};
}

// Fewer places than sources: the third begins when one of the first two has ended. A penalty counts the start
// and the target, and no token of the source.
TEST(Targets, EqualTransformers) {
  const auto model = flan();
  for (const auto& [name, penalty] : {std::pair("greedy", 1.0), std::pair("penalized", 1.5)}) {
    Generator generator(*model, {.max_batch = 2, .max_cache_tokens = 160});
    std::vector<int64_t> requests;
    for (const char* number : {"0", "1", "2"}) {
      GenerateOptions options;
      options.max_new_tokens = 12;
      options.sampling.repetition_penalty = penalty;
      requests.push_back(generator.add({ids_of(std::string("source.") + number), options}));
    }
    while (generator.step()) {
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(generator.take(requests[i]).value().token_ids,
                ids_of(std::string(name) + "." + std::to_string(i)))
          << name << i;
    }
    EXPECT_EQ(generator.cache().used_pages(), 0);
  }
}

TEST(Targets, SamplingGivesTheSameTargetsInAnyBatch) {
  const auto model = flan();
  GenerateOptions options;
  options.max_new_tokens = 9;
  options.sampling.temperature = 1.0;
  options.sampling.seed = 3;
  const auto alone = generate(*model, ids_of("source.0"), options);
  Generator generator(*model);
  generator.add({ids_of("source.1"), options});
  const int64_t request = generator.add({ids_of("source.0"), options});
  while (generator.step()) {
  }
  EXPECT_EQ(generator.take(request).value().token_ids, alone.token_ids);
}

TEST(Targets, UsesThatContinueATextAreRefused) {
  const auto model = flan();
  EXPECT_THROW(Session{*model}, Error);
  EXPECT_THROW(ServingEngine(*model, {}), Error);
  EXPECT_THROW(score_tokens(*model, std::vector<scoring::TokenRequest>{{{3, 4, 5}, 1}}, {}), Error);
  Generator generator(*model);
  GenerateOptions options;
  options.on_prompt_log_probs = [](const auto&) {};
  EXPECT_THROW(generator.add({{3, 4}, options}), Error);
}

}  // namespace
}  // namespace tessera::generation

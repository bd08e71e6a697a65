// Tests of decoding on a GPU: recorded and replayed steps give the bits of the same steps run one by one,
// and the tokens of the host.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/device/device.h"
#include "tessera/generation/generate.h"
#include "tessera/generation/model_runner.h"
#include "tessera/models/common/load.h"
#include "tessera/models/llama/config.h"
#include "tessera/models/registry.h"

#include "tests/generation/draw_cases.h"
#include "tests/models/small_model.h"
#include "tests/testing/cuda_device.h"

namespace tessera::generation {
namespace {

using namespace models;

// Makes a model with grouped heads of 64, which flash attention computes in bfloat16.
std::shared_ptr<CausalLM> make_model(at::ScalarType type, at::Device device, int64_t window) {
  LlamaConfig config;
  config.model_type = "llama";
  config.vocab_size = 301;
  config.hidden_size = 256;
  config.intermediate_size = 320;
  config.num_layers = 3;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 64;
  config.rope.head_dim = 64;
  config.initializer_range = 0.1;
  if (window > 0) config.windows.assign(3, window);
  const auto model = build_model(config, type);
  load_weights(*model, *random_source(*model, 3), /*keeps_bf16=*/false, device);
  model->eval();
  return model;
}

std::vector<int64_t> prompt_of(int64_t length) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < length; ++i) ids.push_back((7 * i + length) % 301);
  return ids;
}

TEST(DecoderOnCuda, ReplaysGiveTheBitsOfStepsOneByOne) {
  TESSERA_NEEDS_CUDA();
  ASSERT_TRUE(DeviceGraph::can_record(testing::cuda_device()));
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const int64_t window : {0, 50}) {
      SCOPED_TRACE(::testing::Message() << at::toString(type) << ", window " << window);
      const auto model = make_model(type, testing::cuda_device(), window);
      nn::KvCache caches[2] = {nn::KvCache(model->cache_options()), nn::KvCache(model->cache_options())};
      ModelRunner plain(*model, caches[0], false), recording(*model, caches[1], true);
      std::vector<NewTokens> batch;
      for (const int64_t length : {5, 120, 31}) {
        const int64_t sequence = caches[0].add();
        ASSERT_EQ(caches[1].add(), sequence);
        for (ModelRunner* runner : {&plain, &recording}) runner->prefill({{sequence, prompt_of(length)}});
        batch.push_back({sequence, {length}});
      }
      // The sequences grow beyond 128 tokens, for which the first recording has columns, and one sequence
      // leaves.
      for (int64_t token = 0; token < 20; ++token) {
        for (NewTokens& part : batch) part.ids = {(11 * token + part.sequence) % 301};
        const NextLogits want = plain.decode(batch);
        const at::Tensor logits = want.logits.clone(), chosen = want.chosen.clone();
        const NextLogits got = recording.decode(batch);
        ASSERT_TRUE(at::equal(got.logits, logits)) << token;
        EXPECT_TRUE(at::equal(got.chosen, chosen)) << token;
        EXPECT_TRUE(at::isfinite(got.logits).all().item<bool>());
        if (token == 14) batch.pop_back();
      }
    }
  }
  EXPECT_TRUE(DeviceGraph::can_record(testing::cuda_device())) << "no recording has failed";
}

TEST(DecoderOnCuda, ModelsWithExpertsAreRecordedToo) {
  TESSERA_NEEDS_CUDA();
  const at::Device device = testing::cuda_device();
  const auto model = sparse_model(device);
  ASSERT_EQ(model->decodes_alone(), has_capability(device, 9, 0));
  nn::KvCache caches[2] = {nn::KvCache(model->cache_options()), nn::KvCache(model->cache_options())};
  ModelRunner plain(*model, caches[0], false), recording(*model, caches[1], true);
  std::vector<NewTokens> batch;
  for (const int64_t length : {3, 9, 30}) {
    const int64_t sequence = caches[0].add();
    ASSERT_EQ(caches[1].add(), sequence);
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < length; ++i) ids.push_back((7 * i + length) % 40);
    for (ModelRunner* runner : {&plain, &recording}) runner->prefill({{sequence, ids}});
    batch.push_back({sequence, {length}});
  }
  for (int64_t token = 0; token < 10; ++token) {
    for (NewTokens& part : batch) part.ids = {(11 * token + part.sequence) % 40};
    const at::Tensor want = plain.decode(batch).logits.clone();
    ASSERT_TRUE(at::equal(recording.decode(batch).logits, want)) << token;
    EXPECT_TRUE(at::isfinite(want).all().item<bool>());
  }
  EXPECT_TRUE(DeviceGraph::can_record(device)) << "no recording has failed";
}

TEST(DecoderOnCuda, TokensAreThoseOfTheHost) {
  TESSERA_NEEDS_CUDA();
  const std::vector<SamplingOptions> kinds = {{},
                                              {.temperature = 1.0},
                                              {.temperature = 1.2, .top_p = 0.9, .top_k = 40},
                                              {.temperature = 0.8, .min_p = 0.05, .repetition_penalty = 1.2}};
  for (const SamplingOptions& kind : kinds) {
    std::vector<std::vector<int64_t>> texts[2];
    for (const bool is_there : {false, true}) {
      const auto model = make_model(at::kDouble, is_there ? testing::cuda_device() : at::Device(at::kCPU), 0);
      Generator generator(*model, {.max_batch = 3});
      std::vector<int64_t> numbers;
      for (const int64_t length : {5, 120, 31, 2, 64}) {
        GenerateOptions options;
        options.stop_ids = {-1};
        options.max_new_tokens = 10 + length / 4;
        options.sampling = kind;
        options.sampling.seed = 3;
        options.sampling.sequence = numbers.size();
        numbers.push_back(generator.add({prompt_of(length), options}));
      }
      while (generator.step()) {
      }
      for (const int64_t number : numbers)
        texts[is_there].push_back(generator.take(number).value().token_ids);
    }
    EXPECT_EQ(texts[1], texts[0]) << kind.temperature;
  }
}

TEST(DecoderOnCuda, DrawsAreThoseOfTheHost) {
  TESSERA_NEEDS_CUDA();
  testing::Random random;
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (int i = 0; i < 100 && !::testing::Test::HasFailure(); ++i) {
      const DrawCase asked = random_case(random, type);
      expect_wanted(asked.chosen(testing::cuda_device()).to(at::kCPU), asked);
    }
  }
}

}  // namespace
}  // namespace tessera::generation

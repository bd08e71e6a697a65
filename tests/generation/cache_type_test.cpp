// Tests of caches that keep keys and values in 8 bits.
#include "tessera/generation/cache_type.h"

#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/generation/generate.h"

#include "tests/generation/generator_runs.h"
#include "tests/models/small_model.h"

namespace tessera::generation {
namespace {

using models::small_model;

constexpr int64_t kPage = nn::KvCache::kPageTokens;

TEST(CacheType, EightBitsTakeAByteForEachNumberAndAScaleForEachHead) {
  for (const auto& [dtype, bytes] : {std::pair{at::kFloat, 4}, {at::kBFloat16, 2}}) {
    const auto model = small_model(false, dtype);
    const nn::KvCache whole(cache_options(*model, CacheType::Model)),
        coded(cache_options(*model, CacheType::Int8));
    const int64_t numbers = 2 * 2 * 1 * 4 * kPage, heads = 2 * 2 * 1 * kPage;
    EXPECT_EQ(whole.page_bytes(), bytes * numbers);
    EXPECT_EQ(coded.page_bytes(), numbers + 4 * heads);
  }
  EXPECT_EQ(cache_options(*small_model(), CacheType::Model).dtype, at::kDouble);
}

TEST(CacheType, RefusesWhatHasNoSuchCache) {
  EXPECT_NO_THROW(check_cache_type(CacheType::Int8, kHost));
  EXPECT_NO_THROW(check_cache_type(CacheType::Model, at::Device(at::kCUDA, 0)));
  try {
    check_cache_type(CacheType::Int8, at::Device(at::kCUDA, 0));
    FAIL() << "a device has no such cache";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "E-CONFIG-KV-CACHE");
    EXPECT_NE(std::string(error.what()).find("cuda:0"), std::string::npos);
  }
}

// Answers are the same, whatever runs beside them, in whichever parts the prompts are read, and after having
// been put back; and log-probabilities are near those of a cache of the model's type.
TEST(CacheType, AnswersFromEightBitsDoNotDependOnTheRest) {
  for (const auto& [name, model] :
       {std::pair{"full attention", small_model()},
        {"a layer with a window", small_model(false, at::kDouble, kHost, {0, 20})},
        {"windows", small_model(false, at::kDouble, kHost, {70, 20})},
        {"states", hybrid_model()}}) {
    SCOPED_TRACE(name);
    testing::Random random(5);
    std::vector<GenerationRequest> requests;
    for (const int64_t size : {3, 40, 1, 70, 18}) {
      requests.push_back(request_of(random_ids(random, size), 20, requests.size()));
      requests.back().options.sampling.temperature = 0.0;
    }
    GeneratorOptions options = {.max_batch = 5, .cache_type = CacheType::Int8};
    const Outcome want = run(*model, options, requests);
    for (const auto& [batch, pages, part] : {std::tuple{1, 0, 0}, {5, 6, 0}, {2, 0, 24}, {5, 64, 32}}) {
      options.max_batch = batch;
      options.max_cache_tokens = pages * kPage;
      options.max_part_tokens = part;
      options.max_prefills = part > 0 ? 1 : 0;
      options.shares_pages = pages == 64;
      expect_near(run(*model, options, requests), want);
    }
    const Outcome exact = run(*model, {.max_batch = 5}, requests);
    double largest = 0.0;
    for (size_t i = 0; i < requests.size(); ++i) {
      for (size_t k = 0; k < want.told[i].of_prompt.size(); ++k)
        largest = std::max(largest, std::abs(want.told[i].of_prompt[k] - exact.told[i].of_prompt[k]));
    }
    EXPECT_GT(largest, 0.0);
    EXPECT_LT(largest, 0.2);
  }
}

}  // namespace
}  // namespace tessera::generation

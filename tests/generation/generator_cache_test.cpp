// Tests of a Generator whose cache has a bound: answers that are put back, and what they cost.
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/generation/generate.h"
#include "tessera/ops/leaf.h"

#include "tests/generation/generator_runs.h"
#include "tests/generation/letters_constraint.h"
#include "tests/models/small_model.h"
#include "tests/testing/skip.h"

namespace tessera::generation {
namespace {

using models::small_model;

constexpr int64_t kPage = nn::KvCache::kPageTokens;

// Requests of several lengths, of which some have penalties or constraints and some want the prompt's
// log-probabilities.
std::vector<GenerationRequest> mixed_requests() {
  testing::Random random(5);
  std::vector<GenerationRequest> requests;
  for (const int64_t size : {3, 40, 1, 70, 18}) {
    const uint64_t number = requests.size();
    requests.push_back(request_of(random_ids(random, size), 70, 7 + number));
    SamplingOptions& sampling = requests.back().options.sampling;
    if (number % 2 == 1) {
      sampling.repetition_penalty = 1.3;
    } else {
      sampling.presence_penalty = 0.4;
      sampling.frequency_penalty = 0.3;
      requests.back().options.biases = {{{4, 0.5}}, 0, {{5, 6}}};
    }
    if (number % 3 == 1) requests.back().options.constraint = letters_constraint("([C-H][I-^]{1,3})*");
  }
  return requests;
}

class BoundedCache : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(BoundedCache, AnswersThatArePutBackAreTheSameToTheLastBit) {
  if (&ops::leaves(at::ones({1})) != &ops::host_leaves()) GTEST_SKIP() << testing::skip::kPlainOps;
  const auto model = small_model(false, GetParam());
  const GeneratorOptions large = {.max_batch = 5, .max_prefill_tokens = 1, .max_part_tokens = kPage};
  const Outcome want = run(*model, large, mixed_requests());
  EXPECT_EQ(want.counts.preemptions, 0);
  // The largest request has 139 tokens in the cache.
  for (const int64_t pages : {5, 6, 9}) {
    GeneratorOptions small = large;
    small.max_cache_tokens = pages * kPage;
    const Outcome got = run(*model, small, mixed_requests());
    EXPECT_GT(got.counts.preemptions, 0) << pages;
    EXPECT_EQ(got.counts.prompt_tokens, 3 + 40 + 1 + 70 + 18);
    for (size_t i = 0; i < want.told.size(); ++i)
      EXPECT_EQ(got.told[i], want.told[i]) << "request " << i << ", " << pages << " pages";
  }
}

INSTANTIATE_TEST_SUITE_P(Types, BoundedCache, ::testing::Values(at::kDouble, at::kFloat, at::kBFloat16),
                         [](const auto& info) { return std::string(at::toString(info.param)); });

// Texts that were put back are read like prompts, in parts or whole; but where the cache holds windows alone,
// token by token. Layers with a state have it again afterwards.
TEST(GeneratorCache, AnswersThatArePutBackAreReadAgain) {
  const std::pair<const char*, std::shared_ptr<models::CausalLM>> all[] = {
      {"full attention", small_model()},
      {"a layer with a window", small_model(false, at::kDouble, kHost, {0, 20})},
      {"windows", small_model(false, at::kDouble, kHost, {70, 20})},
      {"states", hybrid_model()}};
  for (const auto& [name, model] : all) {
    SCOPED_TRACE(name);
    const int64_t pages = model->cache_options().window > 0 ? 5 : 6;
    for (const int64_t part : {0, 24}) {
      const GeneratorOptions large = {.max_batch = 5, .max_prefills = 1, .max_part_tokens = part};
      GeneratorOptions small = large;
      small.max_cache_tokens = pages * kPage;
      const Outcome got = run(*model, small, mixed_requests());
      EXPECT_GT(got.counts.preemptions, 0);
      expect_near(got, run(*model, large, mixed_requests()));
    }
  }
}

TEST(GeneratorCache, ALongPromptIsPutBackWhileItIsRead) {
  const auto model = small_model();
  testing::Random random(6);
  const GenerationRequest first = request_of(random_ids(random, kPage - 1), 100, 1);
  GenerationRequest second = request_of(random_ids(random, 100), 5, 2);
  std::vector<double> of_prompt;
  second.options.on_prompt_log_probs = [&](const auto& all) { of_prompt = values(all); };
  // One token of the long prompt is read in each step, and the first answer needs its pages meanwhile.
  Generator generator(
      *model, {.max_batch = 2, .max_cache_tokens = 7 * kPage, .max_prefills = 1, .max_part_tokens = 1});
  const int64_t one = generator.add(first);
  while (generator.num_running() == 0 || generator.num_waiting() > 0) generator.step();
  const int64_t two = generator.add(second);
  while (generator.step()) {
  }
  EXPECT_EQ(generator.counts().preemptions, 1);
  EXPECT_EQ(generator.take(one).value().token_ids, generate(*model, first.prompt, first.options).token_ids);
  EXPECT_EQ(of_prompt.size(), 99U);
  second.options.on_prompt_log_probs = nullptr;
  EXPECT_EQ(generator.take(two).value().token_ids, generate(*model, second.prompt, second.options).token_ids);
}

TEST(GeneratorCache, ACancelledAnswerThatWaitsAgainKeepsItsTokens) {
  const auto model = small_model();
  Generator generator(*model, {.max_batch = 2, .max_cache_tokens = 4 * kPage});
  const int64_t older = generator.add(request_of({1, 2}, 100, 1)),
                younger = generator.add(request_of({3}, 100, 2));
  while (generator.counts().preemptions == 0) ASSERT_TRUE(generator.step());
  EXPECT_EQ(generator.num_running(), 1);
  EXPECT_EQ(generator.num_waiting(), 1);
  generator.cancel(younger);
  const Generation cancelled = generator.take(younger).value();
  EXPECT_EQ(cancelled.reason, FinishReason::Callback);
  EXPECT_GE(cancelled.token_ids.size(), 60U);
  while (generator.step()) {
  }
  EXPECT_EQ(generator.take(older).value().token_ids.size(), 100U);
}

// Requests of which most begin like another one, and some are the same but for their seeds.
std::vector<GenerationRequest> similar_requests() {
  testing::Random random(8);
  const std::vector<int64_t> beginning = random_ids(random, 3 * kPage + 5);
  std::vector<GenerationRequest> requests;
  for (const int64_t kept : {100, 100, 64, 70, 2, 96, 101}) {
    std::vector<int64_t> prompt(beginning.begin(), beginning.begin() + kept);
    const std::vector<int64_t> own = random_ids(random, requests.size() == 1 ? 0 : 9);
    prompt.insert(prompt.end(), own.begin(), own.end());
    requests.push_back(request_of(prompt, 40, requests.size()));
    if (requests.size() % 2 == 0) requests.back().options.sampling.repetition_penalty = 1.3;
  }
  requests.push_back(request_of(requests[3].prompt, 40, 99));
  return requests;
}

GeneratorOptions with_sharing(GeneratorOptions options) {
  options.shares_pages = true;
  return options;
}

TEST_P(BoundedCache, SharedPagesLeaveTheBitsOfEveryAnswer) {
  if (&ops::leaves(at::ones({1})) != &ops::host_leaves()) GTEST_SKIP() << testing::skip::kPlainOps;
  const auto model = small_model(false, GetParam());
  // A cache of 7 pages puts answers back and loses pages.
  for (const int64_t pages : {64, 7}) {
    for (const int64_t part : {kPage, 2 * kPage}) {
      const GeneratorOptions options = {.max_batch = 4,
                                        .max_cache_tokens = pages * kPage,
                                        .max_prefill_tokens = 1,
                                        .max_part_tokens = part};
      const Outcome want = run(*model, options, similar_requests()),
                    got = run(*model, with_sharing(options), similar_requests());
      EXPECT_EQ(want.counts.found_tokens, 0);
      EXPECT_GE(got.counts.found_tokens, 2 * kPage);
      EXPECT_EQ(got.counts.found_tokens % part, 0);
      EXPECT_EQ(got.counts.prompt_tokens, want.counts.prompt_tokens);
      for (size_t i = 0; i < want.told.size(); ++i)
        EXPECT_EQ(got.told[i], want.told[i])
            << "request " << i << ", " << pages << " pages, parts of " << part;
    }
  }
}

TEST(GeneratorCache, SharedPagesLeaveTheAnswers) {
  const std::pair<const char*, std::shared_ptr<models::CausalLM>> all[] = {
      {"full attention", small_model()},
      {"a layer with a window", small_model(false, at::kDouble, kHost, {0, 20})},
      {"latent attention", models::load_reference_model("deepseek_v3", at::kDouble)}};
  for (const auto& [name, model] : all) {
    SCOPED_TRACE(name);
    auto requests = similar_requests();
    for (GenerationRequest& request : requests) {
      if (model->config().generation_bound)
        request.prompt.resize(std::min<size_t>(request.prompt.size(), 50));
    }
    for (const int64_t part : {0, 24}) {
      for (const int64_t pages : {64, 7}) {
        const GeneratorOptions options = {
            .max_batch = 4, .max_cache_tokens = pages * kPage, .max_prefills = 1, .max_part_tokens = part};
        const Outcome got = run(*model, with_sharing(options), requests);
        EXPECT_GT(got.counts.found_tokens, 0);
        expect_near(got, run(*model, options, requests));
      }
    }
  }
}

TEST(GeneratorCache, AConversationIsReadFromItsLastAnswerOn) {
  const auto model = small_model();
  testing::Random random(9);
  Generator generator(*model, {.max_batch = 8, .max_cache_tokens = 40 * kPage, .shares_pages = true});
  std::vector<int64_t> ids = random_ids(random, 40);
  // Runs a request and returns its result and the number of tokens that were read of its prompt.
  const auto ask = [&](const std::string& salt) {
    GenerationRequest request = request_of(ids, 50, 1);
    request.options.cache_salt = salt;
    const int64_t before = generator.times().prefill_tokens, number = generator.add(request);
    while (generator.step()) {
    }
    return std::pair{generator.take(number).value(), generator.times().prefill_tokens - before};
  };
  const auto [first, num_first] = ask("");
  EXPECT_EQ(first.cached_tokens, 0);
  EXPECT_EQ(num_first, 40);
  ids.insert(ids.end(), first.token_ids.begin(), first.token_ids.end());
  const std::vector<int64_t> question = random_ids(random, 10);
  ids.insert(ids.end(), question.begin(), question.end());
  // The last of the 40 + 50 tokens was never fed: 89 fill two pages.
  const auto [second, num_second] = ask("");
  EXPECT_EQ(second.cached_tokens, 2 * kPage);
  EXPECT_EQ(num_second, 100 - 2 * kPage);
  EXPECT_EQ(second.token_ids, generate(*model, ids, request_of({}, 50, 1).options).token_ids);
  // Another salt has nothing in common with it.
  EXPECT_EQ(ask("mine").first.cached_tokens, 0);
  EXPECT_EQ(ask("mine").first.cached_tokens, 3 * kPage);
  // A prompt that fills its pages is fed its last page again.
  ids.resize(3 * kPage);
  EXPECT_EQ(ask("").first.cached_tokens, 2 * kPage);
  EXPECT_EQ(generator.counts().looked_up_tokens, 40 + 3 * 100 + 3 * kPage);
  EXPECT_EQ(generator.counts().found_tokens, 7 * kPage);
  EXPECT_EQ(generator.cache().used_pages(), 0);
}

// Several answers to one prompt read it once, also if they come together. The log-probabilities of a prompt
// need all of it.
TEST(GeneratorCache, APromptThatManyShareIsReadOnce) {
  const auto model = small_model();
  testing::Random random(10);
  const std::vector<int64_t> prompt = random_ids(random, 3 * kPage + 4);
  Generator generator(*model, {.max_batch = 8, .max_cache_tokens = 80 * kPage, .shares_pages = true});
  std::vector<int64_t> numbers;
  for (uint64_t i = 0; i < 4; ++i) numbers.push_back(generator.add(request_of(prompt, 9, i)));
  while (generator.step()) EXPECT_LE(generator.cache().used_pages(), 3 + 4);
  EXPECT_EQ(generator.times().prefill_tokens, std::ssize(prompt) + 3 * 4);
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(generator.take(numbers[i]).value().token_ids,
              generate(*model, prompt, request_of({}, 9, i).options).token_ids);
  }
  GenerationRequest scored = request_of(prompt, 9, 5);
  size_t num_scored = 0;
  scored.options.on_prompt_log_probs = [&](const auto& all) { num_scored = all.size(); };
  const int64_t number = generator.add(scored);
  while (generator.step()) {
  }
  EXPECT_EQ(generator.take(number).value().cached_tokens, 0);
  EXPECT_EQ(num_scored, prompt.size() - 1);
}

TEST(GeneratorCache, SomeModelsCannotSharePages) {
  EXPECT_EQ(why_no_shared_pages(*small_model()), "");
  const std::pair<std::shared_ptr<models::CausalLM>, const char*> all[] = {
      {small_model(false, at::kDouble, kHost, {40, 20}), "window"}, {hybrid_model(), "state"}};
  for (const auto& [model, part] : all) {
    EXPECT_NE(why_no_shared_pages(*model).find(part), std::string::npos);
    const GeneratorOptions options = {.max_batch = 4, .max_cache_tokens = 64 * kPage, .shares_pages = true};
    EXPECT_EQ(run(*model, options, similar_requests()).counts.looked_up_tokens, 0);
  }
}

}  // namespace
}  // namespace tessera::generation

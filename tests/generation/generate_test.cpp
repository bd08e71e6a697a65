#include "tessera/generation/generate.h"

#include <algorithm>
#include <cmath>
#include <regex>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/core/rng.h"
#include "tessera/ops/leaf.h"

#include "tests/generation/draw_cases.h"
#include "tests/generation/letters_constraint.h"
#include "tests/models/reference_models.h"
#include "tests/models/small_model.h"
#include "tests/testing/skip.h"

namespace tessera::generation {
namespace {

using namespace models;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

// Returns the options of a request that no token ends.
GenerateOptions endless(int64_t max_new_tokens) {
  GenerateOptions options;
  options.stop_ids = {-1};
  options.max_new_tokens = max_new_tokens;
  return options;
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
  // The likeliest token's 0.6 falls short of 0.7, so the next likeliest one belongs to the nucleus.
  const auto nucleus = counts({.temperature = 1.0, .top_p = 0.7, .seed = 11});
  EXPECT_EQ(nucleus[0] + nucleus[2], 0);
  EXPECT_GT(nucleus[3], 0);
  EXPECT_EQ(counts({.temperature = 1.0, .top_p = 0.5, .seed = 11})[1], 4000);
  EXPECT_EQ(counts({.temperature = 1.0, .seed = 11}), all);
  EXPECT_NE(counts({.temperature = 1.0, .seed = 12}), all);
}

TEST(Sample, MinPKeepsWhatIsNearTheLikeliest) {
  const at::Tensor logits = at::log(at::tensor({0.1, 0.6, 0.05, 0.25}, at::kDouble));
  const auto drawn = [&](SamplingOptions options) {
    std::vector<bool> seen(4);
    for (uint64_t i = 0; i < 2000; ++i) seen[static_cast<size_t>(sample(logits, options, i))] = true;
    return seen;
  };
  // Relative to the likeliest token the others have 0.25 / 0.6 = 0.417 and 0.1 / 0.6 = 0.167.
  EXPECT_THAT(drawn({.temperature = 1.0, .min_p = 0.41}), ElementsAre(false, true, false, true));
  EXPECT_THAT(drawn({.temperature = 1.0, .min_p = 0.42}), ElementsAre(false, true, false, false));
  EXPECT_THAT(drawn({.temperature = 1.0, .min_p = 0.16}), ElementsAre(true, true, false, true));
  EXPECT_THAT(drawn({.temperature = 1.0, .min_p = 1.0}), ElementsAre(false, true, false, false));
  // The temperature comes first and brings them nearer: sqrt(0.167) = 0.408.
  EXPECT_THAT(drawn({.temperature = 2.0, .min_p = 0.4}), ElementsAre(true, true, false, true));
  EXPECT_THROW((SamplingOptions{.min_p = 1.1}).check(), Error);
}

// The penalty is that of Transformers' RepetitionPenaltyLogitsProcessor.
TEST(Sample, RepetitionPenaltyTouchesWhatHasOccurredOnce) {
  const at::Tensor logits = at::tensor({2.0, -1.0, 0.5, 3.0}, at::kFloat);
  const auto penalized_by = [&](double penalty) {
    const DrawCase asked{logits.unsqueeze(0), {{{.repetition_penalty = penalty}, 0}}, {{3, 1, 3, 3}}};
    return asked.changed_logits(kHost)[0];
  };
  EXPECT_TRUE(at::equal(penalized_by(2.0), at::tensor({2.0, -2.0, 0.5, 1.5}, at::kFloat)));
  EXPECT_TRUE(at::equal(logits, at::tensor({2.0, -1.0, 0.5, 3.0}, at::kFloat)));
  EXPECT_TRUE(at::equal(penalized_by(1.0), logits));
  EXPECT_THROW((SamplingOptions{.repetition_penalty = 0.0}).check(), Error);
  // One list is added before the penalty, which sees the sign of the sum, and the other one after it.
  const std::vector<TokenBias> before = {{1, 3.0}, {0, -INFINITY}}, after = {{3, -0.25}, {0, 1.0}};
  const TokenDraw draw{{.repetition_penalty = 2.0}, 0, {}, before, after};
  const DrawCase asked{logits.unsqueeze(0), {draw}, {{3, 1, 0}}};
  EXPECT_TRUE(at::equal(asked.changed_logits(kHost)[0], at::tensor({-INFINITY, 1.0, 0.5, 1.25}, at::kFloat)));
}

TEST(Sample, SequencesOfOneSeedDrawOtherNumbers) {
  const at::Tensor flat = at::zeros({1000}, at::kFloat);
  const auto drawn = [&](uint64_t sequence) {
    std::vector<int64_t> tokens;
    for (uint64_t i = 0; i < 20; ++i)
      tokens.push_back(sample(flat, {.temperature = 1.0, .seed = 3, .sequence = sequence}, i));
    return tokens;
  };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(0), drawn(1));
  EXPECT_NE(drawn(1), drawn(2));
}

TEST(Generate, PenalizesPromptAndAnswer) {
  const auto model = small_model();
  GenerateOptions options = endless(12);
  options.sampling.repetition_penalty = 100.0;
  const Generation answer = generate(*model, {1, 2}, options);
  // The expected text takes each token greedily from the penalized logits of the whole text so far.
  std::vector<int64_t> text = {1, 2};
  for (int i = 0; i < 12; ++i) {
    GenerateOptions one = endless(1);
    one.sampling = options.sampling;
    text.push_back(generate(*model, text, one).token_ids.at(0));
  }
  EXPECT_EQ(answer.token_ids, std::vector<int64_t>(text.begin() + 2, text.end()));
  EXPECT_NE(answer.token_ids, generate(*model, {1, 2}, endless(12)).token_ids);
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

TEST(Sample, SortsAsFarAsTheCutReaches) {
  // Equal logits are ordered by rising id, so a nucleus of half of them is the first half, however far they
  // are sorted.
  const at::Tensor flat = at::zeros({1000}, at::kFloat);
  for (uint64_t i = 0; i < 200; ++i) {
    EXPECT_LT(sample(flat, {.temperature = 1.0, .top_p = 0.4999, .seed = 3}, i), 500);
    EXPECT_LT(sample(flat, {.temperature = 1.0, .top_k = 70, .seed = 3}, i), 70);
  }
}

TEST(Sample, FindsTheLargestAnywhere) {
  for (const int64_t size : {1, 63, 64, 65, 200}) {
    for (int64_t at = 0; at < size; ++at) {
      const at::Tensor logits = at::full({size}, -INFINITY, at::kFloat);
      logits[at] = -3.0;
      if (at + 1 < size) logits[at + 1] = -3.0;
      ASSERT_EQ(sample(logits, {}, 0), at) << size;
      logits[at] = at % 2 == 0 ? std::nan("") : INFINITY;
      ASSERT_THROW(sample(logits, {}, 0), Error) << size;
    }
    EXPECT_THROW(sample(at::full({size}, -INFINITY), {}, 0), Error);
  }
}

// -------------------------------------------------------------------------------------------- many at once

// Returns prompts of different lengths, some of which need several pages of the cache.
std::vector<std::vector<int64_t>> some_prompts() {
  std::vector<std::vector<int64_t>> prompts;
  const CounterRng rng(1, 2);
  for (const int64_t size : {3, 40, 1, 70, 18}) {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < size; ++i)
      ids.push_back(static_cast<int64_t>(rng.below(100 * prompts.size() + i, 31)));
    prompts.push_back(ids);
  }
  return prompts;
}

std::vector<GenerationRequest> some_requests(double temperature) {
  std::vector<GenerationRequest> requests;
  for (const auto& prompt : some_prompts()) {
    GenerateOptions options;
    options.stop_ids = {5};
    options.max_new_tokens = 20 + 15 * static_cast<int64_t>(requests.size());
    options.sampling = {.temperature = temperature, .top_p = 0.95, .seed = 7 + requests.size()};
    requests.push_back({prompt, options});
  }
  return requests;
}

class Batches : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(Batches, GiveTheTextsOfSingleRuns) {
  const auto model = small_model(false, GetParam());
  for (const double temperature : {0.0, 1.5}) {
    const auto requests = some_requests(temperature);
    for (const int64_t max_batch : {2, 5, 9}) {
      Generator generator(*model, {.max_batch = max_batch, .max_prefill_tokens = 1});
      std::vector<int64_t> numbers;
      // The last request comes while the others are running.
      for (size_t i = 0; i < 4; ++i) numbers.push_back(generator.add(requests[i]));
      for (int i = 0; i < 3; ++i) EXPECT_TRUE(generator.step());
      numbers.push_back(generator.add(requests[4]));
      while (generator.step()) EXPECT_LE(generator.num_running(), max_batch);
      for (size_t i = 0; i < requests.size(); ++i) {
        const auto got = generator.take(numbers[i]);
        const Generation want = generate(*model, requests[i].prompt, requests[i].options);
        ASSERT_TRUE(got.has_value());
        EXPECT_EQ(got->token_ids, want.token_ids) << "request " << i;
        EXPECT_EQ(got->reason, want.reason);
        EXPECT_FALSE(generator.take(numbers[i]).has_value()) << "a result is given once";
      }
      EXPECT_EQ(generator.cache().used_pages(), 0);
    }
  }
}

TEST_P(Batches, HaveTheLogitsOfSingleRunsToTheLastBit) {
  if (&ops::leaves(at::ones({1})) != &ops::host_leaves()) GTEST_SKIP() << tessera::testing::skip::kPlainOps;
  const auto model = small_model(true, GetParam());
  const auto prompts = some_prompts();
  nn::KvCache together(model->cache_options()), alone(model->cache_options());
  std::vector<int64_t> sequences;
  for (const auto& prompt : prompts) {
    sequences.push_back(together.add());
    ASSERT_EQ(alone.add(), sequences.back());
    EXPECT_TRUE(at::equal(model->next_logits(together, {{sequences.back(), prompt}}),
                          model->next_logits(alone, {{sequences.back(), prompt}})));
  }
  for (int64_t token = 0; token < 30; ++token) {
    std::vector<NewTokens> batch;
    for (const int64_t sequence : sequences) batch.push_back({sequence, {(token + 7 * sequence) % 31}});
    const at::Tensor logits = model->next_logits(together, batch);
    for (size_t i = 0; i < batch.size(); ++i) {
      const at::Tensor single = model->next_logits(alone, {batch[i]});
      ASSERT_TRUE(at::equal(logits[static_cast<int64_t>(i)], single[0])) << "token " << token << " of " << i;
    }
    // One sequence leaves on the way, from the middle of the batch.
    if (token == 12) {
      together.free(sequences[1]);
      sequences.erase(sequences.begin() + 1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Batches, ::testing::Values(at::kDouble, at::kFloat, at::kBFloat16),
                         [](const auto& info) { return std::string(at::toString(info.param)); });

TEST(NextLogits, TakesPromptsAndSingleTokensInOneBatch) {
  const auto model = small_model();
  const auto prompts = some_prompts();
  nn::KvCache cache(model->cache_options());
  const int64_t old = cache.add(), fresh = cache.add(), longer = cache.add();
  const std::vector<int64_t>&first = prompts[1], &second = prompts[4], &third = prompts[3];
  const auto whole = [&](const std::vector<int64_t>& ids) {
    return model->logits(pack_ids(at::tensor(ids, at::kLong)))[static_cast<int64_t>(ids.size()) - 1];
  };
  model->next_logits(
      cache, {{old, {first.begin(), first.end() - 1}}, {longer, {third.begin(), third.begin() + 33}}});
  const at::Tensor logits = model->next_logits(
      cache, {{longer, {third.begin() + 33, third.end()}}, {fresh, second}, {old, {first.back()}}});
  EXPECT_LT(max_difference(logits[0], whole(third)), 1e-10);
  EXPECT_LT(max_difference(logits[1], whole(second)), 1e-10);
  EXPECT_LT(max_difference(logits[2], whole(first)), 1e-10);
}

TEST(NextLogits, AnErrorLeavesTheCacheAsItWas) {
  const auto model = small_model();
  nn::KvCacheOptions options = model->cache_options();
  options.max_pages = 2;
  nn::KvCache cache(options);
  const int64_t sequence = cache.add();
  model->next_logits(cache, {{sequence, {1, 2, 3}}});
  EXPECT_THROW(model->next_logits(cache, {{sequence, {31}}}), Error);
  EXPECT_THROW(model->next_logits(cache, {{sequence, std::vector<int64_t>(62, 1)}}), Error);
  EXPECT_EQ(cache.length(sequence), 3);
  const at::Tensor want = model->logits(pack_ids(at::tensor(std::vector<int64_t>{1, 2, 3, 4}, at::kLong)))[3];
  EXPECT_LT(max_difference(model->next_logits(cache, {{sequence, {4}}})[0], want), 1e-12);
}

TEST(Generator, PromptsReadTogetherGiveTheTextsOfSingleRuns) {
  const auto model = small_model();
  for (const double temperature : {0.0, 1.5}) {
    const auto requests = some_requests(temperature);
    // Prompts are read all at once; or those of 40 and 1 tokens together, but not with one of 70.
    for (const int64_t max_prefill_tokens : {1000, 100}) {
      Generator generator(*model, {.max_batch = 5, .max_prefill_tokens = max_prefill_tokens});
      std::vector<int64_t> numbers;
      for (const auto& request : requests) numbers.push_back(generator.add(request));
      while (generator.step()) {
      }
      EXPECT_EQ(generator.times().prefill_tokens, 3 + 40 + 1 + 70 + 18);
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(generator.take(numbers[i]).value().token_ids,
                  generate(*model, requests[i].prompt, requests[i].options).token_ids);
      }
    }
  }
}

TEST(Generator, ACacheWithABoundLetsRequestsWaitTheirTurn) {
  const auto model = small_model();
  const auto requests = some_requests(0.0);
  // The largest request, 70 + 65 tokens, needs five pages of 32.
  Generator generator(*model, {.max_batch = 5, .max_cache_tokens = 160});
  std::vector<int64_t> numbers;
  for (const auto& request : requests) numbers.push_back(generator.add(request));
  while (generator.step()) EXPECT_LE(generator.cache().used_pages(), 5);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(generator.take(numbers[i]).value().token_ids,
              generate(*model, requests[i].prompt, requests[i].options).token_ids);
  }
  GenerationRequest large = requests[3];
  large.options.max_new_tokens = 200;
  EXPECT_THROW(generator.add(large), Error);
}

TEST(Generator, EndsWhatIsCancelledAndRefusesWhatCannotRun) {
  const auto model = small_model();
  Generator generator(*model, {.max_batch = 1});
  GenerateOptions options = endless(4);
  const int64_t first = generator.add({{1, 2}, options}), second = generator.add({{3}, options}),
                third = generator.add({{4}, options});
  EXPECT_TRUE(generator.step());
  EXPECT_EQ(generator.num_running(), 1);
  EXPECT_EQ(generator.num_waiting(), 2);
  generator.cancel(first);
  generator.cancel(second);
  while (generator.step()) {
  }
  EXPECT_EQ(generator.take(first).value().token_ids.size(), 2U);
  EXPECT_TRUE(generator.take(second).value().token_ids.empty());
  EXPECT_EQ(generator.take(third).value().token_ids, generate(*model, {4}, options).token_ids);
  EXPECT_THROW(generator.add({{}, options}), Error);
  EXPECT_THROW(generator.add({{31}, options}), Error);
  options.max_new_tokens = 0;
  EXPECT_TRUE(generator.take(generator.add({{1}, options})).value().token_ids.empty());
}

// Log-probabilities are those of the raw logits, with the requests alone or together, also where a prompt is
// read in parts and its sampling has penalties.
TEST(Generator, TellsLogProbabilitiesOfPromptsAndAnswers) {
  const auto model = small_model();
  const auto requests = some_requests(1.5);
  for (const int64_t max_logits : {int64_t{1} << 20, int64_t{31 * 16}}) {
    // Parts of 24 tokens are read of two prompts, and the logits of 16 tokens at once.
    const int64_t max_part_tokens = max_logits > 1000 ? 0 : 24;
    Generator generator(
        *model,
        {.max_batch = 5, .max_prefills = 1, .max_part_tokens = max_part_tokens, .max_logits = max_logits});
    struct Told {
      int64_t number = 0;
      std::vector<scoring::TokenLogProbs> prompt, answer;
    };
    std::vector<Told> told(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      GenerationRequest request = requests[i];
      request.options.num_log_probs = static_cast<int64_t>(i);
      request.options.sampling.repetition_penalty = i % 2 == 0 ? 1.0 : 1.3;
      request.options.on_log_probs = [&told, i](int64_t, const auto& values) {
        told[i].answer.push_back(values);
      };
      if (i != 2)
        request.options.on_prompt_log_probs = [&told, i](const auto& values) { told[i].prompt = values; };
      told[i].number = generator.add(request);
    }
    while (generator.step()) {
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      std::vector<int64_t> ids = requests[i].prompt;
      const int64_t num_prompt = std::ssize(ids);
      const Generation made = generator.take(told[i].number).value();
      ids.insert(ids.end(), made.token_ids.begin(), made.token_ids.end());
      nn::KvCache cache(model->cache_options());
      const at::Tensor logits = model->next_logits(cache, {{cache.add(), ids, std::ssize(ids)}});
      const at::Tensor want = at::log_softmax(logits, 1);
      EXPECT_EQ(told[i].prompt.size(), i == 2 ? 0U : static_cast<size_t>(num_prompt - 1));
      // The last one may be of a stop id.
      if (made.reason == FinishReason::Stop) told[i].answer.pop_back();
      ASSERT_EQ(told[i].answer.size(), made.token_ids.size());
      std::vector<scoring::TokenLogProbs> all(static_cast<size_t>(num_prompt - 1));
      if (i != 2) all = told[i].prompt;
      all.insert(all.end(), told[i].answer.begin(), told[i].answer.end());
      for (int64_t place = i == 2 ? num_prompt - 1 : 0; place + 1 < std::ssize(ids); ++place) {
        const scoring::TokenLogProbs& one = all[static_cast<size_t>(place)];
        const at::Tensor row = want[place];
        EXPECT_NEAR(one.log_prob, row[ids[static_cast<size_t>(place) + 1]].item<double>(), 1e-9);
        ASSERT_EQ(one.top.size(), i);
        if (i == 0) continue;
        const auto [best, best_ids] = at::topk(row, static_cast<int64_t>(i));
        for (size_t k = 0; k < i; ++k) {
          EXPECT_EQ(one.top[k].id, best_ids[static_cast<int64_t>(k)].item<int64_t>());
          EXPECT_NEAR(one.top[k].log_prob, best[static_cast<int64_t>(k)].item<double>(), 1e-9);
        }
      }
    }
  }
}

// Running sequences and shorter prompts go on while a long prompt is read, which may be cancelled meanwhile.
TEST(Generator, ALongPromptIsReadInParts) {
  const auto model = small_model();
  const std::vector<int64_t> long_prompt(100, 7);
  Generator generator(*model, {.max_batch = 4, .max_prefills = 1, .max_part_tokens = 20});
  const int64_t first = generator.add({{1, 2}, endless(30)});
  generator.step();
  const int64_t slow = generator.add({long_prompt, endless(3)}), quick = generator.add({{3}, endless(3)});
  EXPECT_EQ(generator.num_running(), 1);
  generator.step();
  EXPECT_EQ(generator.num_running(), 3) << "the short prompt goes first";
  EXPECT_EQ(generator.num_waiting(), 0);
  while (!generator.take(quick)) {
    ASSERT_TRUE(generator.step());
    EXPECT_FALSE(generator.take(slow).has_value());
  }
  while (generator.step()) {
  }
  EXPECT_EQ(generator.take(first).value().token_ids, generate(*model, {1, 2}, endless(30)).token_ids);
  EXPECT_EQ(generator.take(slow).value().token_ids, generate(*model, long_prompt, endless(3)).token_ids);
  EXPECT_EQ(generator.times().prefill_tokens, 2 + 100 + 1);

  const int64_t cancelled = generator.add({long_prompt, endless(3)});
  EXPECT_TRUE(generator.step());
  EXPECT_GT(generator.cache().used_pages(), 0);
  generator.cancel(cancelled);
  EXPECT_EQ(generator.cache().used_pages(), 0);
  EXPECT_FALSE(generator.step());
  EXPECT_EQ(generator.take(cancelled).value().reason, FinishReason::Callback);
}

// A stop id has a log-probability too, and comes before the end.
TEST(Generator, AConstrainedAnswerMatchesWhateverElseRuns) {
  const auto model = small_model();
  struct Case {
    std::string regex;
    double temperature;
    std::string answer;  // a regular expression, too
    FinishReason reason;
  };
  const Case cases[] = {{"", 0.0, "[@-^]{9}", FinishReason::Length},
                        {"[D-F]{4}", 0.0, "[D-F]{4}", FinishReason::Complete},
                        {"[D-F]{4}|A{4}B?", 2.0, "[D-F]{4}|A{4}B?", FinishReason::Complete},
                        {"(AB)+", 1.0, "(AB){4}A", FinishReason::Length},
                        {"C+", 1.0, "C+", FinishReason::Stop}};
  Generator generator(*model, {.max_batch = 4});
  std::vector<GenerationRequest> requests;
  std::vector<int64_t> numbers;
  std::vector<std::vector<double>> log_probs(std::size(cases));
  for (const Case& each : cases) {
    GenerationRequest& request = requests.emplace_back(GenerationRequest{{1, 2, 3}, {}});
    request.options.sampling = {.temperature = each.temperature, .seed = 3};
    // The token 30 ends an answer where it may.
    request.options.stop_ids = {each.reason == FinishReason::Stop ? 30 : -1};
    request.options.max_new_tokens = each.reason == FinishReason::Stop ? 2000 : 9;
    if (!each.regex.empty()) request.options.constraint = letters_constraint(each.regex);
    request.options.on_log_probs = [all = &log_probs[numbers.size()]](int64_t, const auto& one) {
      all->push_back(one.log_prob);
    };
    numbers.push_back(generator.add(request));
  }
  while (generator.step()) {
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    const Generation result = generator.take(numbers[i]).value();
    std::string answer;
    for (const int64_t id : result.token_ids) answer += letter_of(id);
    EXPECT_TRUE(std::regex_match(answer, std::regex(cases[i].answer))) << cases[i].regex << ": " << answer;
    EXPECT_EQ(result.reason, cases[i].reason) << cases[i].regex;
    EXPECT_EQ(result.token_ids, generate(*model, requests[i].prompt, requests[i].options).token_ids);
  }
  // Log-probabilities are those of the model: after the same prompt no barred token makes others likelier.
  nn::KvCache cache(model->cache_options());
  const at::Tensor want = at::log_softmax(model->next_logits(cache, {{cache.add(), {1, 2, 3}}}), 1);
  EXPECT_NEAR(log_probs[3].front(), want[0][1].item<double>(), 1e-6);
}

TEST(Generator, TellsTheLogProbabilityOfAStopId) {
  const auto model = small_model();
  const int64_t first = generate(*model, {1, 2}, endless(1)).token_ids[0];
  GenerateOptions options = endless(4);
  options.stop_ids = {first};
  std::vector<int64_t> ids;
  options.on_log_probs = [&](int64_t id, const auto&) { ids.push_back(id); };
  Generator generator(*model);
  const int64_t request = generator.add({{1, 2}, options});
  while (generator.step()) {
  }
  EXPECT_EQ(generator.take(request).value().reason, FinishReason::Stop);
  EXPECT_THAT(ids, ElementsAre(first));
}

// Running sequences go on while many requests wait, since few prompts are read between two steps.
TEST(Generator, PromptsDoNotHoldUpRunningSequences) {
  const auto model = small_model();
  Generator generator(*model, {.max_batch = 8, .max_prefill_tokens = 1, .max_prefills = 1});
  std::vector<int64_t> told;
  for (int64_t i = 0; i < 4; ++i) {
    GenerateOptions options = endless(5);
    options.on_token = [&told, i](int64_t) {
      told.push_back(i);
      return true;
    };
    generator.add({{1 + i}, options});
  }
  while (generator.step()) {
  }
  // The first sequence gets its second token before the third prompt is read.
  EXPECT_EQ(told.size(), 20U);
  EXPECT_LT(std::find(told.begin() + 1, told.end(), 0), std::find(told.begin(), told.end(), 2));
}

TEST(Generator, ACallbackMayCancelItselfAndItsNeighbours) {
  const auto model = small_model();
  Generator generator(*model, {.max_batch = 3});
  GenerateOptions options = endless(4);
  int64_t first = -1, last = -1;
  const int64_t kept = generator.add({{1, 2}, options});
  GenerateOptions cancelling = options;
  cancelling.on_token = [&](int64_t) {
    generator.cancel(first);
    generator.cancel(last);
    return true;
  };
  first = generator.add({{3}, cancelling});
  last = generator.add({{4}, options});
  while (generator.step()) {
  }
  for (const int64_t request : {first, last}) {
    const Generation ended = generator.take(request).value();
    EXPECT_EQ(ended.reason, FinishReason::Callback);
    EXPECT_LE(ended.token_ids.size(), 1U);
  }
  EXPECT_EQ(generator.take(kept).value().token_ids.size(), 4U);
  EXPECT_EQ(generator.cache().used_pages(), 0);
}

TEST(Generator, AFailingCallbackEndsItsRequestAlone) {
  const auto model = small_model();
  Generator generator(*model, {.max_batch = 2});
  GenerateOptions options = endless(6);
  const int64_t good = generator.add({{1, 2}, options});
  GenerateOptions failing = options;
  int64_t calls = 0;
  failing.on_token = [&](int64_t) -> bool {
    if (++calls == 3) throw Error(ErrorKind::Storage, "TEST", "no more");
    return true;
  };
  const int64_t bad = generator.add({{3}, failing});
  int64_t failures = 0;
  for (bool goes_on = true; goes_on;) {
    try {
      goes_on = generator.step();
    } catch (const Error&) {
      ++failures;
    }
  }
  EXPECT_EQ(failures, 1);
  EXPECT_EQ(generator.take(good).value().token_ids, generate(*model, {1, 2}, options).token_ids);
  EXPECT_EQ(generator.take(bad).value().reason, FinishReason::Callback);
}

}  // namespace
}  // namespace tessera::generation

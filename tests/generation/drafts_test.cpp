#include "tessera/generation/drafts.h"

#include <gtest/gtest.h>

#include "tessera/generation/generate.h"

#include "tests/generation/generator_runs.h"
#include "tests/generation/letters_constraint.h"
#include "tests/models/small_model.h"

namespace tessera::generation {
namespace {

using models::small_model;
using Ids = std::vector<int64_t>;

TEST(Drafts, AreTheTokensThatFollowedTheSameEnd) {
  struct Case {
    Ids text;
    int64_t most;
    Ids draft;
  };
  const Case cases[] = {
      {{}, 4, {}},
      {{1}, 4, {}},
      {{1, 1}, 4, {}},
      {{1, 2, 3, 4, 5}, 4, {}},
      {{1, 2, 3, 1, 9}, 4, {}},
      {{1, 2, 3, 4, 5, 1, 2}, 3, {3, 4, 5}},
      {{1, 2, 3, 4, 5, 1, 2}, 1, {3}},
      // The last place counts, unless an earlier one has more in common.
      {{1, 2, 3, 1, 2, 4, 1, 2}, 1, {4}},
      {{8, 1, 2, 3, 1, 2, 4, 8, 1, 2}, 1, {3}},
      {{7, 8, 1, 2, 3, 9, 8, 1, 2, 4, 7, 8, 1, 2}, 1, {3}},
      {{6, 7, 8, 1, 2, 3, 5, 7, 8, 1, 2, 4, 6, 7, 8, 1, 2}, 1, {4}},
      // A text that repeats itself goes on doing so.
      {{1, 2, 3, 1, 2}, 7, {3, 1, 2, 3, 1, 2, 3}},
      {{4, 4, 4}, 3, {4, 4, 4}},
  };
  for (const Case& each : cases) EXPECT_EQ(draft_tokens(each.text, each.most), each.draft) << &each - cases;
}

TEST(Drafts, PauseLongerWhileTheyAreWrong) {
  DraftPace pace;
  const auto pause = [&] {
    int64_t steps = 0;
    while (!pace.is_due()) ++steps;
    return steps;
  };
  EXPECT_EQ(pause(), 0);
  for (const int64_t want : {1, 2, 4, 8, 16, 32, 32}) {
    pace.note(0);
    EXPECT_EQ(pause(), want);
    EXPECT_EQ(pause(), 0) << "one pause after each";
  }
  pace.note(1);
  EXPECT_EQ(pause(), 0);
  pace.note(0);
  EXPECT_EQ(pause(), 1);
}

// Requests whose texts repeat themselves, and one whose text does not. They are greedy and draw, have
// penalties, constraints, and stop ids that drafts hold.
std::vector<GenerationRequest> repeating_requests() {
  testing::Random random(12);
  std::vector<GenerationRequest> requests;
  const auto add = [&](Ids beginning, int64_t times, double temperature) -> GenerateOptions& {
    Ids prompt;
    for (; times > 0; --times) prompt.insert(prompt.end(), beginning.begin(), beginning.end());
    requests.push_back(request_of(std::move(prompt), 70, requests.size()));
    requests.back().options.sampling.temperature = temperature;
    return requests.back().options;
  };
  add({3, 4, 5, 6}, 6, 0.0);
  add({9, 8, 7}, 9, 0.6);
  add({11, 12, 13, 14, 15}, 3, 1.2).sampling.repetition_penalty = 1.1;
  add({1, 2, 1, 3}, 2, 1.0).constraint = letters_constraint("(AB(C|D)[E-H]?)*");
  add({20, 21, 22}, 5, 0.8).stop_ids = {5, 20};
  GenerateOptions& penalised = add({17, 18, 17, 19}, 4, 0.5);
  penalised.sampling.frequency_penalty = 0.05;
  penalised.biases = {{{17, 1.0}}, 30, {{18, 19, 17}}};
  penalised.stop_ids = {18};
  add(random_ids(random, 40), 1, 2.0);
  add({25}, 40, 0.0);
  return requests;
}

TEST(Drafts, LeaveTheAnswersAsTheyAre) {
  const auto whole = small_model(), windowed = small_model(true, at::kDouble, kHost, {0, 20});
  const GeneratorOptions
      all_at_once = {.max_batch = 8},
      one_by_one = {.max_batch = 1},
      put_back = {.max_batch = 4, .max_cache_tokens = 192, .max_prefills = 1, .max_part_tokens = 16},
      shared = {.max_batch = 3, .max_cache_tokens = 640, .max_prefills = 1, .shares_pages = true};
  struct Case {
    std::shared_ptr<models::CausalLM> model;
    GeneratorOptions options;
    int64_t most;
  };
  const Case cases[] = {{whole, all_at_once, 1},
                        {whole, one_by_one, 15},
                        {whole, put_back, 4},
                        {whole, shared, 5},
                        {windowed, put_back, 3}};
  for (const Case& each : cases) {
    SCOPED_TRACE(&each - cases);
    EXPECT_EQ(why_no_drafts(*each.model), "");
    const Outcome want = run(*each.model, each.options, repeating_requests());
    EXPECT_EQ(want.counts.drafts, 0);
    GeneratorOptions options = each.options;
    options.max_draft_tokens = each.most;
    const Outcome got = run(*each.model, options, repeating_requests());
    expect_near(got, want);
    EXPECT_EQ(got.counts.preemptions > 0, options.max_cache_tokens == 192);
    EXPECT_GT(got.counts.accepted_tokens, 60);
    EXPECT_GT(got.counts.drafted_tokens, got.counts.accepted_tokens);
    EXPECT_LE(got.counts.drafted_tokens, each.most * got.counts.drafts);
  }
}

TEST(Drafts, MakeSeveralTokensInAStepAndFewWhereTheyAreWrong) {
  const auto model = small_model();
  const auto steps_of = [&](double temperature, int64_t most) {
    Generator generator(*model, {.max_batch = 1, .max_draft_tokens = most});
    GenerationRequest request = request_of({3, 4, 3, 4, 3, 4}, 200, 3);
    request.options.sampling = {.temperature = temperature};
    const int64_t number = generator.add(request);
    int64_t steps = 0;
    while (generator.step()) ++steps;
    EXPECT_EQ(generator.take(number).value().token_ids.size(), 200U);
    EXPECT_EQ(generator.times().decode_tokens, 199);
    return std::pair{steps, generator.counts().drafts};
  };
  EXPECT_EQ(steps_of(0.0, 0).first, 199);
  EXPECT_LT(steps_of(0.0, 4).first, 180);
  EXPECT_LT(steps_of(30.0, 4).second, 60);
}

// A callback may end its own request and others, also in the middle of a draft.
TEST(Drafts, EndWithTheirRequests) {
  const auto model = small_model();
  GenerationRequest request = request_of({25, 25, 25, 25}, 60, 1);
  request.options.sampling = {};
  const Ids want = generate(*model, request.prompt, request.options).token_ids;
  for (const size_t last : {8, 9, 10, 11, 12}) {
    Generator generator(*model, {.max_batch = 3, .max_draft_tokens = 4});
    GenerationRequest stopping = request;
    int64_t other = -1;
    size_t count = 0;
    stopping.options.on_token = [&](int64_t) {
      if (++count == last) generator.cancel(other);
      return count < last + 3;
    };
    const int64_t own = generator.add(stopping);
    other = generator.add(request);
    const int64_t third = generator.add(request);
    while (generator.step()) {
    }
    const Generation mine = generator.take(own).value(), cancelled = generator.take(other).value();
    EXPECT_EQ(mine.token_ids, Ids(want.begin(), want.begin() + static_cast<int64_t>(last) + 3));
    EXPECT_EQ(mine.reason, FinishReason::Callback);
    EXPECT_EQ(cancelled.reason, FinishReason::Callback);
    EXPECT_GE(cancelled.token_ids.size() + 5, last);
    EXPECT_LE(cancelled.token_ids.size(), last + 5);
    EXPECT_EQ(generator.take(third).value().token_ids, want);
    EXPECT_EQ(generator.cache().used_pages(), 0);
  }
}

TEST(Drafts, AreNotMadeForModelsThatCannotGoBack) {
  const std::pair<std::shared_ptr<models::CausalLM>, const char*> all[] = {
      {small_model(false, at::kDouble, kHost, {70, 20}), "window"}, {hybrid_model(), "state"}};
  for (const auto& [model, part] : all) {
    EXPECT_NE(why_no_drafts(*model).find(part), std::string::npos);
    GeneratorOptions options = {.max_batch = 2};
    std::vector<GenerationRequest> requests = {request_of({3, 4, 3, 4, 3, 4}, 30, 1)};
    const Outcome want = run(*model, options, requests);
    options.max_draft_tokens = 4;
    const Outcome got = run(*model, options, requests);
    expect_near(got, want);
    EXPECT_EQ(got.counts.drafts, 0);
  }
}

}  // namespace
}  // namespace tessera::generation

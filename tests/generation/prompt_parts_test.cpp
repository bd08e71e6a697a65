// Tests of the order in which a Generator reads prompts that are longer than a part.
#include <gtest/gtest.h>

#include "tessera/generation/generate.h"

#include "tests/generation/generator_runs.h"
#include "tests/models/small_model.h"

namespace tessera::generation {
namespace {

using models::small_model;

constexpr int64_t kPage = nn::KvCache::kPageTokens, kPart = kPage;

// Counts the steps until requests have their first tokens, while a stream runs.
class Steps {
 public:
  explicit Steps(int64_t pages = 0, bool shares = false)
      : generator_(*model_, {.max_batch = 16,
                             .max_cache_tokens = pages * kPage,
                             .max_prefills = 1,
                             .max_part_tokens = kPart,
                             .shares_pages = shares}) {
    add(1, 4000);
    step();
  }

  // Adds a request with a prompt of so many random tokens, or this one, and returns its number.
  size_t add(int64_t size, int64_t max_new_tokens = 1) {
    return add(random_ids(random_, size), max_new_tokens);
  }
  size_t add(const std::vector<int64_t>& prompt, int64_t max_new_tokens = 1) {
    const size_t number = waited_.size();
    waited_.push_back(0);
    is_told_.push_back(false);
    GenerationRequest request = request_of(prompt, max_new_tokens, number);
    request.options.on_token = [this, number](int64_t) { return is_told_[number] = true; };
    generator_.add(std::move(request));
    return number;
  }
  void step() {
    ASSERT_TRUE(generator_.step());
    for (size_t i = 0; i < waited_.size(); ++i) waited_[i] += is_told_[i] ? 0 : 1;
  }
  bool is_told(size_t number) const { return is_told_[number]; }
  // Returns the number of steps that a request has waited, not counting that which gave its first token.
  int64_t waited(size_t number) const { return waited_[number]; }
  const Generator& generator() const { return generator_; }

 private:
  std::shared_ptr<models::CausalLM> model_ = small_model();
  testing::Random random_{3};
  std::vector<int64_t> waited_;
  std::deque<bool> is_told_;
  Generator generator_;
};

TEST(PromptParts, WhoeverHasLeastToReadGoesFirst) {
  Steps steps;
  const size_t huge = steps.add(60 * kPart);
  steps.step();
  const size_t large = steps.add(4 * kPart);
  steps.step();
  const size_t small = steps.add(5), middle = steps.add(2 * kPart);
  while (!steps.is_told(huge)) steps.step();
  EXPECT_EQ(steps.waited(small), 0) << "a prompt of one pass waits for no part";
  EXPECT_LE(steps.waited(middle), 3);
  EXPECT_LE(steps.waited(large), 3 + 2 + 3);
  // Far from its beginning a prompt is read in smaller parts only where these have the rows for blocks.
  EXPECT_EQ(steps.waited(huge), 59 + 4 + 1 + 2) << "a pass for each part of the others, and no more";
}

TEST(PromptParts, NoPromptWaitsForEver) {
  Steps steps;
  constexpr int64_t kParts = 12;
  const size_t huge = steps.add(kParts * kPart), large = steps.add(kParts * kPart - 1);
  // A short prompt comes in each step, and one of three parts whenever the last one has been read.
  size_t short_one = 0, middle = steps.add(3 * kPart);
  int64_t longest = 0;
  for (int64_t count = 0; !steps.is_told(huge) || !steps.is_told(large); ++count) {
    ASSERT_LT(count, 4 * 4 * 2 * kParts);
    if (count > 0) longest = std::max(longest, steps.waited(short_one));
    if (steps.is_told(middle)) middle = steps.add(3 * kPart);
    short_one = steps.add(4);
    steps.step();
  }
  EXPECT_LE(longest, 1) << "a short prompt waits for one part at most";
}

// Parts that end early do not change what a prompt shares, and requests that begin alike wait for each other.
TEST(PromptParts, EqualPromptsAreReadOnce) {
  Steps steps(200, true);
  testing::Random random(4);
  const std::vector<int64_t> prompt = random_ids(random, 10 * kPart + 3);
  const int64_t before = steps.generator().times().prefill_tokens;
  const size_t first = steps.add(prompt), second = steps.add(prompt), other = steps.add(3 * kPart);
  while (!steps.is_told(second) || !steps.is_told(first)) steps.step();
  EXPECT_LT(steps.waited(other), 7) << "it does not wait behind a request that waits for pages";
  EXPECT_EQ(steps.generator().times().prefill_tokens - before, 10 * kPart + 3 + 3 + 3 * kPart);
}

// A text whose later parts are smaller has the same bits with pages of another request, and the same answer.
TEST(PromptParts, SmallerPartsLeaveTheBitsOfSharedPages) {
  const auto model = small_model(false, at::kFloat);
  testing::Random random(5);
  std::vector<GenerationRequest> requests;
  const std::vector<int64_t> beginning = random_ids(random, 300);
  for (const int64_t kept : {300, 290, 200, 100}) {
    std::vector<int64_t> prompt(beginning.begin(), beginning.begin() + kept);
    const std::vector<int64_t> own = random_ids(random, 7);
    prompt.insert(prompt.end(), own.begin(), own.end());
    requests.push_back(request_of(prompt, 9, requests.size()));
  }
  GeneratorOptions options = {.max_batch = 4,
                              .max_cache_tokens = 64 * kPage,
                              .max_prefill_tokens = 1,
                              .max_prefills = 1,
                              .max_part_tokens = 2 * kPage};
  const Outcome want = run(*model, options, requests);
  options.shares_pages = true;
  const Outcome got = run(*model, options, requests);
  EXPECT_GT(got.counts.found_tokens, 0);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(got.told[i], want.told[i]) << "request " << i;
}

}  // namespace
}  // namespace tessera::generation

#include "tessera/generation/session.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/generation/generate.h"
#include "tessera/peft/adapter_files.h"

#include "tests/models/reference_models.h"
#include "tests/models/small_model.h"
#include "tests/testing/paths.h"
#include "tests/testing/random.h"

namespace tessera::generation {
namespace {

using namespace models;
using Ids = std::vector<int64_t>;

GenerateOptions endless(int64_t max_new_tokens) {
  GenerateOptions options;
  options.stop_ids = {-1};
  options.max_new_tokens = max_new_tokens;
  return options;
}

Ids joined(Ids first, const Ids& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Ids random_ids(testing::Random& random, int64_t count) {
  Ids ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(random.in(0, 30));
  return ids;
}

// Follows a Session with the tokens that it should hold. In float64 its answers are those of generate():
// rounding is far below the distance of any two logits.
struct Follower {
  CausalLM& model;
  Session session{model};
  Ids held = {};

  int64_t common(const Ids& prompt) const {
    return std::ranges::mismatch(Ids(prompt.begin(), prompt.end() - 1), held).in2 - held.begin();
  }
  // Compares an answer with that to the whole prompt, and returns it.
  Ids answer(const Ids& prompt, const GenerateOptions& options) {
    const Generation want = generate(model, prompt, options), got = session.answer(prompt, options);
    EXPECT_EQ(got.token_ids, want.token_ids);
    EXPECT_EQ(got.reason, want.reason);
    held = joined(prompt, got.token_ids);
    // The model is not fed the last token, unless it chose a stop id behind it.
    if (got.reason != FinishReason::Stop) held.pop_back();
    return got.token_ids;
  }
};

// The virtual tokens of a prompt adapter stand in the cache before the tokens that the session counts.
TEST(Session, KeepsVirtualTokens) {
  testing::Random random;
  const auto model = load_reference_model("llama3", at::kDouble);
  peft::load_adapter(*model, testing::source_folder() + "/tests/reference/data/adapters/prompt_initial");
  Follower follower{*model};
  Ids prompt = random_ids(random, 9);
  for (int turn = 0; turn < 3; ++turn) {
    const Ids answer = follower.answer(prompt, endless(6));
    if (turn > 0) {
      EXPECT_LT(follower.session.num_fed(), std::ssize(prompt));
    }
    prompt = joined(joined(prompt, answer), random_ids(random, 4));
  }
  prompt.resize(5);
  follower.answer(prompt, endless(6));
  prompt[0] = 30 - prompt[0];
  follower.answer(prompt, endless(6));
}

TEST(Session, AnswersAreThoseToTheWholeConversation) {
  testing::Random random;
  for (const double penalty : {1.0, 1.3}) {
    for (const double temperature : {0.0, 1.5}) {
      const auto model = small_model();
      Follower follower{*model};
      Ids prompt = random_ids(random, 20);
      for (uint64_t turn = 0; turn < 8; ++turn) {
        GenerateOptions options = endless(random.in(1, 40));
        options.stop_ids = {random.in(0, 30)};
        options.sampling = {.temperature = temperature,
                            .top_p = 0.95,
                            .repetition_penalty = penalty,
                            .seed = 4,
                            .sequence = turn};
        const int64_t kept = follower.common(prompt);
        const Ids answer = follower.answer(prompt, options);
        EXPECT_EQ(follower.session.num_fed(), std::ssize(prompt) - kept) << "turn " << turn;
        prompt = joined(prompt, answer);
        // A template may write the end of an answer in other tokens; a prompt may also come again as it was.
        prompt.resize(static_cast<size_t>(std::max<int64_t>(1, std::ssize(prompt) - random.in(0, 12))));
        if (random.in(0, 4) > 0) prompt = joined(prompt, random_ids(random, random.in(1, 50)));
      }
    }
  }
}

TEST(Session, FeedsOnlyWhatIsNew) {
  const auto model = small_model();
  Session session(*model);
  const Ids first = {1, 2, 3, 4, 5}, more = {6, 7, 8};
  const Ids answer = session.answer(first, endless(10)).token_ids;
  EXPECT_EQ(session.num_fed(), 5);
  // The last token of the answer was not fed yet.
  const Ids second = joined(joined(first, answer), more);
  const Generation got = session.answer(second, endless(10));
  EXPECT_EQ(session.num_fed(), 1 + 3);
  EXPECT_EQ(got.token_ids, generate(*model, second, endless(10)).token_ids);
  EXPECT_EQ(session.answer(second, endless(10)).token_ids, got.token_ids);
  EXPECT_EQ(session.num_fed(), 1) << "the logits of the last token are needed";
  session.reset();
  EXPECT_EQ(session.cache().used_pages(), 0);
  EXPECT_EQ(session.answer(second, endless(10)).token_ids, got.token_ids);
  EXPECT_EQ(session.num_fed(), std::ssize(second));
}

TEST(Session, DraftsLeaveAnswersAndKeepWholePages) {
  const auto model = small_model();
  Session session(*model, {comm::Communicator::single(), {}}, {.max_draft_tokens = 6});
  Ids prompt = {1, 2, 3, 1, 2, 3, 1, 2};
  int64_t held = 0;
  for (int turn = 0; turn < 5; ++turn) {
    const Generation got = session.answer(prompt, endless(60));
    EXPECT_EQ(got.token_ids, generate(*model, prompt, endless(60)).token_ids);
    EXPECT_EQ(session.num_fed(), std::ssize(prompt) - held) << "turn " << turn;
    prompt = joined(prompt, got.token_ids);
    held = (std::ssize(prompt) - 1) / nn::KvCache::kPageTokens * nn::KvCache::kPageTokens;
    prompt = joined(prompt, {5, 6, 7});
  }
  EXPECT_GT(session.counts().accepted_tokens, 0);
  session.reset();
  EXPECT_EQ(session.counts().drafts, 0);
  prompt.resize(40);
  session.answer(prompt, endless(2));
  EXPECT_EQ(session.num_fed(), 40);
}

TEST(Session, StartsAnewWhereAWindowHasDroppedTheBeginning) {
  testing::Random random;
  // If any layer of the stage sees everything, everything is there.
  for (const auto& [windows, drops] :
       std::vector<std::pair<Ids, bool>>{{{40, 40}, true}, {{40, 0}, false}, {{33, 50}, true}}) {
    const auto model = small_model(false, at::kDouble, kHost, windows);
    Follower follower{*model};
    const Ids beginning = random_ids(random, 90);
    Ids prompt = joined(beginning, follower.answer(beginning, endless(70)));
    prompt = joined(prompt, random_ids(random, 5));
    follower.answer(prompt, endless(20));
    EXPECT_EQ(follower.session.num_fed(), 1 + 5) << "nothing was cut";
    prompt = joined(beginning, random_ids(random, 5));
    const int64_t kept = drops ? 0 : follower.common(prompt);
    follower.answer(prompt, endless(20));
    EXPECT_EQ(follower.session.num_fed(), std::ssize(prompt) - kept);
    prompt = random_ids(random, 20);
    follower.answer(prompt, endless(20));
  }
}

TEST(Session, ReferenceModelsAnswerAlike) {
  testing::Random random;
  for (const std::string family : {"mistral_sliding", "qwen3_sliding", "mixtral", "gpt2", "llama_yarn"}) {
    SCOPED_TRACE(family);
    const auto model = load_reference_model(family, at::kDouble);
    model->eval();
    Follower follower{*model};
    Ids prompt = random_ids(random, 9);
    for (int turn = 0; turn < 4 && prompt.size() < 30; ++turn) {
      const Ids answer = follower.answer(prompt, endless(6));
      prompt = joined(joined(prompt, answer), random_ids(random, 3));
    }
  }
}

TEST(Session, AnInterruptKeepsAndAnErrorEmptiesIt) {
  const auto model = small_model();
  Follower follower{*model};
  const Ids prompt = {1, 2, 3, 4, 5, 6, 7};
  GenerateOptions interrupted = endless(10);
  // Ends the answer of the session and that of generate().
  interrupted.on_token = [calls = 0](int64_t) mutable { return ++calls % 3 != 0; };
  const Ids three = follower.answer(prompt, interrupted);
  ASSERT_EQ(three.size(), 3U);
  const Ids next = joined(joined(prompt, three), {8, 9});
  follower.answer(next, endless(5));
  EXPECT_EQ(follower.session.num_fed(), 3);

  // A refusal changes nothing.
  EXPECT_THROW(follower.session.answer({}, endless(5)), Error);
  EXPECT_THROW(follower.session.answer({31}, endless(5)), Error);
  EXPECT_TRUE(follower.session.answer({1}, endless(0)).token_ids.empty());
  follower.answer(joined(next, {1}), endless(5));
  EXPECT_EQ(follower.session.num_fed(), 1);

  GenerateOptions failing = endless(5);
  failing.on_token = [](int64_t) -> bool { throw Error(ErrorKind::Storage, "TEST", "no more"); };
  EXPECT_THROW(follower.session.answer(next, failing), Error);
  EXPECT_EQ(follower.session.cache().used_pages(), 0);
  follower.answer(next, endless(5));
  EXPECT_EQ(follower.session.num_fed(), std::ssize(next));
}

TEST(Session, EndsWhereThePositionsDo) {
  const auto model = load_reference_model("mistral", at::kDouble);
  model->eval();
  const int64_t bound = model->config().generation_bound.value().tokens;
  testing::Random random;
  Follower follower{*model};
  Ids prompt = random_ids(random, bound - 20);
  prompt = joined(joined(prompt, follower.answer(prompt, endless(5))), random_ids(random, 4));
  const Ids answer = follower.answer(prompt, endless(1000));
  EXPECT_EQ(std::ssize(prompt) + std::ssize(answer), bound + 1);
  EXPECT_THROW(follower.session.answer(joined(prompt, answer), endless(1)), Error);
  follower.answer(prompt, endless(1000));
  EXPECT_EQ(follower.session.num_fed(), 1);
}

}  // namespace
}  // namespace tessera::generation

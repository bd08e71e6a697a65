#include "tessera/data/steps_ahead.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "tessera/core/error.h"

namespace tessera::data {
namespace {

// A source of steps that have as many tokens as their number; getting step `fails_at` throws.
class Numbers : public StepSource {
 public:
  explicit Numbers(std::atomic<int64_t>& made, int64_t fails_at = -1) : made_(made), fails_at_(fails_at) {}

  Step next_step() override {
    if (at_ == fails_at_) throw Error(ErrorKind::Data, "BAD", "no such step");
    Step step;
    step.tokens = at_++;
    step.next = cursor();
    ++made_;
    return step;
  }
  Cursor cursor() const override { return {0, at_}; }
  void seek(const Cursor& cursor, bool) override { at_ = cursor.sample; }
  std::vector<std::string> datasets() const override { return {""}; }
  int64_t samples_per_step() const override { return 1; }
  int64_t steps_per_epoch() const override { return 0; }

 private:
  std::atomic<int64_t>& made_;
  int64_t at_ = 0, fails_at_;
};

TEST(StepsAhead, GivesTheStepsOfTheSourceAndTheirCursors) {
  std::atomic<int64_t> made = 0;
  StepsAhead ahead(std::make_unique<Numbers>(made), 3);
  for (int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(ahead.cursor().sample, i) << "of the steps given, not of those that lie ready";
    EXPECT_EQ(ahead.next_step().tokens, i);
    EXPECT_LE(made, i + 1 + 4) << "no more lie ready than asked for";
  }
  ahead.seek({0, 17});
  EXPECT_EQ(ahead.cursor().sample, 17);
  EXPECT_EQ(ahead.next_step().tokens, 17);
  EXPECT_EQ(ahead.next_step().tokens, 18);
}

TEST(StepsAhead, MakesThemWhileOthersAreUsed) {
  std::atomic<int64_t> made = 0;
  StepsAhead ahead(std::make_unique<Numbers>(made), 3);
  while (made < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ahead.next_step();
  while (made < 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// More steps are made ahead if they are small.
TEST(StepsAhead, MoreLieReadyWhereTheyAreSmall) {
  const auto made_by = [](size_t depth, int64_t tokens, int64_t used) {
    std::atomic<int64_t> made = 0;
    {
      StepsAhead ahead(std::make_unique<Numbers>(made), depth, tokens);
      for (int64_t i = 0; i < used; ++i) EXPECT_EQ(ahead.next_step().tokens, i);
    }  // the destructor waits until all steps that would lie ready are made
    return made.load();
  };
  EXPECT_EQ(made_by(2, 100, 0), 15) << "0 + 1 + ... + 14 = 105";
  EXPECT_EQ(made_by(2, 100, 10), 18) << "10 + ... + 17 = 108";
  EXPECT_EQ(made_by(2, 100, 99), 101) << "of large ones no fewer than the depth";
  EXPECT_EQ(made_by(2, 1'000'000, 0), 64) << "and no more than that at all";
}

TEST(StepsAhead, AFailureIsThatOfItsStep) {
  std::atomic<int64_t> made = 0;
  StepsAhead ahead(std::make_unique<Numbers>(made, 2), 5);
  EXPECT_EQ(ahead.next_step().tokens, 0);
  EXPECT_EQ(ahead.next_step().tokens, 1);
  EXPECT_THROW(ahead.next_step(), Error);
  EXPECT_THROW(ahead.next_step(), Error) << "it stays";
}

}  // namespace
}  // namespace tessera::data

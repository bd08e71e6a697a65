// Tests that every moment of a step counts once, in the innermost section.
#include "tessera/core/step_clock.h"

#include <thread>

#include <gtest/gtest.h>

namespace tessera {
namespace {

void pass(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

TEST(StepClock, ScopesTakeTheirTimeFromThoseAround) {
  StepClock& clock = StepClock::of_this_thread();
  const auto begin = std::chrono::steady_clock::now();
  clock.restart();
  {
    const SectionScope forward(StepSection::Forward);
    pass(0.02);
    {
      const SectionScope wait(StepSection::Wait);
      pass(0.03);
    }
    pass(0.01);
  }
  pass(0.005);
  const StepTimes times = clock.times();
  const double whole = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const auto of = [&](StepSection section) { return times[static_cast<size_t>(section)]; };
  EXPECT_GE(of(StepSection::Forward), 0.03);
  EXPECT_GE(of(StepSection::Wait), 0.03);
  EXPECT_GE(of(StepSection::Other), 0.005);
  EXPECT_EQ(of(StepSection::Backward), 0.0);
  EXPECT_LE(busy_seconds(times) + of(StepSection::Wait), whole);
  EXPECT_NEAR(busy_seconds(times), of(StepSection::Forward) + of(StepSection::Other), 1e-12);
}

TEST(StepClock, EachThreadHasItsOwn) {
  StepClock::of_this_thread().restart();
  std::thread([] { StepClock::of_this_thread().enter(StepSection::Data); }).join();
  EXPECT_EQ(StepClock::of_this_thread().enter(StepSection::Other), StepSection::Other);
  EXPECT_STREQ(section_name(StepSection::Optimizer), "optimizer");
}

}  // namespace
}  // namespace tessera

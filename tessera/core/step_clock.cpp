#include "tessera/core/step_clock.h"

#include <utility>

namespace tessera {
namespace {

size_t index_of(StepSection section) { return static_cast<size_t>(section); }

}  // namespace

const char* section_name(StepSection section) {
  constexpr std::array<const char*, kNumStepSections> kNames = {"other",     "data", "forward", "backward",
                                                                "optimizer", "wait", "forward"};
  return kNames[index_of(section)];
}

double busy_seconds(const StepTimes& times) {
  double busy = 0.0;
  for (const double seconds : times) busy += seconds;
  return busy - times[index_of(StepSection::Wait)];
}

StepClock& StepClock::of_this_thread() {
  thread_local StepClock clock;
  return clock;
}

void StepClock::restart() {
  times_ = {};
  layers_ = 0;
  since_ = Clock::now();
}

StepTimes StepClock::times() {
  enter(section_);
  return times_;
}

StepSection StepClock::enter(StepSection section) {
  const Clock::time_point now = Clock::now();
  times_[index_of(section_)] += std::chrono::duration<double>(now - since_).count();
  since_ = now;
  return std::exchange(section_, section);
}

}  // namespace tessera

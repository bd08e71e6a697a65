// Measures where the time of a training step goes, as the thread that makes the step sees it.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tessera {

// The sections of a step. Waiting for other ranks is a section of its own, wherever it happens. Layers is the
// part of the forward that is the same in every stage of a pipeline; Forward is the rest.
enum class StepSection : uint8_t { Other, Data, Forward, Backward, Optimizer, Wait, Layers };
inline constexpr size_t kNumStepSections = 7;
using StepTimes = std::array<double, kNumStepSections>;  // seconds of each section

const char* section_name(StepSection section);
// The time of all sections but Wait.
double busy_seconds(const StepTimes& times);

// The clock of one thread. Time that is in no scope counts as Other.
class StepClock {
 public:
  static StepClock& of_this_thread();
  void restart();
  // The time of each section since restart().
  StepTimes times();
  // count_layers() notes layers that were run forward, and layers() gives how many since restart().
  void count_layers(int64_t layers) { layers_ += layers; }
  int64_t layers() const { return layers_; }
  // Makes `section` the one that counts from now on; gives the one before.
  StepSection enter(StepSection section);

 private:
  using Clock = std::chrono::steady_clock;
  StepTimes times_ = {};
  int64_t layers_ = 0;
  StepSection section_ = StepSection::Other;
  Clock::time_point since_ = Clock::now();
};

// Counts the time of a C++ scope, less that of the scopes inside it, for a section.
class SectionScope {
 public:
  explicit SectionScope(StepSection section) : outer_(StepClock::of_this_thread().enter(section)) {}
  ~SectionScope() { StepClock::of_this_thread().enter(outer_); }
  SectionScope(const SectionScope&) = delete;
  SectionScope& operator=(const SectionScope&) = delete;

 private:
  const StepSection outer_;
};

}  // namespace tessera

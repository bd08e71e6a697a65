// The kinds of learning-rate and pipeline schedules, as recipes name them.
#pragma once

namespace tessera {

enum class ScheduleKind {
  Cosine,
  Linear,
  Constant,
  ConstantWithWarmup,
  CosineWithRestarts,
  Polynomial,
  InverseSqrt,
  WarmupStableDecay,
  OneCycle,
  Rex,
  ReduceOnPlateau,
  RangeTest,
  // The three of DeepSpeed follow.
  WarmupLr,
  WarmupDecayLr,
  WarmupCosineLr
};

// How much better a value must be to count as an improvement: by a share of the best value, or by a
// difference.
enum class PlateauMode { Relative, Absolute };

// How a rise or fall between two learning rates bends; Log is for the schedules of DeepSpeed alone.
enum class RampKind { Linear, Cosine, OneMinusSqrt, Log };

inline bool is_of_deepspeed(ScheduleKind kind) {
  return kind == ScheduleKind::WarmupLr || kind == ScheduleKind::WarmupDecayLr ||
         kind == ScheduleKind::WarmupCosineLr;
}

enum class PipelineKind { GPipe, OneFOneB, Interleaved, ZeroBubble };

}  // namespace tessera

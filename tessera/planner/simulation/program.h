// The program of a rank for one step: its activities on streams, as data.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tessera/parallel/pipeline/schedule.h"
#include "tessera/planner/step_parts.h"

namespace tessera::planner {

// The activities of a stream begin in their order, each when the one before has ended.
enum class Stream { Compute, Gather, Reduce, Message, Context };
inline constexpr size_t kNumStreams = 5;
std::string_view stream_name(Stream stream);

enum class Activity {
  Forward,
  Backward,  // the gradients of the input and, if the schedule does not split them, of the weights
  WeightGradient,
  Head,
  Tensor,
  Context,
  Experts,
  Gather,
  Reduce,
  StageMessage,
  GradientNorm,
  Optimizer,
  Offload,
  Host,
};
inline constexpr size_t kNumActivities = 14;
// Returns "forward" or "gather of parameters", say.
std::string_view activity_name(Activity activity);

// The ranks that an activity needs: this one alone, those of an axis, or the next one of the pipeline.
enum class Axis { None, Tensor, Context, Experts, Shards, NearShards, Copies, World, Pipeline };
inline constexpr size_t kNumAxes = 9;

struct Item {
  Activity activity = Activity::Forward;
  Stream stream = Stream::Compute;
  Axis axis = Axis::None;
  int64_t block = -1, micro_batch = -1;  // -1: not of one
  double seconds = 0.0;                  // with Axis::None
  Transfer transfer = {};                // else
  std::vector<int32_t> after = {};  // the items that must have ended, beside the one before in its stream
  std::optional<parallel::Message> receives = {}, sends = {};
};

struct Program {
  std::vector<Item> items;
  // The items of each stream in their order.
  std::array<std::vector<int32_t>, kNumStreams> streams;
};

// Returns the programs of the stages' ranks, by their place in the pipeline. The blocks are dealt as the
// trainer does it, and each rank does its schedule's actions. With ZeRO stage 3 a block's parameters are
// gathered while the block before computes, and at most two blocks are gathered at a time; gradients are
// reduced while the next block computes.
std::vector<Program> make_programs(const StepParts& parts, const Choice& choice, int64_t layers);

}  // namespace tessera::planner

// Options of the collectives.
#pragma once

#include <chrono>
#include <string>

namespace tessera::comm {

enum class ReduceOp { Sum, Max, Min };

// What every collective accepts. A zero timeout means the communicator's default.
struct OpOptions {
  std::chrono::milliseconds timeout{0};
  // What the operation moves, for error messages: "gather of model.layers.3".
  std::string hint;
};

struct AllGatherOptions : OpOptions {};
struct AllToAllOptions : OpOptions {};
struct BroadcastOptions : OpOptions {};
struct BarrierOptions : OpOptions {};
struct SendOptions : OpOptions {};
struct WriteOptions : OpOptions {};
struct ReduceOptions : OpOptions {
  ReduceOp op = ReduceOp::Sum;
};

}  // namespace tessera::comm

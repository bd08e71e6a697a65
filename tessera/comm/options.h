// Options of the collectives.
#pragma once

#include <chrono>
#include <memory>
#include <string>

namespace tessera::comm {

enum class ReduceOp { Sum, Max, Min };

class Work;

// What every operation accepts. A zero timeout means the communicator's default.
struct OpOptions {
  std::chrono::milliseconds timeout{0};
  // What the operation moves, for error messages: "gather of model.layers.3".
  std::string hint;
  // Starts when this one has ended: for an operation on the results of another one, of any group, that nobody
  // waits for in between. It runs also where that one fails, so that no rank is left waiting, and throws its
  // error. Without it, operations of one group run in the order of submission, those of several in any order.
  std::shared_ptr<Work> after = nullptr;
};

struct AllGatherOptions : OpOptions {};
struct AllToAllOptions : OpOptions {};
struct BroadcastOptions : OpOptions {};
struct BarrierOptions : OpOptions {};
struct P2pOptions : OpOptions {};
struct WriteOptions : OpOptions {};
struct ReduceOptions : OpOptions {
  ReduceOp op = ReduceOp::Sum;
};

}  // namespace tessera::comm

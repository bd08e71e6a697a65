// Options of the collectives.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

namespace tessera::comm {

enum class ReduceOp { Sum, Max, Min };

class Work;

// Options that every operation accepts. A timeout of zero means the communicator's default.
struct OpOptions {
  std::chrono::milliseconds timeout{0};
  // Names what the operation moves, for error messages: "gather of model.layers.3".
  std::string hint;
  // The operation starts when `after`, an operation of any group, has ended. It serves an operation on the
  // results of another one for which nobody waits in between. The operation runs also if `after` fails, so
  // that no rank is left waiting, and then throws its error. If no `after` is given, operations of one group
  // run in the order of submission, those of several groups in any order.
  std::shared_ptr<Work> after = nullptr;
};

// Makes the options of an operation that only says what it moves, and after which other one.
inline OpOptions hint(std::string text, std::shared_ptr<Work> after = nullptr) {
  return {{}, std::move(text), std::move(after)};
}

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

// A group of ranks and its collectives.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/options.h"
#include "tessera/comm/scatter_part.h"
#include "tessera/comm/work.h"

namespace tessera::comm {
namespace detail {
class Backend;
class Executor;
class Group;
}  // namespace detail

// Thread safety: operations may be submitted by one thread at a time. All ranks of a group must submit the
// same operations in the same order; an operation is collective unless it says otherwise. Tensors are
// contiguous CPU tensors. With async_op the call returns at once and the tensors belong to the operation
// until Work::wait(); without, the returned work is done. Errors: Error(Peer) from the transport,
// Error(Hang) after the timeout. A group of one rank copies and never touches a transport; ranks that all run
// on one machine exchange data through memory that all of them map (see node_group.h), others through the
// transport. The numbers are the same bits either way.
class Communicator {
 public:
  // A group of this process alone.
  static std::shared_ptr<Communicator> single();
  // For backends and tests.
  explicit Communicator(std::unique_ptr<detail::Backend> backend, std::string name = "world");
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int64_t rank() const;
  int64_t size() const;
  // "world", "dp_shard", ...: for messages.
  const std::string& name() const { return name_; }
  // "mpi", "fake" or "single".
  std::string backend_name() const;
  void set_default_timeout(std::chrono::milliseconds timeout) { default_timeout_ = timeout; }
  // Whether ranks of one machine may use shared memory; true at first. Before the first operation, and the
  // same on all ranks. Groups that are split off inherit it.
  void set_shared_memory(bool is_allowed);

  // output: numel = size() * input's, ordered by rank; same dtype. Input may be this rank's part of output.
  std::shared_ptr<Work> all_gather_single(const at::Tensor& output, const at::Tensor& input,
                                          bool async_op = false, const AllGatherOptions& options = {});
  // The same with pieces of any lengths, also empty: `counts` are the elements of every rank's input, the
  // same on all ranks; output: numel = their sum.
  std::shared_ptr<Work> all_gather_v(const at::Tensor& output, const at::Tensor& input,
                                     std::vector<int64_t> counts, bool async_op = false,
                                     const AllGatherOptions& options = {});
  // input: numel = size() * output's; output gets the reduction of every rank's piece number rank(). The
  // pieces are combined in the order of the ranks, in at least float32, so the result does not depend on
  // timing and is the same bits wherever the piece lies.
  std::shared_ptr<Work> reduce_scatter_single(const at::Tensor& output, const at::Tensor& input,
                                              bool async_op = false, const ReduceOptions& options = {});
  // The same for several tensors in one operation, each cut as it says, in the type `type`; inputs may be of
  // other types.
  std::shared_ptr<Work> reduce_scatter_parts(std::vector<ScatterPart> parts, at::ScalarType type,
                                             bool async_op = false, const ReduceOptions& options = {});
  // In place; the same bits on every rank.
  std::shared_ptr<Work> all_reduce(const at::Tensor& tensor, bool async_op = false,
                                   const ReduceOptions& options = {});
  // output and input: numel divisible by size(); piece i of input goes to rank i.
  std::shared_ptr<Work> all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                                          bool async_op = false, const AllToAllOptions& options = {});
  std::shared_ptr<Work> broadcast(const at::Tensor& tensor, int64_t root, bool async_op = false,
                                  const BroadcastOptions& options = {});
  // Point to point, not collective.
  std::shared_ptr<Work> send(const at::Tensor& tensor, int64_t destination, int tag = 0,
                             bool async_op = false, const SendOptions& options = {});
  std::shared_ptr<Work> recv(const at::Tensor& tensor, int64_t source, int tag = 0, bool async_op = false,
                             const SendOptions& options = {});
  void barrier(const BarrierOptions& options = {});

  // Every rank's string, by rank. For small control data: hashes, error texts, host names.
  std::vector<std::string> all_gather_string(const std::string& text);

  // Memory of the whole group, as bytes: every rank's tensor is the same memory, zeros at first, so that what
  // one rank writes need not be sent to the others. Undefined, on every rank alike, where the ranks do not
  // share a machine, and in a group of one. Collective, and waits. Each rank frees it by itself.
  at::Tensor shared_bytes(int64_t num_bytes);
  // Runs `write` on the communication thread after all ranks have come to this operation; it is done when all
  // ranks' writes are. Orders writes to shared_bytes(): when one rank submits it, it has finished reading
  // what `write` of any rank overwrites. `num_bytes`, of all ranks together, and the hint must be the same on
  // every rank.
  std::shared_ptr<Work> write_shared(int64_t num_bytes, std::function<void()> write, bool async_op = false,
                                     const WriteOptions& options = {});

  // The group of the ranks that gave the same color, ordered by key. Collective.
  std::shared_ptr<Communicator> split(int64_t color, int64_t key, std::string name);

 private:
  Communicator(std::shared_ptr<detail::Group> group, std::shared_ptr<detail::Executor> executor,
               std::string name);
  std::shared_ptr<Work> launch(const char* operation, const OpOptions& options, bool async_op,
                               std::function<void()> body);

  // Shared with the operations in flight, which may outlive this object.
  std::shared_ptr<detail::Group> group_;
  std::shared_ptr<detail::Executor> executor_;  // null for a group of one
  std::string name_;
  std::chrono::milliseconds default_timeout_{600'000};
  int64_t sequence_ = 0;  // number of operations so far, for messages
};

}  // namespace tessera::comm

// A group of ranks and its collectives.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/gather_part.h"
#include "tessera/comm/options.h"
#include "tessera/comm/p2p_op.h"
#include "tessera/comm/scatter_part.h"
#include "tessera/comm/traffic.h"
#include "tessera/comm/work.h"
#include "tessera/core/device.h"

namespace tessera::comm {
namespace detail {
struct Call;
class TensorBackend;
}  // namespace detail

// Thread safety: operations may be submitted by one thread at a time. An operation is collective unless it
// says otherwise: all ranks of a group must submit the same ones in the same order. Groups run independently
// of each other, so the order across groups is free. Tensors are contiguous and lie on device(), or on the
// host. With async_op the call returns at once and the tensors belong to the operation until Work::wait();
// without, the returned work was waited for. On a device, operations take their turn in its streams
// (work.h). Errors: Error(Config) for arguments that do not fit, Error(Peer) from the
// implementation, Error(Hang) after the timeout. A group of one rank copies. What carries the data is below
// detail::TensorBackend.
class Communicator {
 public:
  // A group of this process alone, which computes on `device`; takes tensors on any.
  static std::shared_ptr<Communicator> single(at::Device device = kHost);
  // For implementations and tests.
  explicit Communicator(std::unique_ptr<detail::TensorBackend> backend, std::string name = "world");
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int64_t rank() const;
  int64_t size() const;
  // Where its ranks compute: where the tensors lie that it takes.
  at::Device device() const;
  // "world", "dp_shard", ...: for messages.
  const std::string& name() const { return name_; }
  // Of this rank so far. Not of barriers, strings and the making of groups.
  Traffic traffic() const;
  // The same of this group and of all that were split off it, by their names.
  std::map<std::string, Traffic> traffic_by_group() const;
  // "mpi", "nccl", "fake" or "single".
  std::string backend_name() const;
  // Throws where an operation on a device has failed or hung since, of any group of this process: what was
  // read from the device after such an operation is no result. For who has read.
  void check() const;
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
                                     const std::vector<int64_t>& counts, bool async_op = false,
                                     const AllGatherOptions& options = {});
  // The same for several tensors in one operation.
  std::shared_ptr<Work> all_gather_parts(std::vector<GatherPart> parts, bool async_op = false,
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
  // output and input: same dtype, numel divisible by size(); piece i of input goes to rank i.
  std::shared_ptr<Work> all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                                          bool async_op = false, const AllToAllOptions& options = {});
  // The same with pieces of any lengths, also empty: input holds input_counts[i] elements for rank i, output
  // gets output_counts[i] from it. Error(Peer) on every rank where a rank does not take what another one
  // sends; on a device wait() does not wait for that: wait_host(), check() and later operations throw it.
  std::shared_ptr<Work> all_to_all_v(const at::Tensor& output, const at::Tensor& input,
                                     const std::vector<int64_t>& output_counts,
                                     const std::vector<int64_t>& input_counts, bool async_op = false,
                                     const AllToAllOptions& options = {});
  std::shared_ptr<Work> broadcast(const at::Tensor& tensor, int64_t root, bool async_op = false,
                                  const BroadcastOptions& options = {});
  void barrier(const BarrierOptions& options = {});

  // Issues messages together; not collective. Their other ends may come in any batches and in any order: no
  // message waits for another one, nor for collectives, so ranks that all send to each other cannot block
  // each other, whatever the size. A rank may send to itself: like any message, it ends when its other end
  // was issued. Error(Peer) where the two ends differ in size, on the receiving rank at least.
  std::shared_ptr<Work> batch_p2p(std::vector<P2pOp> ops, bool async_op = false,
                                  const P2pOptions& options = {});
  // One message.
  std::shared_ptr<Work> send(const at::Tensor& tensor, int64_t destination, int tag = 0,
                             bool async_op = false, const P2pOptions& options = {});
  std::shared_ptr<Work> recv(const at::Tensor& tensor, int64_t source, int tag = 0, bool async_op = false,
                             const P2pOptions& options = {});

  // Every rank's string, by rank. For small control data: hashes, error texts, host names.
  std::vector<std::string> all_gather_string(const std::string& text);

  // Memory of the whole group, as bytes: every rank's tensor is the same memory, zeros at first, so that what
  // one rank writes need not be sent to the others. Undefined, on every rank alike, where the ranks share no
  // memory, and in a group of one. Collective, and waits. Each rank frees it by itself.
  at::Tensor shared_bytes(int64_t num_bytes);
  // Runs `write`, on another thread, after all ranks have come to this operation; it is done when all ranks'
  // writes are. Orders writes to shared_bytes(): when one rank submits it, it has finished reading what
  // `write` of any rank overwrites. `num_bytes`, of all ranks together, and the hint must be the same on
  // every rank.
  std::shared_ptr<Work> write_shared(int64_t num_bytes, std::function<void()> write, bool async_op = false,
                                     const WriteOptions& options = {});

  // Memory of device(), as bytes, that this group's operations use without buffers of their own in between.
  // Undefined, on every rank alike, where it has no such memory. Collective, and waits. Each rank frees it by
  // itself. In an operation all ranks must use the same part of what one call gave them.
  at::Tensor registered_bytes(int64_t num_bytes);

  // The group of the ranks that gave the same color, ordered by key. Collective.
  std::shared_ptr<Communicator> split(int64_t color, int64_t key, std::string name);

 private:
  void check_tensors(const char* operation, const at::Tensor& output, const at::Tensor& input) const;
  void check_gather(const char* operation, const GatherPart& part) const;
  // Counts the operation's bytes and waits; waits unless `async_op`.
  std::shared_ptr<Work> submitted(std::shared_ptr<Work> work, double bytes_sent, bool async_op);
  // The part of what all ranks hold together that one of them sends or receives, on average.
  double others_part(int64_t num_bytes) const;
  detail::Call call(const char* operation, const OpOptions& options, int64_t num_bytes = 0);
  // `number` 0: no collective.
  detail::Call describe(const char* operation, int64_t number, const OpOptions& options, int64_t num_bytes,
                        uint64_t peers) const;
  std::shared_ptr<Work> submit_p2p(const char* operation, std::vector<P2pOp> ops, bool async_op,
                                   const P2pOptions& options);

  std::unique_ptr<detail::TensorBackend> backend_;
  std::string name_;
  uint64_t key_ = 1;  // the same on all its ranks, and another one for every other group
  std::shared_ptr<detail::TrafficCount> traffic_ = std::make_shared<detail::TrafficCount>();
  std::chrono::milliseconds default_timeout_{600'000};
  // So far, for messages: apart, since only collectives are as many on every rank.
  int64_t num_collectives_ = 0, num_batches_ = 0;
};

}  // namespace tessera::comm

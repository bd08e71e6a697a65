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
#include "tessera/device/device.h"

namespace tessera::comm {
namespace detail {
struct Call;
class TensorBackend;
}  // namespace detail

// A group of ranks that run collectives and exchange messages.
//
// An operation is collective unless its comment says otherwise: all ranks of a group must submit the same
// operations in the same order. Groups run independently of each other, so the order across groups is free.
// One thread at a time may submit operations.
//
// Tensors are contiguous and lie on device() or on the host. With `async_op` the call returns at once, and
// the tensors belong to the operation until Work::wait(); otherwise the call has waited for the work that it
// returns. On a device, operations take their turn in its streams (work.h).
//
// Errors: Error(Config) for arguments that do not fit, Error(Peer) from the implementation, Error(Hang) after
// the timeout. In a group of one rank, operations copy. A detail::TensorBackend carries the data.
class Communicator {
 public:
  // Makes a group of this process alone, which computes on `device` and takes tensors on any device.
  static std::shared_ptr<Communicator> single(at::Device device = kHost);
  // Wraps `backend`. Only implementations and tests call this.
  explicit Communicator(std::unique_ptr<detail::TensorBackend> backend, std::string name = "world");
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int64_t rank() const;
  int64_t size() const;
  // The device on which this rank computes and on which the tensors of operations lie.
  at::Device device() const;
  // The group's name for error messages: "world", "dp_shard", ...
  const std::string& name() const { return name_; }
  // This rank's traffic in this group so far: bytes sent and time waited, but not for barriers, strings and
  // the making of groups.
  Traffic traffic() const;
  // Gives traffic() of this group and of all groups that were split off it, by their names.
  std::map<std::string, Traffic> traffic_by_group() const;
  // One of "mpi", "nccl", "fake" and "single".
  std::string backend_name() const;
  // Throws if a device operation of any group of this process has failed or hung so far. Call it after values
  // have been read back from the device, since those read after such an operation are not valid.
  void check() const;
  void set_default_timeout(std::chrono::milliseconds timeout) { default_timeout_ = timeout; }
  // Allows or forbids memory shared by the ranks of one machine; it is allowed at first. Call this before the
  // first operation, with the same value on all ranks. Groups that are split off inherit it.
  void set_shared_memory(bool is_allowed);

  // Gathers every rank's `input` into `output`, in the order of the ranks. `output` has size() times the
  // elements of `input`, and the same dtype; `input` may be this rank's part of `output`.
  std::shared_ptr<Work> all_gather_single(const at::Tensor& output, const at::Tensor& input,
                                          bool async_op = false, const AllGatherOptions& options = {});
  // Gathers inputs of any lengths, also empty. `counts` holds the number of elements of every rank's input
  // and is the same on all ranks; `output` has as many elements as their sum.
  std::shared_ptr<Work> all_gather_v(const at::Tensor& output, const at::Tensor& input,
                                     const std::vector<int64_t>& counts, bool async_op = false,
                                     const AllGatherOptions& options = {});
  // Does all_gather_v() for several tensors in one operation.
  std::shared_ptr<Work> all_gather_parts(std::vector<GatherPart> parts, bool async_op = false,
                                         const AllGatherOptions& options = {});
  // Reduces the ranks' inputs and gives each rank one piece: `input` has size() times the elements of
  // `output`, which gets the reduction of piece number rank() of every rank's input. Pieces are combined in
  // the order of the ranks, in at least float32, so the result does not depend on timing and has the same
  // bits wherever the piece lies.
  std::shared_ptr<Work> reduce_scatter_single(const at::Tensor& output, const at::Tensor& input,
                                              bool async_op = false, const ReduceOptions& options = {});
  // Reduces several tensors in one operation, in the type `type`. Each part says how its tensor is cut;
  // outputs are of the type `type`, and inputs may be of other types.
  std::shared_ptr<Work> reduce_scatter_parts(std::vector<ScatterPart> parts, at::ScalarType type,
                                             bool async_op = false, const ReduceOptions& options = {});
  // Reduces `tensor` over the ranks in place; every rank gets the same bits.
  std::shared_ptr<Work> all_reduce(const at::Tensor& tensor, bool async_op = false,
                                   const ReduceOptions& options = {});
  // Sends piece i of `input` to rank i and receives piece i of `output` from it. Both tensors have one dtype
  // and one number of elements, which size() divides.
  std::shared_ptr<Work> all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                                          bool async_op = false, const AllToAllOptions& options = {});
  // Exchanges pieces of any lengths, also empty: `input` holds input_counts[i] elements for rank i, and
  // `output` gets output_counts[i] from it. Throws Error(Peer) on every rank if a rank does not take what
  // another one sends. On a device wait() does not wait for that comparison: wait_host(), check() and later
  // operations throw its error.
  std::shared_ptr<Work> all_to_all_v(const at::Tensor& output, const at::Tensor& input,
                                     const std::vector<int64_t>& output_counts,
                                     const std::vector<int64_t>& input_counts, bool async_op = false,
                                     const AllToAllOptions& options = {});
  std::shared_ptr<Work> broadcast(const at::Tensor& tensor, int64_t root, bool async_op = false,
                                  const BroadcastOptions& options = {});
  void barrier(const BarrierOptions& options = {});

  // Issues several messages together; not collective. The other ends may be issued in any batches and in any
  // order: no message waits for another one, nor for collectives, so ranks that all send to each other cannot
  // block each other, whatever the size. A rank may send to itself; such a message, too, ends when its other
  // end was issued. Throws Error(Peer), on the receiving rank at least, if the two ends of a message differ
  // in size.
  std::shared_ptr<Work> batch_p2p(std::vector<P2pOp> ops, bool async_op = false,
                                  const P2pOptions& options = {});
  // send() and recv() issue one message each, as batch_p2p() does.
  std::shared_ptr<Work> send(const at::Tensor& tensor, int64_t destination, int tag = 0,
                             bool async_op = false, const P2pOptions& options = {});
  std::shared_ptr<Work> recv(const at::Tensor& tensor, int64_t source, int tag = 0, bool async_op = false,
                             const P2pOptions& options = {});

  // Gives every rank's string, in the order of the ranks; waits. It is meant for small control data: hashes,
  // error texts, host names.
  std::vector<std::string> all_gather_string(const std::string& text);

  // Makes memory that all ranks of the group share, as a tensor of bytes [num_bytes], zeros at first; what
  // one rank writes there need not be sent to the others. Undefined, on every rank alike, if the ranks share
  // no memory or the group has one rank. Collective, and waits. Each rank frees its tensor by itself.
  at::Tensor shared_bytes(int64_t num_bytes);
  // Runs `write`, on another thread, after all ranks have come to this operation, which is done when the
  // writes of all ranks are. It orders writes to shared_bytes(): before a rank submits it, that rank must
  // have finished reading what the `write` of any rank overwrites. `num_bytes`, which counts all ranks'
  // writes together, and the hint must be the same on every rank.
  std::shared_ptr<Work> write_shared(int64_t num_bytes, std::function<void()> write, bool async_op = false,
                                     const WriteOptions& options = {});

  // Makes memory of device(), as a tensor of bytes [num_bytes], which operations of this group use without
  // buffers of their own in between. Undefined, on every rank alike, if the group has no such memory.
  // Collective, and waits. Each rank frees its tensor by itself. In one operation all ranks must use the same
  // part of what one call gave them.
  at::Tensor registered_bytes(int64_t num_bytes);

  // Makes the group of the ranks that gave the same `color`, ordered by `key` and then by rank. Collective,
  // and waits. A caller that knows how many these ranks are says so in `size`; dry groups (dry_backend.h)
  // need that.
  std::shared_ptr<Communicator> split(int64_t color, int64_t key, std::string name, int64_t size = 0);

 private:
  void check_tensors(const char* operation, const at::Tensor& output, const at::Tensor& input) const;
  void check_gather(const char* operation, const GatherPart& part) const;
  // Counts the operation's bytes, has its waits counted, and waits for it unless `async_op`.
  std::shared_ptr<Work> submitted(std::shared_ptr<Work> work, double bytes_sent, bool async_op);
  // Gives (size() - 1) / size() of `num_bytes`: what one rank sends, on average, when the ranks exchange so
  // much together.
  double others_part(int64_t num_bytes) const;
  // Counts one more collective and describes it.
  detail::Call call(const char* operation, const OpOptions& options, int64_t num_bytes = 0);
  // Describes an operation and notes its begin in the flight recorder. `number` is that of the collective, 0
  // for messages; `peers` is as in flight::Operation.
  detail::Call describe(const char* operation, int64_t number, const OpOptions& options, int64_t num_bytes,
                        uint64_t peers) const;
  std::shared_ptr<Work> submit_p2p(const char* operation, std::vector<P2pOp> ops, bool async_op,
                                   const P2pOptions& options);

  std::unique_ptr<detail::TensorBackend> backend_;
  std::string name_;
  uint64_t key_ = 1;  // identifies the group: the same on all its ranks, another one for every other group
  std::shared_ptr<detail::TrafficCount> traffic_ = std::make_shared<detail::TrafficCount>();
  std::chrono::milliseconds default_timeout_{600'000};
  // Operations submitted so far, which their descriptions name. Batches of messages are counted apart,
  // because only collectives are as many on every rank.
  int64_t num_collectives_ = 0, num_batches_ = 0;
};

}  // namespace tessera::comm

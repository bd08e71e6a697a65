// The interface below a communicator: the operations of a group of ranks, on tensors.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/gather_part.h"
#include "tessera/comm/options.h"
#include "tessera/comm/p2p_op.h"
#include "tessera/comm/scatter_part.h"
#include "tessera/comm/work.h"

namespace tessera::comm::detail {

// An operation as Communicator describes it to an implementation, apart from its tensors.
struct Call {
  std::string description;  // for errors: the operation, its number, the group, the rank and the hint
  std::string hint;
  std::chrono::milliseconds timeout{0};  // after which Work::wait() throws Error(Hang)
  std::shared_ptr<Work> after;           // see OpOptions; may be null
  int64_t place = -1;                    // in the flight recorder; -1: none
};

// [Note: implementations] HostBackend moves host memory, by MPI, between threads, or through memory that
// ranks share. NcclBackend also moves memory of CUDA devices. make_single_backend() gives a group of one.
// Each brings its own reductions, order of execution and Work. Communicator has checked all arguments; an
// operation starts, and returns its Work. Collectives of one group run in the order of submission,
// independently of other groups: if each group's own order is the same on its ranks, no order across groups
// may deadlock. Messages are not ordered with the collectives, and a batch never waits for another.
class TensorBackend {
 public:
  virtual ~TensorBackend() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  virtual std::string name() const = 0;
  // The device on which the tensors lie that it takes.
  virtual at::Device device() const = 0;
  // Throws Error(Config) if an operation cannot take the tensor. This implementation wants it contiguous and
  // on device().
  virtual void check_tensor(const at::Tensor& tensor, std::string_view operation) const;
  // Throws the error that has ended operations behind their callers' backs, if any.
  virtual void check() const {}

  // The operations below have the contracts of Communicator's.
  virtual std::shared_ptr<Work> all_gather(const Call& call, std::vector<GatherPart> parts) = 0;
  virtual std::shared_ptr<Work> reduce_scatter(const Call& call, std::vector<ScatterPart> parts,
                                               at::ScalarType type, ReduceOp op) = 0;
  virtual std::shared_ptr<Work> all_reduce(const Call& call, const at::Tensor& tensor, ReduceOp op) = 0;
  // Empty counts mean pieces of equal lengths.
  virtual std::shared_ptr<Work> all_to_all(const Call& call, const at::Tensor& output,
                                           const at::Tensor& input, const std::vector<int64_t>& output_counts,
                                           const std::vector<int64_t>& input_counts) = 0;
  virtual std::shared_ptr<Work> broadcast(const Call& call, const at::Tensor& tensor, int64_t root) = 0;
  virtual std::shared_ptr<Work> batch_p2p(const Call& call, std::vector<P2pOp> ops) = 0;
  virtual std::shared_ptr<Work> barrier(const Call& call) = 0;

  // Allows or forbids memory that ranks share; it is allowed at first.
  virtual void set_shared_memory(bool is_allowed) {}
  // Waits. Undefined, on every rank alike, if the ranks share no memory; then write_shared() is never called.
  virtual at::Tensor shared_bytes(const Call& call, int64_t num_bytes) { return at::Tensor(); }
  // Waits. Undefined, on every rank alike, if there is no such memory, as in this implementation.
  virtual at::Tensor registered_bytes(const Call& call, int64_t num_bytes);
  virtual std::shared_ptr<Work> write_shared(const Call& call, int64_t num_bytes,
                                             std::function<void()> write);

  // Makes the backend of the ranks that gave the same `color`; waits. `size`: how many these are, for an
  // implementation that cannot ask them; 0 if the caller does not know.
  virtual std::unique_ptr<TensorBackend> split(const Call& call, int64_t color, int64_t key,
                                               int64_t size) = 0;
};

}  // namespace tessera::comm::detail

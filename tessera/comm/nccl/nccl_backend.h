// Groups of ranks that exchange the memory of their devices, by NCCL.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "tessera/comm/host/host_backend.h"
#include "tessera/comm/nccl/nccl_group.h"
#include "tessera/comm/tensor_backend.h"

namespace tessera::comm::detail {

class NcclMessages;

// [Note: two ways at once]
// A group of devices is also a group of the processes that drive them, `host`. Tensors on the host, strings,
// barriers and the making of groups go there, as does what ranks tell each other of their messages; a barrier
// thus says where the processes are, not their devices. Tensors on the device go by NCCL, as bytes. Sums are
// taken here, in the order of the ranks, of pieces that were exchanged: as many bytes as a reduce-scatter
// sends, and the host's bits.
class NcclBackend : public TensorBackend {
 public:
  // Collective over the ranks of `host`, of which each has a device of its own; waits. `start`: what errors
  // call that, and for how long.
  NcclBackend(std::unique_ptr<HostBackend> host, NcclContext context, const Call& start);
  ~NcclBackend() override;

  int64_t rank() const override { return host_->rank(); }
  int64_t size() const override { return host_->size(); }
  std::string name() const override { return "nccl"; }
  at::Device device() const override { return context_.device; }
  // Takes those on the host too.
  void check_tensor(const at::Tensor& tensor, std::string_view operation) const override;
  void check() const override { context_.watchdog->check(); }

  std::shared_ptr<Work> all_gather(const Call& call, std::vector<GatherPart> parts) override;
  std::shared_ptr<Work> reduce_scatter(const Call& call, std::vector<ScatterPart> parts, at::ScalarType type,
                                       ReduceOp op) override;
  std::shared_ptr<Work> all_reduce(const Call& call, const at::Tensor& tensor, ReduceOp op) override;
  // Counts are compared over the host beside it.
  std::shared_ptr<Work> all_to_all(const Call& call, const at::Tensor& output, const at::Tensor& input,
                                   const std::vector<int64_t>& output_counts,
                                   const std::vector<int64_t>& input_counts) override;
  std::shared_ptr<Work> broadcast(const Call& call, const at::Tensor& tensor, int64_t root) override;
  // Of tensors that all lie on the device or all on the host.
  std::shared_ptr<Work> batch_p2p(const Call& call, std::vector<P2pOp> ops) override;
  std::shared_ptr<Work> barrier(const Call& call) override;
  at::Tensor registered_bytes(const Call& call, int64_t num_bytes) override;
  std::unique_ptr<TensorBackend> split(const Call& call, int64_t color, int64_t key) override;

 private:
  // Whether an operation on it goes by NCCL. Throws where a group of this process has failed.
  bool is_on_device(const at::Tensor& tensor) const;

  const NcclContext context_;
  const std::unique_ptr<HostBackend> host_;
  std::unique_ptr<NcclGroup> group_;
  std::unique_ptr<NcclMessages> messages_;
};

// Of all ranks. Collective. `timeout`: for its start.
std::unique_ptr<TensorBackend> make_nccl_backend(
    std::unique_ptr<HostBackend> host, at::Device device, std::shared_ptr<const NcclLibrary> library,
    std::chrono::milliseconds timeout = std::chrono::minutes(10));

}  // namespace tessera::comm::detail

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
// barriers and the making of groups go there, as does what ranks tell each other about their messages. A
// barrier thus says where the processes are, not their devices. Tensors on the device go by NCCL, as bytes.
// NCCL sums nothing: ranks exchange pieces, which are summed here in the order of the ranks. That sends as
// many bytes as a reduce-scatter does, and gives the host's bits.
class NcclBackend : public TensorBackend {
 public:
  // Collective over the ranks of `host`, each of which must have a device of its own; waits. `start` gives
  // the description and the timeout of this start.
  NcclBackend(std::unique_ptr<HostBackend> host, NcclContext context, const Call& start);
  ~NcclBackend() override;

  int64_t rank() const override { return host_->rank(); }
  int64_t size() const override { return host_->size(); }
  std::string name() const override { return "nccl"; }
  at::Device device() const override { return context_.device; }
  // Accepts tensors on the host too.
  void check_tensor(const at::Tensor& tensor, std::string_view operation) const override;
  void check() const override { context_.watchdog->check(); }

  std::shared_ptr<Work> all_gather(const Call& call, std::vector<GatherPart> parts) override;
  std::shared_ptr<Work> reduce_scatter(const Call& call, std::vector<ScatterPart> parts, at::ScalarType type,
                                       ReduceOp op) override;
  std::shared_ptr<Work> all_reduce(const Call& call, const at::Tensor& tensor, ReduceOp op) override;
  // The ranks' counts are compared over `host` while the exchange is on its way.
  std::shared_ptr<Work> all_to_all(const Call& call, const at::Tensor& output, const at::Tensor& input,
                                   const std::vector<int64_t>& output_counts,
                                   const std::vector<int64_t>& input_counts) override;
  std::shared_ptr<Work> broadcast(const Call& call, const at::Tensor& tensor, int64_t root) override;
  // The tensors of `ops` must all lie on the device or all on the host.
  std::shared_ptr<Work> batch_p2p(const Call& call, std::vector<P2pOp> ops) override;
  std::shared_ptr<Work> barrier(const Call& call) override;
  at::Tensor registered_bytes(const Call& call, int64_t num_bytes) override;
  std::unique_ptr<TensorBackend> split(const Call& call, int64_t color, int64_t key, int64_t size) override;

 private:
  // Tells whether an operation on `tensor` goes by NCCL. Throws if a group of this process has failed.
  bool is_on_device(const at::Tensor& tensor) const;

  const NcclContext context_;
  const std::unique_ptr<HostBackend> host_;
  std::unique_ptr<NcclGroup> group_;
  std::unique_ptr<NcclMessages> messages_;
};

// Makes the backend of the group of all ranks. Collective. `timeout` bounds its start.
std::unique_ptr<TensorBackend> make_nccl_backend(
    std::unique_ptr<HostBackend> host, at::Device device, std::shared_ptr<const NcclLibrary> library,
    std::chrono::milliseconds timeout = std::chrono::minutes(10));

}  // namespace tessera::comm::detail

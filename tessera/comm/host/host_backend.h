// Groups of ranks that exchange host memory.
#pragma once

#include <memory>

#include "tessera/comm/host/executor.h"
#include "tessera/comm/host/transport.h"
#include "tessera/comm/tensor_backend.h"
#include "tessera/device/device.h"

namespace tessera::comm::detail {

class Group;

// Operations on host memory. If all ranks of the group run on one machine, collectives go through memory that
// all of them map (node_group.h). Otherwise they go through the transport, as messages between two ranks
// always do. The results have the same bits either way.
class HostBackend : public TensorBackend {
 public:
  // `transport` connects two ranks or more.
  explicit HostBackend(std::unique_ptr<Transport> transport, bool may_share_memory = true);
  ~HostBackend() override;

  int64_t rank() const override;
  int64_t size() const override;
  std::string name() const override;
  at::Device device() const override { return kHost; }

  std::shared_ptr<Work> all_gather(const Call& call, std::vector<GatherPart> parts) override;
  std::shared_ptr<Work> reduce_scatter(const Call& call, std::vector<ScatterPart> parts, at::ScalarType type,
                                       ReduceOp op) override;
  std::shared_ptr<Work> all_reduce(const Call& call, const at::Tensor& tensor, ReduceOp op) override;
  std::shared_ptr<Work> all_to_all(const Call& call, const at::Tensor& output, const at::Tensor& input,
                                   const std::vector<int64_t>& output_counts,
                                   const std::vector<int64_t>& input_counts) override;
  std::shared_ptr<Work> broadcast(const Call& call, const at::Tensor& tensor, int64_t root) override;
  std::shared_ptr<Work> batch_p2p(const Call& call, std::vector<P2pOp> ops) override;
  std::shared_ptr<Work> barrier(const Call& call) override;
  void set_shared_memory(bool is_allowed) override;
  at::Tensor shared_bytes(const Call& call, int64_t num_bytes) override;
  std::shared_ptr<Work> write_shared(const Call& call, int64_t num_bytes,
                                     std::function<void()> write) override;
  std::unique_ptr<TensorBackend> split(const Call& call, int64_t color, int64_t key, int64_t size) override;

  // Compares the ranks' counts of an all-to-all. Collective. The work ends with Error(Peer), on every rank,
  // if a rank does not take what another one sends.
  std::shared_ptr<PendingWork> compare_counts(const Call& call, const std::vector<int64_t>& output_counts,
                                              const std::vector<int64_t>& input_counts);

 private:
  std::shared_ptr<PendingWork> submit(const Call& call, std::function<void()> body);

  std::shared_ptr<Group> group_;  // shared with the operations in flight, which may outlive this object
  Executor executor_;
};

}  // namespace tessera::comm::detail

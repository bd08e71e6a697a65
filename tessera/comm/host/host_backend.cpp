#include "tessera/comm/host/host_backend.h"

#include <ATen/ATen.h>

#include "tessera/comm/exchange_table.h"
#include "tessera/comm/host/group.h"
#include "tessera/comm/reduce.h"
#include "tessera/comm/single_backend.h"
#include "tessera/core/error.h"
#include "tessera/core/trace.h"

namespace tessera::comm::detail {
namespace {

int64_t bytes_of(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

void gather_bytes(Group& group, void* output, const void* input, const std::vector<int64_t>& num_bytes) {
  if (auto* node = group.node()) {
    node->all_gather(output, input, num_bytes);
  } else {
    group.transport().all_gather(output, input, num_bytes);
  }
}

}  // namespace

HostBackend::HostBackend(std::unique_ptr<Transport> transport, bool may_share_memory)
    : group_(std::make_shared<Group>(std::move(transport), may_share_memory)) {
  TESSERA_ASSERT(size() > 1, "a group of one has no transport");
}

HostBackend::~HostBackend() = default;

int64_t HostBackend::rank() const { return group_->transport().rank(); }
int64_t HostBackend::size() const { return group_->transport().size(); }
std::string HostBackend::name() const { return group_->transport().name(); }
void HostBackend::set_shared_memory(bool is_allowed) { group_->set_may_share_memory(is_allowed); }

std::shared_ptr<PendingWork> HostBackend::submit(const Call& call, std::function<void()> body) {
  auto work = std::make_shared<PendingWork>(call.description, call.timeout, call.place);
  if (call.after != nullptr) {
    body = [after = call.after, body = std::move(body)] {
      // The operation runs even if `after` has failed: the other ranks are in it (OpOptions::after).
      std::exception_ptr error;
      try {
        after->wait_host();
      } catch (...) {
        error = std::current_exception();
      }
      body();
      if (error != nullptr) std::rethrow_exception(error);
    };
  }
  executor_.submit(work, std::move(body));
  return work;
}

std::shared_ptr<Work> HostBackend::all_gather(const Call& call, std::vector<GatherPart> parts) {
  return submit(call, [group = group_, parts = std::move(parts)] {
    for (const GatherPart& part : parts) {
      trace::add_bytes(bytes_of(part.output));
      std::vector<int64_t> num_bytes = part.counts;
      for (int64_t& count : num_bytes) count *= static_cast<int64_t>(part.input.element_size());
      gather_bytes(*group, part.output.mutable_data_ptr(), part.input.const_data_ptr(), num_bytes);
    }
  });
}

std::shared_ptr<Work> HostBackend::reduce_scatter(const Call& call, std::vector<ScatterPart> parts,
                                                  at::ScalarType type, ReduceOp op) {
  return submit(call, [group = group_, parts = std::move(parts), type, op] {
    for (const ScatterPart& part : parts) {
      for (const ElementRange& piece : part.pieces) {
        trace::add_bytes(piece.count * static_cast<int64_t>(c10::elementSize(type)));
      }
    }
    if (auto* node = group->node()) {
      node->reduce_scatter(parts, type, op);
    } else {
      detail::reduce_scatter(group->transport(), parts, type, op);
    }
  });
}

std::shared_ptr<Work> HostBackend::all_reduce(const Call& call, const at::Tensor& tensor, ReduceOp op) {
  return submit(call, [group = group_, tensor, op] {
    trace::add_bytes(bytes_of(tensor));
    if (auto* node = group->node()) {
      node->all_reduce(tensor, op);
    } else {
      detail::all_reduce(group->transport(), tensor, op);
    }
  });
}

std::shared_ptr<Work> HostBackend::all_to_all(const Call& call, const at::Tensor& output,
                                              const at::Tensor& input,
                                              const std::vector<int64_t>& output_counts,
                                              const std::vector<int64_t>& input_counts) {
  return submit(call, [group = group_, output, input, output_counts, input_counts] {
    trace::add_bytes(bytes_of(output));
    Transport& transport = group->transport();
    void* const to = output.mutable_data_ptr();
    const void* const from = input.const_data_ptr();
    const auto element = static_cast<int64_t>(input.element_size());
    auto* const node = group->node();
    if (input_counts.empty()) {
      const int64_t count = input.numel() / transport.size();
      const std::vector<int64_t> counts(transport.size(), count);
      if (node != nullptr) return node->all_to_all(to, from, counts, counts, element);
      return transport.all_to_all(to, from, count * element);
    }
    if (node != nullptr) return node->all_to_all(to, from, output_counts, input_counts, element);
    all_to_all_v(transport, to, from, output_counts, input_counts, element);
  });
}

std::shared_ptr<PendingWork> HostBackend::compare_counts(const Call& call,
                                                         const std::vector<int64_t>& output_counts,
                                                         const std::vector<int64_t>& input_counts) {
  return submit(call, [group = group_, output_counts, input_counts] {
    gather_table([&](auto&&... all) { gather_bytes(*group, all...); }, output_counts, input_counts);
  });
}

std::shared_ptr<Work> HostBackend::broadcast(const Call& call, const at::Tensor& tensor, int64_t root) {
  return submit(call, [group = group_, tensor, root] {
    trace::add_bytes(bytes_of(tensor));
    if (auto* node = group->node()) {
      node->broadcast(tensor.mutable_data_ptr(), bytes_of(tensor), root);
    } else {
      group->transport().broadcast(tensor.mutable_data_ptr(), bytes_of(tensor), root);
    }
  });
}

std::shared_ptr<Work> HostBackend::batch_p2p(const Call& call, std::vector<P2pOp> ops) {
  // Messages are posted by this thread, so this thread waits.
  if (call.after != nullptr) call.after->wait_host();
  auto batch = std::make_shared<P2pBatch>(call.description, call.timeout, rank(), std::move(ops), call.place);
  group_->transport().post(batch);
  return batch;
}

std::shared_ptr<Work> HostBackend::barrier(const Call& call) {
  return submit(call, [group = group_] {
    if (auto* node = group->node()) {
      node->barrier();
    } else {
      group->transport().barrier();
    }
  });
}

at::Tensor HostBackend::shared_bytes(const Call& call, int64_t num_bytes) {
  auto memory = std::make_shared<std::shared_ptr<char>>();
  submit(call, [group = group_, memory, num_bytes] {
    if (auto* node = group->node()) *memory = node->map_shared(num_bytes);
  })->wait();
  if (*memory == nullptr) return at::Tensor();
  const std::shared_ptr<char> owner = *memory;
  return at::from_blob(
      owner.get(), {num_bytes}, [owner](void*) {}, at::TensorOptions().dtype(at::kByte));
}

std::shared_ptr<Work> HostBackend::write_shared(const Call& call, int64_t num_bytes,
                                                std::function<void()> write) {
  return submit(call, [group = group_, num_bytes, write = std::move(write), what = call.hint] {
    trace::add_bytes(num_bytes);
    auto* node = group->node();
    TESSERA_ASSERT(node != nullptr, "write_shared needs ranks that share memory");
    node->write(what, num_bytes, write);
  });
}

std::unique_ptr<TensorBackend> HostBackend::split(const Call& call, int64_t color, int64_t key, int64_t) {
  auto part = std::make_shared<std::unique_ptr<Transport>>();
  submit(call, [group = group_, part, color, key] { *part = group->transport().split(color, key); })->wait();
  if ((*part)->size() == 1) return make_single_backend(kHost);
  return std::make_unique<HostBackend>(std::move(*part), group_->may_share_memory());
}

}  // namespace tessera::comm::detail

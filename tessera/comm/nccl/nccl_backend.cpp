#include "tessera/comm/nccl/nccl_backend.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/comm/nccl/gather_parts.h"
#include "tessera/comm/nccl/nccl_messages.h"
#include "tessera/comm/reduce.h"
#include "tessera/comm/single_backend.h"
#include "tessera/core/check_argument.h"

namespace tessera::comm::detail {
namespace {

// Gives the call of a step that `call` needs, before or beside its own operation: without a place in the
// flight recorder, which is the operation's, and without `after`.
Call step_of(const Call& call) {
  Call step = call;
  step.after = nullptr;
  step.place = -1;
  return step;
}

// Gives all ranks the id that the first one makes. Collective.
NcclId agreed_id(HostBackend& host, const NcclLibrary& library, const Call& start) {
  NcclId id;
  if (host.rank() == 0) id = library.make_id();
  const at::Tensor bytes =
      at::from_blob(id.bytes.data(), {static_cast<int64_t>(id.bytes.size())}, on_host(at::kByte)).clone();
  host.broadcast(start, bytes, 0)->wait();
  std::copy_n(bytes.const_data_ptr<uint8_t>(), id.bytes.size(), id.bytes.data());
  return id;
}

std::vector<int64_t> in_bytes(std::vector<int64_t> counts, const at::Tensor& like) {
  for (int64_t& count : counts) count *= static_cast<int64_t>(like.element_size());
  return counts;
}

}  // namespace

NcclBackend::NcclBackend(std::unique_ptr<HostBackend> host, NcclContext context, const Call& start)
    : context_(std::move(context)),
      host_(std::move(host)),
      group_(std::make_unique<NcclGroup>(context_, agreed_id(*host_, *context_.library, start), host_->size(),
                                         host_->rank(), start)),
      messages_(std::make_unique<NcclMessages>(context_, *host_, start)) {}

NcclBackend::~NcclBackend() = default;

void NcclBackend::check_tensor(const at::Tensor& tensor, std::string_view operation) const {
  if (tensor.defined() && tensor.device() == kHost) return host_->check_tensor(tensor, operation);
  TensorBackend::check_tensor(tensor, operation);
}

bool NcclBackend::is_on_device(const at::Tensor& tensor) const {
  context_.watchdog->check();
  return tensor.device() != kHost;
}

std::shared_ptr<Work> NcclBackend::all_gather(const Call& call, std::vector<GatherPart> parts) {
  if (parts.empty() || !is_on_device(parts[0].output)) return host_->all_gather(call, std::move(parts));
  std::vector<at::Tensor> held;
  for (const GatherPart& part : parts) held.insert(held.end(), {part.output, part.input});
  return group_->run(call, std::move(held), [&] { gather_parts(*group_, parts); });
}

std::shared_ptr<Work> NcclBackend::reduce_scatter(const Call& call, std::vector<ScatterPart> parts,
                                                  at::ScalarType type, ReduceOp op) {
  if (parts.empty() || !is_on_device(parts[0].output)) {
    return host_->reduce_scatter(call, std::move(parts), type, op);
  }
  std::vector<at::Tensor> held;
  for (const ScatterPart& part : parts) {
    held.push_back(part.output);
    if (part.input.defined()) held.push_back(part.input);
  }
  // The group is a ByteExchange, on whose stream the reductions of reduce.h run.
  return group_->run(call, std::move(held), [&] { detail::reduce_scatter(*group_, parts, type, op); });
}

std::shared_ptr<Work> NcclBackend::all_reduce(const Call& call, const at::Tensor& tensor, ReduceOp op) {
  if (!is_on_device(tensor)) return host_->all_reduce(call, tensor, op);
  return group_->run(call, {tensor}, [&] { detail::all_reduce(*group_, tensor, op); });
}

std::shared_ptr<Work> NcclBackend::all_to_all(const Call& call, const at::Tensor& output,
                                              const at::Tensor& input,
                                              const std::vector<int64_t>& output_counts,
                                              const std::vector<int64_t>& input_counts) {
  if (!is_on_device(output)) return host_->all_to_all(call, output, input, output_counts, input_counts);
  std::shared_ptr<const PendingWork> agreement;
  // NCCL would wait forever, or mix up data, on counts that differ. So the host compares them meanwhile, and
  // the watchdog aborts the exchange if they differ. The exchange itself does not wait for that.
  if (!input_counts.empty()) agreement = host_->compare_counts(step_of(call), output_counts, input_counts);
  const auto exchange = [&] {
    void* const to = output.mutable_data_ptr();
    const void* const from = input.const_data_ptr();
    if (input_counts.empty())
      return group_->all_to_all(to, from, static_cast<int64_t>(input.nbytes()) / size());
    group_->all_to_all_v(to, from, in_bytes(output_counts, input), in_bytes(input_counts, input));
  };
  return group_->run(call, {output, input}, exchange, std::move(agreement));
}

std::shared_ptr<Work> NcclBackend::broadcast(const Call& call, const at::Tensor& tensor, int64_t root) {
  if (!is_on_device(tensor)) return host_->broadcast(call, tensor, root);
  return group_->run(call, {tensor}, [&] {
    group_->broadcast(tensor.mutable_data_ptr(), static_cast<int64_t>(tensor.nbytes()), root);
  });
}

std::shared_ptr<Work> NcclBackend::batch_p2p(const Call& call, std::vector<P2pOp> ops) {
  int64_t on_device = 0;
  for (const P2pOp& op : ops) on_device += is_on_device(op.tensor) ? 1 : 0;
  if (on_device == 0) return host_->batch_p2p(call, std::move(ops));
  TESSERA_CHECK_ARGUMENT(on_device == static_cast<int64_t>(ops.size()),
                         call.description + " needs tensors that all lie in one place");
  return messages_->post(call, std::move(ops));
}

std::shared_ptr<Work> NcclBackend::barrier(const Call& call) {
  check();
  return host_->barrier(call);
}

at::Tensor NcclBackend::registered_bytes(const Call& call, int64_t num_bytes) {
  check();
  at::Tensor memory = group_->registered_bytes(num_bytes);
  // Ranks use registered memory together or not at all: see [Note: registered memory].
  const at::Tensor is_everywhere = at::full({1}, memory.defined() ? 1 : 0, on_host(at::kLong));
  host_->all_reduce(call, is_everywhere, ReduceOp::Min)->wait();
  if (is_everywhere.const_data_ptr<int64_t>()[0] == 0) memory.reset();
  return memory;
}

std::unique_ptr<TensorBackend> NcclBackend::split(const Call& call, int64_t color, int64_t key,
                                                  int64_t size) {
  check();
  std::unique_ptr<TensorBackend> part = host_->split(call, color, key, size);
  // A part of one rank needs no NCCL: the host then gives it no HostBackend.
  auto* const several = dynamic_cast<HostBackend*>(part.get());
  if (several == nullptr) return make_single_backend(device());
  static_cast<void>(part.release());
  return std::make_unique<NcclBackend>(std::unique_ptr<HostBackend>(several), context_, step_of(call));
}

std::unique_ptr<TensorBackend> make_nccl_backend(std::unique_ptr<HostBackend> host, at::Device device,
                                                 std::shared_ptr<const NcclLibrary> library,
                                                 std::chrono::milliseconds timeout) {
  Call start;
  start.description =
      "the start of NCCL on rank " + std::to_string(host->rank()) + " of " + std::to_string(host->size());
  start.timeout = timeout;
  return std::make_unique<NcclBackend>(
      std::move(host), NcclContext{device, std::move(library), std::make_shared<Watchdog>(device)}, start);
}

}  // namespace tessera::comm::detail

#include "tessera/comm/communicator.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include <ATen/ATen.h>

#include "tessera/comm/flight_recorder.h"
#include "tessera/comm/single_backend.h"
#include "tessera/comm/tensor_backend.h"
#include "tessera/core/check_argument.h"

namespace tessera::comm {
namespace {

int64_t sum(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

int64_t bytes_of(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

// Tells whether there is one count for each rank, none of them negative.
bool are_counts(const std::vector<int64_t>& counts, int64_t num_ranks) {
  return static_cast<int64_t>(counts.size()) == num_ranks &&
         std::all_of(counts.begin(), counts.end(), [](int64_t count) { return count >= 0; });
}

// Gives the ranks of the world that split() puts together with this one, in the order of their new group;
// none if the flight recorder records nothing. Collective.
std::vector<int64_t> ranks_of_part(detail::TensorBackend& backend, const detail::Call& call, int64_t color,
                                   int64_t key) {
  constexpr int64_t kFields = 3;
  if (flight::own_rank() < 0) return {};
  const int64_t size = backend.size();
  const at::Tensor own = at::tensor({color, key, flight::own_rank()}, on_host(at::kLong));
  const at::Tensor all = at::empty({kFields * size}, on_host(at::kLong));
  backend.all_gather(call, {{all, own, std::vector<int64_t>(static_cast<size_t>(size), kFields)}})->wait();
  const auto* const values = all.const_data_ptr<int64_t>();
  std::vector<std::pair<int64_t, int64_t>> part;  // key, rank
  for (int64_t r = 0; r < size; ++r) {
    if (values[kFields * r] == color) part.emplace_back(values[kFields * r + 1], values[kFields * r + 2]);
  }
  std::ranges::stable_sort(part, {}, &std::pair<int64_t, int64_t>::first);
  std::vector<int64_t> ranks;
  for (const auto& [unused, rank] : part) ranks.push_back(rank);
  return ranks;
}

}  // namespace

std::shared_ptr<Communicator> Communicator::single(at::Device device) {
  return std::make_shared<Communicator>(detail::make_single_backend(device));
}

Communicator::Communicator(std::unique_ptr<detail::TensorBackend> backend, std::string name)
    : backend_(std::move(backend)), name_(std::move(name)) {}

Communicator::~Communicator() = default;

int64_t Communicator::rank() const { return backend_->rank(); }
int64_t Communicator::size() const { return backend_->size(); }
at::Device Communicator::device() const { return backend_->device(); }
std::string Communicator::backend_name() const { return backend_->name(); }
void Communicator::check() const { backend_->check(); }
void Communicator::set_shared_memory(bool is_allowed) {
  TESSERA_CHECK_ARGUMENT(num_collectives_ == 0, "shared memory is allowed or not before the first operation");
  backend_->set_shared_memory(is_allowed);
}

void Communicator::check_tensors(const char* operation, const at::Tensor& output,
                                 const at::Tensor& input) const {
  backend_->check_tensor(output, operation);
  backend_->check_tensor(input, operation);
  TESSERA_CHECK_ARGUMENT(output.scalar_type() == input.scalar_type(),
                         std::string(operation) + ": output and input must have the same dtype");
}

Traffic Communicator::traffic() const { return traffic_->sum(); }

std::map<std::string, Traffic> Communicator::traffic_by_group() const {
  std::map<std::string, Traffic> by_group;
  const std::function<void(const std::string&, const detail::TrafficCount&)> add =
      [&](const std::string& name, const detail::TrafficCount& count) {
        by_group[name] += count.sum();
        for (const auto& [part, of_part] : count.parts) add(part, *of_part);
      };
  add(name_, *traffic_);
  return by_group;
}

double Communicator::others_part(int64_t num_bytes) const {
  return static_cast<double>(num_bytes) * static_cast<double>(size() - 1) / static_cast<double>(size());
}

std::shared_ptr<Work> Communicator::submitted(std::shared_ptr<Work> work, double bytes_sent, bool async_op) {
  traffic_->bytes_sent += static_cast<int64_t>(bytes_sent);
  if (size() > 1) work = std::make_shared<detail::CountedWork>(std::move(work), traffic_);
  if (!async_op) work->wait();
  return work;
}

detail::Call Communicator::call(const char* operation, const OpOptions& options, int64_t num_bytes) {
  return describe(operation, ++num_collectives_, options, num_bytes, 0);
}

detail::Call Communicator::describe(const char* operation, int64_t number, const OpOptions& options,
                                    int64_t num_bytes, uint64_t peers) const {
  std::string description = std::string(operation) + " number " +
                            std::to_string(number > 0 ? number : num_batches_) + " of group '" + name_ +
                            "' on rank " + std::to_string(rank()) + " of " + std::to_string(size());
  if (!options.hint.empty()) description += " (" + options.hint + ")";
  detail::Call call = {std::move(description), options.hint,
                       options.timeout.count() > 0 ? options.timeout : default_timeout_,
                       detail::CountedWork::uncounted(options.after)};
  if (size() > 1) {
    call.place = flight::begin({.group = key_,
                                .group_name = name_,
                                .name = operation,
                                .hint = options.hint,
                                .number = number,
                                .num_bytes = num_bytes,
                                .peers = peers});
  }
  return call;
}

std::shared_ptr<Work> Communicator::all_gather_single(const at::Tensor& output, const at::Tensor& input,
                                                      bool async_op, const AllGatherOptions& options) {
  check_tensors("all_gather_single", output, input);
  TESSERA_CHECK_ARGUMENT(output.numel() == input.numel() * size(),
                         "all_gather_single: output must hold every rank's input");
  return submitted(backend_->all_gather(call("all_gather_single", options, bytes_of(output)),
                                        {{output, input, std::vector<int64_t>(size(), input.numel())}}),
                   others_part(bytes_of(output)), async_op);
}

void Communicator::check_gather(const char* operation, const GatherPart& part) const {
  check_tensors(operation, part.output, part.input);
  TESSERA_CHECK_ARGUMENT(
      are_counts(part.counts, size()) && part.input.numel() == part.counts[rank()] &&
          part.output.numel() == sum(part.counts),
      std::string(operation) + ": input must hold this rank's count of elements, output those of all ranks");
}

std::shared_ptr<Work> Communicator::all_gather_v(const at::Tensor& output, const at::Tensor& input,
                                                 const std::vector<int64_t>& counts, bool async_op,
                                                 const AllGatherOptions& options) {
  check_gather("all_gather_v", {output, input, counts});
  return submitted(
      backend_->all_gather(call("all_gather_v", options, bytes_of(output)), {{output, input, counts}}),
      others_part(bytes_of(output)), async_op);
}

std::shared_ptr<Work> Communicator::all_gather_parts(std::vector<GatherPart> parts, bool async_op,
                                                     const AllGatherOptions& options) {
  int64_t num_bytes = 0;
  for (const GatherPart& part : parts) {
    check_gather("all_gather_parts", part);
    num_bytes += bytes_of(part.output);
  }
  return submitted(backend_->all_gather(call("all_gather_parts", options, num_bytes), std::move(parts)),
                   others_part(num_bytes), async_op);
}

std::shared_ptr<Work> Communicator::reduce_scatter_single(const at::Tensor& output, const at::Tensor& input,
                                                          bool async_op, const ReduceOptions& options) {
  check_tensors("reduce_scatter_single", output, input);
  TESSERA_CHECK_ARGUMENT(input.numel() == output.numel() * size(),
                         "reduce_scatter_single: input must hold a piece for every rank");
  return submitted(backend_->reduce_scatter(call("reduce_scatter_single", options, bytes_of(input)),
                                            {{input, output, even_pieces(input.numel(), size())}},
                                            output.scalar_type(), options.op),
                   others_part(bytes_of(input)), async_op);
}

std::shared_ptr<Work> Communicator::reduce_scatter_parts(std::vector<ScatterPart> parts, at::ScalarType type,
                                                         bool async_op, const ReduceOptions& options) {
  int64_t numel = 0;
  for (const ScatterPart& part : parts) {
    backend_->check_tensor(part.output, "reduce_scatter_parts");
    if (part.input.defined()) backend_->check_tensor(part.input, "reduce_scatter_parts");
    TESSERA_CHECK_ARGUMENT(static_cast<int64_t>(part.pieces.size()) == size() &&
                               part.output.scalar_type() == type &&
                               part.output.numel() == part.pieces[rank()].count,
                           "reduce_scatter_parts: the output must hold this rank's piece");
    for (const ElementRange& piece : part.pieces) {
      numel += piece.count;
      TESSERA_CHECK_ARGUMENT(piece.begin >= 0 && piece.count >= 0 &&
                                 (!part.input.defined() || piece.begin + piece.count <= part.input.numel()),
                             "reduce_scatter_parts: the pieces must lie in the input");
    }
  }
  return submitted(backend_->reduce_scatter(call("reduce_scatter_parts", options,
                                                 numel * static_cast<int64_t>(c10::elementSize(type))),
                                            std::move(parts), type, options.op),
                   others_part(numel * static_cast<int64_t>(c10::elementSize(type))), async_op);
}

std::shared_ptr<Work> Communicator::all_reduce(const at::Tensor& tensor, bool async_op,
                                               const ReduceOptions& options) {
  backend_->check_tensor(tensor, "all_reduce");
  return submitted(backend_->all_reduce(call("all_reduce", options, bytes_of(tensor)), tensor, options.op),
                   2.0 * others_part(bytes_of(tensor)), async_op);
}

std::shared_ptr<Work> Communicator::all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                                                      bool async_op, const AllToAllOptions& options) {
  check_tensors("all_to_all_single", output, input);
  TESSERA_CHECK_ARGUMENT(output.numel() == input.numel() && input.numel() % size() == 0,
                         "all_to_all_single: sizes must be equal and divisible by the number of ranks");
  return submitted(
      backend_->all_to_all(call("all_to_all_single", options, bytes_of(input)), output, input, {}, {}),
      others_part(bytes_of(input)), async_op);
}

std::shared_ptr<Work> Communicator::all_to_all_v(const at::Tensor& output, const at::Tensor& input,
                                                 const std::vector<int64_t>& output_counts,
                                                 const std::vector<int64_t>& input_counts, bool async_op,
                                                 const AllToAllOptions& options) {
  check_tensors("all_to_all_v", output, input);
  TESSERA_CHECK_ARGUMENT(are_counts(output_counts, size()) && are_counts(input_counts, size()) &&
                             output.numel() == sum(output_counts) && input.numel() == sum(input_counts),
                         "all_to_all_v: output and input must hold the counts of all ranks");
  const int64_t sent = (sum(input_counts) - input_counts[rank()]) * input.element_size();
  return submitted(backend_->all_to_all(call("all_to_all_v", options, bytes_of(input)), output, input,
                                        output_counts, input_counts),
                   static_cast<double>(sent), async_op);
}

std::shared_ptr<Work> Communicator::broadcast(const at::Tensor& tensor, int64_t root, bool async_op,
                                              const BroadcastOptions& options) {
  backend_->check_tensor(tensor, "broadcast");
  TESSERA_CHECK_ARGUMENT(root >= 0 && root < size(), "broadcast: the root must be a rank of the group");
  return submitted(backend_->broadcast(call("broadcast", options, bytes_of(tensor)), tensor, root),
                   others_part(bytes_of(tensor)), async_op);
}

void Communicator::barrier(const BarrierOptions& options) {
  backend_->barrier(call("barrier", options))->wait();
}

std::shared_ptr<Work> Communicator::submit_p2p(const char* operation, std::vector<P2pOp> ops, bool async_op,
                                               const P2pOptions& options) {
  int64_t sent = 0, num_bytes = 0;
  uint64_t peers = 0;
  for (const P2pOp& op : ops) {
    num_bytes += bytes_of(op.tensor);
    if (op.peer != rank() && op.peer >= 0 && op.peer < 64) peers |= uint64_t{1} << op.peer;
    if (op.is_send && op.peer != rank()) sent += bytes_of(op.tensor);
    backend_->check_tensor(op.tensor, operation);
    TESSERA_CHECK_ARGUMENT(op.peer >= 0 && op.peer < size(),
                           std::string(operation) + ": the peer must be a rank of the group");
    TESSERA_CHECK_ARGUMENT(
        op.tag >= 0 && op.tag < P2pOp::kTagLimit,
        std::string(operation) + ": tags are from 0 to " + std::to_string(P2pOp::kTagLimit - 1));
  }
  ++num_batches_;
  return submitted(backend_->batch_p2p(describe(operation, 0, options, num_bytes, peers), std::move(ops)),
                   static_cast<double>(sent), async_op);
}

std::shared_ptr<Work> Communicator::batch_p2p(std::vector<P2pOp> ops, bool async_op,
                                              const P2pOptions& options) {
  return submit_p2p("batch_p2p", std::move(ops), async_op, options);
}

std::shared_ptr<Work> Communicator::send(const at::Tensor& tensor, int64_t destination, int tag,
                                         bool async_op, const P2pOptions& options) {
  return submit_p2p("send", {isend(tensor, destination, tag)}, async_op, options);
}

std::shared_ptr<Work> Communicator::recv(const at::Tensor& tensor, int64_t source, int tag, bool async_op,
                                         const P2pOptions& options) {
  return submit_p2p("recv", {irecv(tensor, source, tag)}, async_op, options);
}

std::vector<std::string> Communicator::all_gather_string(const std::string& text) {
  const detail::Call call = this->call("all_gather_string", OpOptions{});
  const at::Tensor own_length = at::full({1}, static_cast<int64_t>(text.size()), on_host(at::kLong));
  const at::Tensor lengths = at::empty({size()}, on_host(at::kLong));
  backend_->all_gather(call, {{lengths, own_length, std::vector<int64_t>(size(), 1)}})->wait();
  const std::vector<int64_t> counts(lengths.const_data_ptr<int64_t>(),
                                    lengths.const_data_ptr<int64_t>() + size());
  // A copy, since the operation keeps its tensors: after a timeout it may still be running.
  const at::Tensor own =
      at::from_blob(const_cast<char*>(text.data()), {counts[rank()]}, on_host(at::kByte)).clone();
  const at::Tensor all = at::empty({sum(counts)}, on_host(at::kByte));
  backend_->all_gather(call, {{all, own, counts}})->wait();
  std::vector<std::string> texts;
  const char* begin = static_cast<const char*>(all.const_data_ptr());
  for (const int64_t count : counts) {
    texts.emplace_back(begin, static_cast<size_t>(count));
    begin += count;
  }
  return texts;
}

at::Tensor Communicator::shared_bytes(int64_t num_bytes) {
  return backend_->shared_bytes(call("shared_bytes", OpOptions{}), num_bytes);
}

at::Tensor Communicator::registered_bytes(int64_t num_bytes) {
  return backend_->registered_bytes(call("registered_bytes", OpOptions{}), num_bytes);
}

std::shared_ptr<Work> Communicator::write_shared(int64_t num_bytes, std::function<void()> write,
                                                 bool async_op, const WriteOptions& options) {
  return submitted(
      backend_->write_shared(call("write_shared", options, num_bytes), num_bytes, std::move(write)),
      others_part(num_bytes), async_op);
}

std::shared_ptr<Communicator> Communicator::split(int64_t color, int64_t key, std::string name,
                                                  int64_t size) {
  const detail::Call call = this->call("split", OpOptions{});
  const std::vector<int64_t> ranks = ranks_of_part(*backend_, call, color, key);
  auto part = std::make_shared<Communicator>(backend_->split(call, color, key, size), std::move(name));
  TESSERA_CHECK_ARGUMENT(size == 0 || part->size() == size,
                         "a part of a group has another size than was said");
  part->set_default_timeout(default_timeout_);
  // Every rank of the part computes the same key, since collectives are as many on all ranks of this group.
  part->key_ =
      (key_ * 1'000'003 + static_cast<uint64_t>(num_collectives_)) * 1'000'003 + static_cast<uint64_t>(color);
  if (part->size() > 1) {
    flight::join(part->key_, part->rank(), ranks);
    traffic_->parts.emplace_back(part->name_, part->traffic_);
  }
  return part;
}

}  // namespace tessera::comm

#include "tessera/comm/communicator.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include <ATen/ATen.h>

#include "tessera/comm/backend.h"
#include "tessera/comm/executor.h"
#include "tessera/comm/group.h"
#include "tessera/comm/reduce.h"
#include "tessera/core/check_argument.h"
#include "tessera/core/error.h"
#include "tessera/core/trace.h"

namespace tessera::comm {
namespace {

void check_tensor(const at::Tensor& tensor, const char* operation) {
  TESSERA_CHECK_ARGUMENT(tensor.defined() && tensor.is_contiguous() && tensor.device().is_cpu(),
                         std::string(operation) + " needs contiguous CPU tensors");
}

void all_gather(detail::Group& group, void* output, const void* input,
                const std::vector<int64_t>& num_bytes) {
  if (auto* node = group.node()) {
    node->all_gather(output, input, num_bytes);
  } else {
    group.backend().all_gather(output, input, num_bytes);
  }
}

// Where every operation is a copy of this rank's own data.
class SingleBackend : public detail::Backend {
 public:
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 1; }
  std::string name() const override { return "single"; }
  void all_gather(void* output, const void* input, const std::vector<int64_t>& num_bytes) override {
    all_to_all(output, input, num_bytes[0]);
  }
  void all_to_all(void* output, const void* input, int64_t num_bytes) override {
    if (output != input && num_bytes > 0) std::memmove(output, input, num_bytes);
  }
  void broadcast(void*, int64_t, int64_t) override {}
  void barrier() override {}
  void send(const void*, int64_t, int64_t, int) override {
    TESSERA_CHECK_ARGUMENT(false, "a group of one sends to nobody");
  }
  void recv(void*, int64_t, int64_t, int) override {
    TESSERA_CHECK_ARGUMENT(false, "a group of one receives from nobody");
  }
  std::shared_ptr<char> map_shared(int64_t) override { return nullptr; }
  std::unique_ptr<Backend> split(int64_t, int64_t) override { return std::make_unique<SingleBackend>(); }
};

}  // namespace

std::shared_ptr<Communicator> Communicator::single() {
  return std::make_shared<Communicator>(std::make_unique<SingleBackend>());
}

Communicator::Communicator(std::unique_ptr<detail::Backend> backend, std::string name)
    : group_(std::make_shared<detail::Group>(std::move(backend), true)), name_(std::move(name)) {
  if (size() > 1) executor_ = std::make_shared<detail::Executor>();
}

Communicator::Communicator(std::shared_ptr<detail::Group> group, std::shared_ptr<detail::Executor> executor,
                           std::string name)
    : group_(std::move(group)), executor_(std::move(executor)), name_(std::move(name)) {}

Communicator::~Communicator() = default;

int64_t Communicator::rank() const { return group_->backend().rank(); }
int64_t Communicator::size() const { return group_->backend().size(); }
std::string Communicator::backend_name() const { return group_->backend().name(); }
void Communicator::set_shared_memory(bool is_allowed) {
  TESSERA_CHECK_ARGUMENT(sequence_ == 0, "shared memory is allowed or not before the first operation");
  group_->set_may_share_memory(is_allowed);
}

std::shared_ptr<Work> Communicator::launch(const char* operation, const OpOptions& options, bool async_op,
                                           std::function<void()> body) {
  if (size() == 1) {
    body();
    return std::make_shared<Work>();
  }
  ++sequence_;
  std::string description = std::string(operation) + " number " + std::to_string(sequence_) + " of group '" +
                            name_ + "' on rank " + std::to_string(rank()) + " of " + std::to_string(size());
  if (!options.hint.empty()) description += " (" + options.hint + ")";
  const auto timeout = options.timeout.count() > 0 ? options.timeout : default_timeout_;
  auto work = std::make_shared<Work>(std::move(description), timeout);
  executor_->submit(work, std::move(body));
  if (!async_op) work->wait();
  return work;
}

std::shared_ptr<Work> Communicator::all_gather_single(const at::Tensor& output, const at::Tensor& input,
                                                      bool async_op, const AllGatherOptions& options) {
  check_tensor(output, "all_gather_single");
  check_tensor(input, "all_gather_single");
  TESSERA_CHECK_ARGUMENT(
      output.scalar_type() == input.scalar_type() && output.numel() == input.numel() * size(),
      "all_gather_single: output must hold every rank's input");
  return launch("all_gather_single", options, async_op, [group = group_, output, input] {
    trace::add_bytes(static_cast<int64_t>(output.nbytes()));
    all_gather(*group, output.mutable_data_ptr(), input.const_data_ptr(),
               std::vector<int64_t>(group->backend().size(), static_cast<int64_t>(input.nbytes())));
  });
}

std::shared_ptr<Work> Communicator::all_gather_v(const at::Tensor& output, const at::Tensor& input,
                                                 std::vector<int64_t> counts, bool async_op,
                                                 const AllGatherOptions& options) {
  check_tensor(output, "all_gather_v");
  check_tensor(input, "all_gather_v");
  TESSERA_CHECK_ARGUMENT(
      static_cast<int64_t>(counts.size()) == size() &&
          std::all_of(counts.begin(), counts.end(), [](int64_t count) { return count >= 0; }) &&
          output.scalar_type() == input.scalar_type() && input.numel() == counts[rank()] &&
          output.numel() == std::accumulate(counts.begin(), counts.end(), int64_t{0}),
      "all_gather_v: input must hold this rank's count of elements, output those of all ranks");
  const auto element = static_cast<int64_t>(input.element_size());
  for (int64_t& count : counts) count *= element;
  return launch("all_gather_v", options, async_op, [group = group_, output, input, counts] {
    trace::add_bytes(static_cast<int64_t>(output.nbytes()));
    all_gather(*group, output.mutable_data_ptr(), input.const_data_ptr(), counts);
  });
}

std::shared_ptr<Work> Communicator::reduce_scatter_single(const at::Tensor& output, const at::Tensor& input,
                                                          bool async_op, const ReduceOptions& options) {
  check_tensor(output, "reduce_scatter_single");
  check_tensor(input, "reduce_scatter_single");
  TESSERA_CHECK_ARGUMENT(
      output.scalar_type() == input.scalar_type() && input.numel() == output.numel() * size(),
      "reduce_scatter_single: input must hold a piece for every rank");
  return launch("reduce_scatter_single", options, async_op, [group = group_, output, input, op = options.op] {
    trace::add_bytes(static_cast<int64_t>(input.nbytes()));
    if (auto* node = group->node()) {
      std::vector<ElementRange> pieces;
      for (int64_t begin = 0; begin < input.numel(); begin += output.numel()) {
        pieces.push_back({begin, output.numel()});
      }
      pieces.resize(group->backend().size());  // without elements there are as many
      node->reduce_scatter({{input, output, std::move(pieces)}}, output.scalar_type(), op);
    } else {
      detail::reduce_scatter(group->backend(), output, input, op);
    }
  });
}

std::shared_ptr<Work> Communicator::reduce_scatter_parts(std::vector<ScatterPart> parts, at::ScalarType type,
                                                         bool async_op, const ReduceOptions& options) {
  for (const ScatterPart& part : parts) {
    check_tensor(part.output, "reduce_scatter_parts");
    if (part.input.defined()) check_tensor(part.input, "reduce_scatter_parts");
    TESSERA_CHECK_ARGUMENT(static_cast<int64_t>(part.pieces.size()) == size() &&
                               part.output.scalar_type() == type &&
                               part.output.numel() == part.pieces[rank()].count,
                           "reduce_scatter_parts: the output must hold this rank's piece");
    for (const ElementRange& piece : part.pieces) {
      TESSERA_CHECK_ARGUMENT(piece.begin >= 0 && piece.count >= 0 &&
                                 (!part.input.defined() || piece.begin + piece.count <= part.input.numel()),
                             "reduce_scatter_parts: the pieces must lie in the input");
    }
  }
  return launch("reduce_scatter_parts", options, async_op,
                [group = group_, parts = std::move(parts), type, op = options.op] {
                  for (const ScatterPart& part : parts) {
                    for (const ElementRange& piece : part.pieces) {
                      trace::add_bytes(piece.count * static_cast<int64_t>(at::elementSize(type)));
                    }
                  }
                  if (auto* node = group->node()) {
                    node->reduce_scatter(parts, type, op);
                  } else {
                    detail::reduce_scatter(group->backend(), parts, type, op);
                  }
                });
}

std::shared_ptr<Work> Communicator::all_reduce(const at::Tensor& tensor, bool async_op,
                                               const ReduceOptions& options) {
  check_tensor(tensor, "all_reduce");
  return launch("all_reduce", options, async_op, [group = group_, tensor, op = options.op] {
    trace::add_bytes(static_cast<int64_t>(tensor.nbytes()));
    if (auto* node = group->node()) {
      node->all_reduce(tensor, op);
    } else {
      detail::all_reduce(group->backend(), tensor, op);
    }
  });
}

std::shared_ptr<Work> Communicator::all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                                                      bool async_op, const AllToAllOptions& options) {
  check_tensor(output, "all_to_all_single");
  check_tensor(input, "all_to_all_single");
  TESSERA_CHECK_ARGUMENT(output.scalar_type() == input.scalar_type() && output.numel() == input.numel() &&
                             input.numel() % size() == 0,
                         "all_to_all_single: sizes must be equal and divisible by the number of ranks");
  return launch("all_to_all_single", options, async_op, [group = group_, output, input] {
    trace::add_bytes(static_cast<int64_t>(output.nbytes()));
    detail::Backend& backend = group->backend();
    backend.all_to_all(output.mutable_data_ptr(), input.const_data_ptr(),
                       static_cast<int64_t>(input.nbytes()) / backend.size());
  });
}

std::shared_ptr<Work> Communicator::broadcast(const at::Tensor& tensor, int64_t root, bool async_op,
                                              const BroadcastOptions& options) {
  check_tensor(tensor, "broadcast");
  return launch("broadcast", options, async_op, [group = group_, tensor, root] {
    trace::add_bytes(static_cast<int64_t>(tensor.nbytes()));
    const auto num_bytes = static_cast<int64_t>(tensor.nbytes());
    if (auto* node = group->node()) {
      node->broadcast(tensor.mutable_data_ptr(), num_bytes, root);
    } else {
      group->backend().broadcast(tensor.mutable_data_ptr(), num_bytes, root);
    }
  });
}

std::shared_ptr<Work> Communicator::send(const at::Tensor& tensor, int64_t destination, int tag,
                                         bool async_op, const SendOptions& options) {
  check_tensor(tensor, "send");
  return launch("send", options, async_op, [group = group_, tensor, destination, tag] {
    group->backend().send(tensor.const_data_ptr(), static_cast<int64_t>(tensor.nbytes()), destination, tag);
  });
}

std::shared_ptr<Work> Communicator::recv(const at::Tensor& tensor, int64_t source, int tag, bool async_op,
                                         const SendOptions& options) {
  check_tensor(tensor, "recv");
  return launch("recv", options, async_op, [group = group_, tensor, source, tag] {
    group->backend().recv(tensor.mutable_data_ptr(), static_cast<int64_t>(tensor.nbytes()), source, tag);
  });
}

void Communicator::barrier(const BarrierOptions& options) {
  launch("barrier", options, false, [group = group_] {
    if (auto* node = group->node()) {
      node->barrier();
    } else {
      group->backend().barrier();
    }
  });
}

std::vector<std::string> Communicator::all_gather_string(const std::string& text) {
  // Owned by the operation too: after a timeout it may still be running.
  struct Exchange {
    std::string own;
    int64_t length = 0;
    std::vector<std::string> texts;
  };
  auto exchange = std::make_shared<Exchange>();
  exchange->own = text;
  exchange->length = static_cast<int64_t>(text.size());
  launch("all_gather_string", OpOptions{}, false, [group = group_, exchange] {
    const int64_t num_ranks = group->backend().size();
    std::vector<int64_t> lengths(num_ranks);
    all_gather(*group, lengths.data(), &exchange->length,
               std::vector<int64_t>(num_ranks, sizeof exchange->length));
    std::string all(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}), '\0');
    all_gather(*group, all.data(), exchange->own.data(), lengths);
    int64_t begin = 0;
    for (const int64_t length : lengths) {
      exchange->texts.push_back(all.substr(begin, length));
      begin += length;
    }
  });
  return exchange->texts;
}

at::Tensor Communicator::shared_bytes(int64_t num_bytes) {
  auto memory = std::make_shared<std::shared_ptr<char>>();
  launch("shared_bytes", OpOptions{}, false, [group = group_, memory, num_bytes] {
    if (auto* node = group->node()) *memory = node->map_shared(num_bytes);
  });
  if (*memory == nullptr) return at::Tensor();
  const std::shared_ptr<char> owner = *memory;
  return at::from_blob(
      owner.get(), {num_bytes}, [owner](void*) {}, at::TensorOptions().dtype(at::kByte));
}

std::shared_ptr<Work> Communicator::write_shared(int64_t num_bytes, std::function<void()> write,
                                                 bool async_op, const WriteOptions& options) {
  return launch("write_shared", options, async_op,
                [group = group_, num_bytes, write = std::move(write), what = options.hint] {
                  trace::add_bytes(num_bytes);
                  auto* node = group->node();
                  TESSERA_ASSERT(node != nullptr, "write_shared needs ranks that share memory");
                  node->write(what, num_bytes, write);
                });
}

std::shared_ptr<Communicator> Communicator::split(int64_t color, int64_t key, std::string name) {
  auto part = std::make_shared<std::unique_ptr<detail::Backend>>();
  launch("split", OpOptions{}, false,
         [group = group_, part, color, key] { *part = group->backend().split(color, key); });
  std::unique_ptr<detail::Backend> mine = std::move(*part);
  if (mine->size() == 1) mine = std::make_unique<SingleBackend>();
  auto executor = mine->size() > 1 ? executor_ : nullptr;
  auto group = std::make_shared<detail::Group>(std::move(mine), group_->may_share_memory());
  auto communicator =
      std::shared_ptr<Communicator>(new Communicator(std::move(group), std::move(executor), std::move(name)));
  communicator->set_default_timeout(default_timeout_);
  return communicator;
}

}  // namespace tessera::comm

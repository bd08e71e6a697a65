#include "tessera/comm/communicator.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "tessera/comm/backend.h"
#include "tessera/comm/executor.h"
#include "tessera/comm/reduce.h"
#include "tessera/core/error.h"

namespace tessera::comm {
namespace {

void check_tensor(const at::Tensor& tensor, const char* operation) {
  TESSERA_ASSERT(tensor.defined() && tensor.is_contiguous() && tensor.device().is_cpu(),
                 std::string(operation) + " needs contiguous CPU tensors");
}

// Where every operation is a copy of this rank's own data.
class SingleBackend : public detail::Backend {
 public:
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 1; }
  std::string name() const override { return "single"; }
  void all_gather(void* output, const void* input, int64_t num_bytes) override {
    if (output != input) std::memmove(output, input, num_bytes);
  }
  void all_to_all(void* output, const void* input, int64_t num_bytes) override {
    all_gather(output, input, num_bytes);
  }
  void broadcast(void*, int64_t, int64_t) override {}
  void barrier() override {}
  void send(const void*, int64_t, int64_t, int) override {
    TESSERA_ASSERT(false, "a group of one sends to nobody");
  }
  void recv(void*, int64_t, int64_t, int) override {
    TESSERA_ASSERT(false, "a group of one receives from nobody");
  }
  std::unique_ptr<Backend> split(int64_t, int64_t) override { return std::make_unique<SingleBackend>(); }
};

}  // namespace

std::shared_ptr<Communicator> Communicator::single() {
  return std::make_shared<Communicator>(std::make_unique<SingleBackend>());
}

Communicator::Communicator(std::unique_ptr<detail::Backend> backend, std::string name)
    : backend_(std::move(backend)), name_(std::move(name)) {
  if (backend_->size() > 1) executor_ = std::make_shared<detail::Executor>();
}

Communicator::Communicator(std::unique_ptr<detail::Backend> backend,
                           std::shared_ptr<detail::Executor> executor, std::string name)
    : backend_(std::move(backend)), executor_(std::move(executor)), name_(std::move(name)) {}

Communicator::~Communicator() = default;

int64_t Communicator::rank() const { return backend_->rank(); }
int64_t Communicator::size() const { return backend_->size(); }
std::string Communicator::backend_name() const { return backend_->name(); }

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
  TESSERA_ASSERT(output.scalar_type() == input.scalar_type() && output.numel() == input.numel() * size(),
                 "all_gather_single: output must hold every rank's input");
  return launch("all_gather_single", options, async_op, [backend = backend_, output, input] {
    backend->all_gather(output.mutable_data_ptr(), input.const_data_ptr(),
                        static_cast<int64_t>(input.nbytes()));
  });
}

std::shared_ptr<Work> Communicator::reduce_scatter_single(const at::Tensor& output, const at::Tensor& input,
                                                          bool async_op, const ReduceOptions& options) {
  check_tensor(output, "reduce_scatter_single");
  check_tensor(input, "reduce_scatter_single");
  TESSERA_ASSERT(output.scalar_type() == input.scalar_type() && input.numel() == output.numel() * size(),
                 "reduce_scatter_single: input must hold a piece for every rank");
  return launch("reduce_scatter_single", options, async_op,
                [backend = backend_, output, input, op = options.op] {
                  detail::reduce_scatter(*backend, output, input, op);
                });
}

std::shared_ptr<Work> Communicator::all_reduce(const at::Tensor& tensor, bool async_op,
                                               const ReduceOptions& options) {
  check_tensor(tensor, "all_reduce");
  return launch("all_reduce", options, async_op,
                [backend = backend_, tensor, op = options.op] { detail::all_reduce(*backend, tensor, op); });
}

std::shared_ptr<Work> Communicator::all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                                                      bool async_op, const AllToAllOptions& options) {
  check_tensor(output, "all_to_all_single");
  check_tensor(input, "all_to_all_single");
  TESSERA_ASSERT(output.scalar_type() == input.scalar_type() && output.numel() == input.numel() &&
                     input.numel() % size() == 0,
                 "all_to_all_single: sizes must be equal and divisible by the number of ranks");
  return launch("all_to_all_single", options, async_op, [backend = backend_, output, input] {
    backend->all_to_all(output.mutable_data_ptr(), input.const_data_ptr(),
                        static_cast<int64_t>(input.nbytes()) / backend->size());
  });
}

std::shared_ptr<Work> Communicator::broadcast(const at::Tensor& tensor, int64_t root, bool async_op,
                                              const BroadcastOptions& options) {
  check_tensor(tensor, "broadcast");
  return launch("broadcast", options, async_op, [backend = backend_, tensor, root] {
    backend->broadcast(tensor.mutable_data_ptr(), static_cast<int64_t>(tensor.nbytes()), root);
  });
}

std::shared_ptr<Work> Communicator::send(const at::Tensor& tensor, int64_t destination, int tag,
                                         bool async_op, const SendOptions& options) {
  check_tensor(tensor, "send");
  return launch("send", options, async_op, [backend = backend_, tensor, destination, tag] {
    backend->send(tensor.const_data_ptr(), static_cast<int64_t>(tensor.nbytes()), destination, tag);
  });
}

std::shared_ptr<Work> Communicator::recv(const at::Tensor& tensor, int64_t source, int tag, bool async_op,
                                         const SendOptions& options) {
  check_tensor(tensor, "recv");
  return launch("recv", options, async_op, [backend = backend_, tensor, source, tag] {
    backend->recv(tensor.mutable_data_ptr(), static_cast<int64_t>(tensor.nbytes()), source, tag);
  });
}

void Communicator::barrier(const BarrierOptions& options) {
  launch("barrier", options, false, [backend = backend_] { backend->barrier(); });
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
  launch("all_gather_string", OpOptions{}, false, [backend = backend_, exchange] {
    const int64_t num_ranks = backend->size();
    std::vector<int64_t> lengths(num_ranks);
    backend->all_gather(lengths.data(), &exchange->length, sizeof exchange->length);
    int64_t longest = 0;
    for (const int64_t other : lengths) longest = std::max(longest, other);
    exchange->own.resize(longest);
    std::string all(longest * num_ranks, '\0');
    if (longest > 0) backend->all_gather(all.data(), exchange->own.data(), longest);
    for (int64_t r = 0; r < num_ranks; ++r) exchange->texts.push_back(all.substr(r * longest, lengths[r]));
  });
  return exchange->texts;
}

std::shared_ptr<Communicator> Communicator::split(int64_t color, int64_t key, std::string name) {
  auto part = std::make_shared<std::unique_ptr<detail::Backend>>();
  launch("split", OpOptions{}, false,
         [backend = backend_, part, color, key] { *part = backend->split(color, key); });
  std::unique_ptr<detail::Backend> mine = std::move(*part);
  if (mine->size() == 1) mine = std::make_unique<SingleBackend>();
  auto executor = mine->size() > 1 ? executor_ : nullptr;
  auto communicator =
      std::shared_ptr<Communicator>(new Communicator(std::move(mine), std::move(executor), std::move(name)));
  communicator->set_default_timeout(default_timeout_);
  return communicator;
}

}  // namespace tessera::comm

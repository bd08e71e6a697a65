#include "tessera/comm/dry_backend.h"

#include <numeric>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/comm/done_work.h"
#include "tessera/comm/tensor_backend.h"
#include "tessera/core/check_argument.h"

namespace tessera::comm {
namespace {

using detail::Call;

class DryBackend : public detail::TensorBackend {
 public:
  DryBackend(int64_t rank, int64_t size, bool shares_memory)
      : rank_(rank), size_(size), shares_memory_(shares_memory) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  std::string name() const override { return "dry"; }
  at::Device device() const override { return at::kMeta; }
  void check_tensor(const at::Tensor& tensor, std::string_view operation) const override {
    TESSERA_CHECK_ARGUMENT(tensor.defined() && tensor.is_contiguous(),
                           std::string(operation) + " needs contiguous tensors");
  }

  std::shared_ptr<Work> all_gather(const Call& call, std::vector<GatherPart> parts) override {
    const at::NoGradGuard no_grad;
    for (const GatherPart& part : parts) {
      if (part.output.is_meta()) continue;
      int64_t begin = 0;
      for (const int64_t count : part.counts) {
        part.output.view(-1).narrow(0, begin, count).copy_(part.input.view(-1).narrow(0, 0, count));
        begin += count;
      }
    }
    return done(call);
  }
  std::shared_ptr<Work> reduce_scatter(const Call& call, std::vector<ScatterPart>, at::ScalarType,
                                       ReduceOp) override {
    return done(call);
  }
  std::shared_ptr<Work> all_reduce(const Call& call, const at::Tensor&, ReduceOp) override {
    return done(call);
  }
  std::shared_ptr<Work> all_to_all(const Call& call, const at::Tensor& output, const at::Tensor& input,
                                   const std::vector<int64_t>&,
                                   const std::vector<int64_t>& input_counts) override {
    if (output.is_meta()) return done(call);
    const at::NoGradGuard no_grad;
    // Every rank sends to this one what this one sends to itself.
    const std::vector<int64_t> counts =
        input_counts.empty() ? std::vector<int64_t>(static_cast<size_t>(size_), input.numel() / size_)
                             : input_counts;
    const auto own = counts.begin() + rank_;
    const at::Tensor part = input.view(-1).narrow(0, std::accumulate(counts.begin(), own, int64_t{0}), *own);
    output.view({size_, part.numel()}).copy_(part);
    return done(call);
  }
  std::shared_ptr<Work> broadcast(const Call& call, const at::Tensor&, int64_t) override {
    return done(call);
  }
  std::shared_ptr<Work> batch_p2p(const Call& call, std::vector<P2pOp>) override { return done(call); }
  std::shared_ptr<Work> barrier(const Call& call) override { return done(call); }

  at::Tensor shared_bytes(const Call&, int64_t num_bytes) override {
    if (!shares_memory_ || size_ == 1) return at::Tensor();
    return at::empty({num_bytes}, at::TensorOptions().dtype(at::kByte).device(at::kMeta));
  }
  std::shared_ptr<Work> write_shared(const Call& call, int64_t, std::function<void()>) override {
    return done(call);
  }

  std::unique_ptr<TensorBackend> split(const Call&, int64_t, int64_t key, int64_t size) override {
    TESSERA_CHECK_ARGUMENT(key >= 0 && key < size,
                           "a part of a dry group needs its size, and its rank as key");
    return std::make_unique<DryBackend>(key, size, shares_memory_);
  }

 private:
  static std::shared_ptr<Work> done(const Call& call) { return std::make_shared<DoneWork>(call.description); }

  const int64_t rank_, size_;
  const bool shares_memory_;
};

}  // namespace

std::shared_ptr<Communicator> make_dry_world(int64_t rank, int64_t size, bool shares_memory) {
  return std::make_shared<Communicator>(std::make_unique<DryBackend>(rank, size, shares_memory));
}

}  // namespace tessera::comm

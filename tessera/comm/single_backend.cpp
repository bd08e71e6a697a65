#include "tessera/comm/single_backend.h"

#include <ATen/ATen.h>

#include "tessera/comm/done_work.h"
#include "tessera/comm/mailbox.h"
#include "tessera/core/check_argument.h"

namespace tessera::comm::detail {
namespace {

class SingleBackend : public TensorBackend {
 public:
  explicit SingleBackend(at::Device device) : device_(device) {}
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 1; }
  std::string name() const override { return "single"; }
  at::Device device() const override { return device_; }
  void check_tensor(const at::Tensor& tensor, std::string_view operation) const override {
    TESSERA_CHECK_ARGUMENT(tensor.defined() && tensor.is_contiguous(),
                           std::string(operation) + " needs contiguous tensors");
  }

  std::shared_ptr<Work> all_gather(const Call& call, std::vector<GatherPart> parts) override {
    wait_for(call.after);
    for (const GatherPart& part : parts) copy(part.output, part.input);
    return done(call);
  }
  std::shared_ptr<Work> reduce_scatter(const Call& call, std::vector<ScatterPart> parts, at::ScalarType,
                                       ReduceOp) override {
    const at::NoGradGuard no_grad;
    wait_for(call.after);
    for (const ScatterPart& part : parts) {
      if (part.input.defined()) {
        part.output.view(-1).copy_(part.input.view(-1).narrow(0, part.pieces[0].begin, part.pieces[0].count));
      } else {
        part.output.zero_();
      }
    }
    return done(call);
  }
  std::shared_ptr<Work> all_reduce(const Call& call, const at::Tensor&, ReduceOp) override {
    wait_for(call.after);
    return done(call);
  }
  std::shared_ptr<Work> all_to_all(const Call& call, const at::Tensor& output, const at::Tensor& input,
                                   const std::vector<int64_t>& output_counts,
                                   const std::vector<int64_t>& input_counts) override {
    TESSERA_CHECK_ARGUMENT(output_counts == input_counts, call.description + " sends and takes as much");
    wait_for(call.after);
    copy(output, input);
    return done(call);
  }
  std::shared_ptr<Work> broadcast(const Call& call, const at::Tensor&, int64_t) override {
    wait_for(call.after);
    return done(call);
  }
  std::shared_ptr<Work> batch_p2p(const Call& call, std::vector<P2pOp> ops) override {
    wait_for(call.after);
    auto batch = std::make_shared<P2pBatch>(call.description, call.timeout, 0, std::move(ops));
    mailbox_.post(0, batch);
    return batch;
  }
  std::shared_ptr<Work> barrier(const Call& call) override { return done(call); }
  std::unique_ptr<TensorBackend> split(const Call&, int64_t, int64_t, int64_t) override {
    return make_single_backend(device_);
  }

 private:
  static std::shared_ptr<Work> done(const Call& call) { return std::make_shared<DoneWork>(call.description); }
  static void wait_for(const std::shared_ptr<Work>& after) {
    if (after != nullptr) after->wait();
  }
  static void copy(const at::Tensor& output, const at::Tensor& input) {
    const at::NoGradGuard no_grad;
    if (!output.is_alias_of(input) || output.storage_offset() != input.storage_offset())
      output.view(-1).copy_(input.view(-1));
  }

  at::Device device_;
  Mailbox mailbox_;
};

}  // namespace

std::unique_ptr<TensorBackend> make_single_backend(at::Device device) {
  return std::make_unique<SingleBackend>(device);
}

}  // namespace tessera::comm::detail

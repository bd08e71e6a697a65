#include "tessera/parallel/activation_offload.h"

#include <exception>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>

#include "tessera/device/device_event.h"
#include "tessera/device/memory_scope.h"
#include "tessera/device/pinned_memory.h"
#include "tessera/nn/call_hook.h"
#include "tessera/ops/saved_activation.h"

namespace tessera::parallel {
namespace {

struct CopyStreams {
  c10::Stream to_host, to_device;  // two streams, since a link carries both ways at once
};

class BlockActivations;

// One saved tensor, in the memory of the device, of the host or, while a copy is under way, of both.
class OffloadedActivation : public ops::StoredActivation {
 public:
  OffloadedActivation(std::shared_ptr<BlockActivations> of, at::Tensor x)
      : block(std::move(of)), on_device(std::move(x)) {}
  ~OffloadedActivation() override;
  at::Tensor get() override;

  const std::shared_ptr<BlockActivations> block;
  at::Tensor on_device, on_host;
};

// [Note: order of offload copies]
// The activations that one forward of a block has saved; the object lives as long as any of them. Three
// events order the copies, and the host never waits:
//  - is_made: recorded on the compute stream behind the forward, so the copy to the host reads finished
//    values; recorded again in bring() behind all that may still use the memory that the copy back is going
//    to write.
//  - is_out: recorded behind the copies to the host. The compute stream waits for it before the device's
//    memory is released, since the allocator may hand that memory to the next op of that stream at once.
//  - is_back: recorded behind the copies to the device. The compute stream waits for it before the backward
//    reads.
class BlockActivations : public std::enable_shared_from_this<BlockActivations> {
 public:
  BlockActivations(c10::Device device, CopyStreams streams, std::weak_ptr<BlockActivations> before)
      : device_(device),
        streams_(streams),
        before_(std::move(before)),
        is_made_(device),
        is_out_(device),
        is_back_(device) {}

  // Returns the one object for all ops that save the same tensor.
  std::shared_ptr<OffloadedActivation> add(const at::Tensor& x) {
    for (const auto& weak : all_) {
      const auto one = weak.lock();
      if (one != nullptr && is_same(one->on_device, x)) return one;
    }
    auto added = std::make_shared<OffloadedActivation>(shared_from_this(), x.detach());
    all_.push_back(added);
    return added;
  }

  // Starts the copies to the host. Call it when the forward has been submitted.
  void send() {
    const at::NoGradGuard no_grad;
    is_made_.record();
    const c10::StreamGuard guard(streams_.to_host);
    is_made_.wait();
    for_each([this](OffloadedActivation& one) {
      one.on_host = empty_pinned(one.on_device.sizes(), one.on_device.scalar_type(), device_);
      one.on_host.copy_(one.on_device, /*non_blocking=*/true);
    });
    is_out_.record();
  }

  // Releases the device's memory to what the current stream runs next, which waits for the copies to the
  // host.
  void let_go() {
    if (state_ != State::Made) return;
    state_ = State::Away;
    is_out_.wait();
    for_each([](OffloadedActivation& one) { one.on_device.reset(); });
  }

  // Starts the copies back to the device if the activations are away. Their memory comes from the allocator
  // of the current stream, whose earlier work may still use it, so the copies wait for that work.
  void bring() {
    if (state_ != State::Away) return;
    state_ = State::Coming;
    const at::NoGradGuard no_grad;
    const MemoryScope memory(MemoryCategory::Activations);
    for_each([this](OffloadedActivation& one) {
      one.on_device = at::empty(one.on_host.sizes(), one.on_host.options().device(device_));
    });
    is_made_.record();
    const c10::StreamGuard guard(streams_.to_device);
    is_made_.wait();
    for_each([](OffloadedActivation& one) {
      one.on_device.copy_(one.on_host, /*non_blocking=*/true);
      one.on_host.reset();
    });
    is_back_.record();
  }

  // Makes the activations available to what the current stream runs next, and starts to bring back those of
  // the block before, whose backward comes next.
  void need() {
    bring();
    wait();
    state_ = State::Used;
    if (const auto before = std::exchange(before_, {}).lock()) before->bring();
  }
  void wait() {
    if (state_ != State::Coming) return;
    state_ = State::Used;
    is_back_.wait();
  }

 private:
  // The order of the states. The last block goes from Made to Used at once, since its activations never
  // leave.
  enum class State { Made, Away, Coming, Used };

  static bool is_same(const at::Tensor& a, const at::Tensor& b) {
    return a.is_alias_of(b) && a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() &&
           a.scalar_type() == b.scalar_type();
  }
  template <class F>
  void for_each(const F& f) {
    for (const auto& weak : all_) {
      if (const auto one = weak.lock()) f(*one);
    }
  }

  const c10::Device device_;
  const CopyStreams streams_;
  std::weak_ptr<BlockActivations> before_;
  std::vector<std::weak_ptr<OffloadedActivation>> all_;
  DeviceEvent is_made_, is_out_, is_back_;
  State state_ = State::Made;
};

OffloadedActivation::~OffloadedActivation() {
  try {
    // If nobody asked for the activation, its memory is released while the copy into it may be under way.
    block->wait();
  } catch (const std::exception&) {  // the device has failed, which other operations report
  }
}

at::Tensor OffloadedActivation::get() {
  block->need();
  return on_device;
}

// The state that all blocks of a model share.
class Offload {
 public:
  Offload(c10::Device device, int64_t least_bytes)
      : device_(device), least_bytes_(least_bytes), streams_{pool_stream(device), pool_stream(device)} {}

  std::shared_ptr<BlockActivations> begin_block() const {
    return std::make_shared<BlockActivations>(device_, streams_, last_);
  }
  // Starts the copies of `block` and releases the device's memory of the block before, whose copies have had
  // the time of this block's forward to finish.
  void end_block(const std::shared_ptr<BlockActivations>& block) {
    block->send();
    if (const auto before = std::exchange(last_, block).lock()) before->let_go();
  }
  bool takes(const at::Tensor& x) const {
    return x.device() == device_ && x.is_contiguous() && static_cast<int64_t>(x.nbytes()) >= least_bytes_;
  }

 private:
  const c10::Device device_;
  const int64_t least_bytes_;
  const CopyStreams streams_;
  std::weak_ptr<BlockActivations> last_;
};

class BlockStore : public ops::ActivationStore {
 public:
  BlockStore(const Offload& offload, std::shared_ptr<BlockActivations> block)
      : offload_(offload), block_(std::move(block)) {}
  std::shared_ptr<ops::StoredActivation> put(const at::Tensor& x) override {
    return offload_.takes(x) ? block_->add(x) : nullptr;
  }

 private:
  const Offload& offload_;
  const std::shared_ptr<BlockActivations> block_;
};

class OffloadHook : public nn::CallHook {
 public:
  explicit OffloadHook(std::shared_ptr<Offload> offload) : offload_(std::move(offload)) {}

  at::Tensor run(const at::Tensor& input, const Forward& next) override {
    if (!at::GradMode::is_enabled()) return next(input);
    const auto block = offload_->begin_block();
    BlockStore store(*offload_, block);
    const at::Tensor output = [&] {
      const ops::ActivationStoreScope scope(&store);
      return next(input);
    }();
    offload_->end_block(block);
    return output;
  }

 private:
  const std::shared_ptr<Offload> offload_;
};

}  // namespace

void offload_activations(const std::vector<std::shared_ptr<torch::nn::Module>>& blocks, c10::Device device,
                         int64_t least_bytes) {
  if (!has_streams(device)) return;
  const auto offload = std::make_shared<Offload>(device, least_bytes);
  for (const auto& block : blocks) nn::add_call_hook(*block, std::make_shared<OffloadHook>(offload));
}

}  // namespace tessera::parallel

#include "tessera/parallel/fsdp/gather_slots.h"

#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/memory_ledger.h"
#include "tessera/device/memory_scope.h"

namespace tessera::parallel::detail {

at::Tensor GatherSlots::make(int64_t num_bytes) {
  if (!are_shared()) {
    const MemoryScope memory(MemoryCategory::GatheredParameters);
    if (has_registered_) {
      const at::Tensor registered = group_->registered_bytes(num_bytes);
      has_registered_ = registered.defined();
      if (has_registered_) return registered;
    }
    return at::empty({num_bytes}, at::TensorOptions(group_->device()).dtype(at::kByte));
  }
  const MemoryScope scope(MemoryCategory::GatheredParameters);
  const at::Tensor memory = group_->shared_bytes(num_bytes);
  // LibTorch's allocators count memory of the meta device, and do not know of shared memory.
  if (!memory.defined() || memory.is_meta()) return memory;
  memory_ledger::add_external(MemoryCategory::GatheredParameters, num_bytes);
  const auto release = [memory, num_bytes](void*) {
    memory_ledger::add_external(MemoryCategory::GatheredParameters, -num_bytes);
  };
  return at::from_blob(memory.mutable_data_ptr(), {num_bytes}, release, memory.options());
}

c10::Stream GatherSlots::copy_stream() {
  if (!copy_stream_) copy_stream_ = pool_stream(group_->device());
  return *copy_stream_;
}

std::optional<GatherSlot> GatherSlots::take(int64_t num_bytes) {
  if (is_refused_ || num_bytes == 0) return std::nullopt;
  std::vector<GatherSlot>& free = free_[num_bytes];
  if (!free.empty()) {
    GatherSlot slot = std::move(free.back());
    free.pop_back();
    slot.last_read.wait();
    return slot;
  }
  const at::Tensor memory = make(num_bytes);
  is_refused_ = !memory.defined();
  if (is_refused_) return std::nullopt;
  return GatherSlot{memory, DeviceEvent(group_->device())};
}

void GatherSlots::give_back(GatherSlot slot) {
  std::vector<GatherSlot>& free = free_[slot.bytes.numel()];
  if (free.size() >= kKept && (are_shared() || !has_registered_)) return;
  slot.last_read.record();
  free.push_back(std::move(slot));
}

}  // namespace tessera::parallel::detail

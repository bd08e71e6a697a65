#include "tessera/parallel/fsdp/gather_slots.h"

#include <ATen/ATen.h>

#include "tessera/core/memory_ledger.h"

namespace tessera::parallel::detail {

at::Tensor GatherSlots::take(int64_t num_bytes) {
  if (is_refused_ || group_->size() == 1 || num_bytes == 0) return at::Tensor();
  std::vector<at::Tensor>& free = free_[num_bytes];
  if (!free.empty()) {
    at::Tensor slot = std::move(free.back());
    free.pop_back();
    return slot;
  }
  const at::Tensor memory = group_->shared_bytes(num_bytes);
  is_refused_ = !memory.defined();
  if (is_refused_) return at::Tensor();
  memory_ledger::add_external(MemoryCategory::GatheredParameters, num_bytes);
  const auto release = [memory, num_bytes](void*) {
    memory_ledger::add_external(MemoryCategory::GatheredParameters, -num_bytes);
  };
  return at::from_blob(memory.mutable_data_ptr(), {num_bytes}, release, memory.options());
}

void GatherSlots::give_back(at::Tensor slot) {
  std::vector<at::Tensor>& free = free_[slot.numel()];
  if (free.size() < kKept) free.push_back(std::move(slot));
}

}  // namespace tessera::parallel::detail

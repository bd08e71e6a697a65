#include "tessera/comm/nccl/registered_memory.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "tessera/core/error.h"
#include "tessera/device/device_memory.h"

namespace tessera::comm::detail {

struct RegisteredMemory::State {
  struct Block {
    int64_t num_bytes = 0;
    void* registration = nullptr;
    bool is_aside = false;  // its tensor has gone
  };
  using Blocks = std::map<void*, Block>;

  State(at::Device device, std::shared_ptr<const NcclLibrary> library, NcclHandle comm)
      : device(device), library(std::move(library)), comm(comm) {}

  const at::Device device;
  const std::shared_ptr<const NcclLibrary> library;
  NcclHandle comm;   // null from end() on
  std::mutex mutex;  // guards comm and blocks
  Blocks blocks;

  ~State() { try_to_free(); }

  // Counts `num_bytes` more, or fewer, as memory of the device.
  void count(void* memory, int64_t num_bytes) const {
    add_device_memory(device, num_bytes);
    c10::reportMemoryUsageToProfiler(memory, num_bytes, 0, 0, device);
  }
  void deregister(Block& block) const {
    if (void* const registration = std::exchange(block.registration, nullptr); registration != nullptr)
      library->deregister(comm, registration);
  }
  // Frees `gone`, whose tensors have gone, behind a wait for the device.
  void free(Blocks gone) const {
    if (gone.empty()) return;
    const c10::DeviceGuard guard(device);
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
    for (auto& [memory, block] : gone) {
      deregister(block);
      library->free(memory);
    }
  }
  // Takes out the blocks that were put aside.
  Blocks take_aside() {
    const std::lock_guard<std::mutex> lock(mutex);
    Blocks gone;
    for (auto at = blocks.begin(); at != blocks.end();) {
      const auto block = at++;
      if (block->second.is_aside) gone.insert(blocks.extract(block));
    }
    return gone;
  }
  // Called when a tensor goes, by any thread. While the communicator is in use the block is only put aside,
  // as the thread may not wait; after end() it is freed here.
  void put_aside(void* memory) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      Block& block = blocks.at(memory);
      count(memory, -block.num_bytes);
      block.is_aside = true;
      if (comm != nullptr) return;
    }
    try_to_free();
  }
  void try_to_free() {
    try {
      free(take_aside());
    } catch (const std::exception&) {  // a device that has failed gives nothing back
    }
  }
};

RegisteredMemory::RegisteredMemory(at::Device device, std::shared_ptr<const NcclLibrary> library,
                                   NcclHandle comm)
    : state_(std::make_shared<State>(device, std::move(library), comm)) {}

at::Tensor RegisteredMemory::make(int64_t num_bytes) {
  State& state = *state_;
  state.free(state.take_aside());
  const c10::DeviceGuard guard(state.device);
  void* const memory = state.library->allocate(static_cast<size_t>(num_bytes));
  if (memory == nullptr) return at::Tensor();
  State::Block block{num_bytes};
  try {
    block.registration = state.library->register_memory(state.comm, memory, static_cast<size_t>(num_bytes));
  } catch (const Error&) {
    state.library->free(memory);
    return at::Tensor();
  }
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    state.blocks.emplace(memory, block);
    state.count(memory, num_bytes);
  }
  return at::for_blob(memory, {num_bytes})
      .deleter([owner = state_](void* gone) { owner->put_aside(gone); })
      .options(at::TensorOptions(state.device).dtype(at::kByte))
      .target_device(state.device)
      .make_tensor();
}

void RegisteredMemory::end() {
  State& state = *state_;
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    for (auto& [memory, block] : state.blocks) state.deregister(block);
    state.comm = nullptr;
  }
  state.free(state.take_aside());
}

void RegisteredMemory::forget() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  for (auto& [memory, block] : state_->blocks) block.registration = nullptr;
}

}  // namespace tessera::comm::detail

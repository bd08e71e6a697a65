#include "tessera/device/cpu_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include "tessera/core/environment.h"
#include "tessera/core/memory_ledger.h"
#include "tessera/device/memory_scope.h"

namespace tessera {
namespace {

constexpr size_t kSmallestPooled = size_t{64} << 10;

// Lives to the end of the process: tensors with static lifetime are freed after main().
PagePool* g_pool = nullptr;

void free_memory(void* data) {
  if (data == nullptr) return;
  c10::profiledCPUMemoryReporter().Delete(data);
  if (memory_ledger::is_on()) memory_ledger::remove(data);
  if (g_pool != nullptr && g_pool->owns(data)) {
    g_pool->deallocate(data);
  } else {
    c10::free_cpu(data);
  }
}

class CpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = g_pool != nullptr && bytes >= kSmallestPooled ? g_pool->allocate(bytes) : nullptr;
    if (data == nullptr) data = allocate_default(bytes);
    c10::profiledCPUMemoryReporter().New(data, bytes);
    if (data != nullptr && memory_ledger::is_on())
      memory_ledger::add(data, static_cast<int64_t>(bytes), current_memory_category());
    return {data, data, &free_memory, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_memory; }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }

 private:
  static void* allocate_default(size_t bytes) {
    try {
      return c10::alloc_cpu(bytes);
    } catch (const c10::Error&) {
      // Memory may be short because the pool keeps unused pages, or, if the system does not overcommit,
      // because it keeps the free end of its committed range.
      trim_cpu_allocator();
    }
    try {
      return c10::alloc_cpu(bytes);
    } catch (const c10::Error&) {
      c10::profiledCPUMemoryReporter().OutOfMemory(bytes);
      throw;
    }
  }
};

int64_t idle_bytes() {
  const PagePoolStats stats = g_pool->stats();
  return stats.resident_bytes - stats.live_bytes;
}

bool is_wanted() {
#if defined(__SANITIZE_ADDRESS__)
  return false;
#else
  return environment::get_flag("TESSERA_CACHING_ALLOCATOR").value_or(true);
#endif
}

}  // namespace

bool install_cpu_allocator() {
  static const bool is_installed = [] {
    if (is_wanted()) {
      PagePoolOptions options;
      options.wants_huge_pages = true;
      auto pool = std::make_unique<PagePool>(options);
      if (pool->is_available()) g_pool = pool.release();
    }
    constexpr uint8_t kPriority = 1;  // above LibTorch's default
    c10::SetCPUAllocator(new CpuAllocator, kPriority);
    if (g_pool != nullptr) memory_ledger::set_idle_bytes(idle_bytes);
    return g_pool != nullptr;
  }();
  return is_installed;
}

void trim_cpu_allocator() {
  if (g_pool != nullptr) g_pool->trim();
}

PagePoolStats cpu_allocator_stats() { return g_pool != nullptr ? g_pool->stats() : PagePoolStats(); }

}  // namespace tessera

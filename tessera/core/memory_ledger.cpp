#include "tessera/core/memory_ledger.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <unordered_map>

namespace tessera {
namespace {

struct Block {
  int64_t bytes;
  MemoryCategory category;
};

struct Ledger {
  std::mutex mutex;
  std::unordered_map<const void*, Block> blocks;
  memory_ledger::Peak live, peak, most;
  int64_t total = 0, peak_total = 0;
  int64_t (*idle_bytes)() = nullptr;

  void change(MemoryCategory category, int64_t bytes) {
    constexpr int64_t kResolution = int64_t{1} << 20;
    const auto i = static_cast<size_t>(category);
    live.bytes[i] += bytes;
    most.bytes[i] = std::max(most.bytes[i], live.bytes[i]);
    total += bytes;
    // A peak of a mebibyte or more is noted anew only when it is exceeded by another mebibyte.
    if (total < peak_total + (peak_total >= kResolution ? kResolution : 1)) return;
    peak = live;
    peak_total = total;
    if (idle_bytes != nullptr) peak.idle_bytes = idle_bytes();
  }
};

// Never destroyed: tensors may be freed after main().
Ledger& ledger() {
  static auto* instance = new Ledger;
  return *instance;
}

}  // namespace

std::string_view memory_category_name(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::Parameters: return "parameters";
    case MemoryCategory::GatheredParameters: return "gathered parameters";
    case MemoryCategory::Gradients: return "gradients";
    case MemoryCategory::OptimizerState: return "optimizer state";
    case MemoryCategory::Activations: return "activations";
    case MemoryCategory::Loss: return "loss";
    case MemoryCategory::Backward: return "backward";
    case MemoryCategory::Communication: return "communication";
    case MemoryCategory::Other: break;
  }
  return "other tensors";
}

namespace memory_ledger {
namespace detail {
std::atomic<bool> g_is_on{false};
}

int64_t Peak::total() const { return std::accumulate(bytes.begin(), bytes.end(), int64_t{0}); }

void start() {
  Ledger& all = ledger();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.blocks.clear();
  all.live = all.peak = all.most = Peak();
  all.total = all.peak_total = 0;
  detail::g_is_on.store(true);
}

void stop() { detail::g_is_on.store(false); }

void add(const void* memory, int64_t bytes, MemoryCategory category) noexcept {
  Ledger& all = ledger();
  const std::lock_guard<std::mutex> lock(all.mutex);
  try {
    if (!all.blocks.emplace(memory, Block{bytes, category}).second) return;
  } catch (const std::bad_alloc&) {
    return;  // the block stays uncounted
  }
  all.change(category, bytes);
}

void remove(const void* memory) noexcept {
  Ledger& all = ledger();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.blocks.find(memory);
  if (found == all.blocks.end()) return;
  all.change(found->second.category, -found->second.bytes);
  all.blocks.erase(found);
}

void add_external(MemoryCategory category, int64_t bytes) noexcept {
  if (!is_on()) return;
  Ledger& all = ledger();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.change(category, bytes);
}

Peak live() {
  const std::lock_guard<std::mutex> lock(ledger().mutex);
  return ledger().live;
}

Peak peak() {
  const std::lock_guard<std::mutex> lock(ledger().mutex);
  return ledger().peak;
}

Peak most() {
  const std::lock_guard<std::mutex> lock(ledger().mutex);
  return ledger().most;
}

void set_idle_bytes(int64_t (*idle_bytes)()) {
  const std::lock_guard<std::mutex> lock(ledger().mutex);
  ledger().idle_bytes = idle_bytes;
}

}  // namespace memory_ledger
}  // namespace tessera

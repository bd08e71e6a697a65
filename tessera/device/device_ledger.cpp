#include "tessera/device/device_ledger.h"

#include <memory>

#include <c10/core/Allocator.h>

#include "tessera/core/memory_ledger.h"
#include "tessera/device/memory_scope.h"

namespace tessera {
namespace {

// LibTorch's allocators report here as they do to its profiler.
class Report : public c10::MemoryReportingInfoBase {
 public:
  explicit Report(c10::Device device) : device_(device) {}

  void reportMemoryUsage(void* memory, int64_t bytes, size_t, size_t, c10::Device device) override {
    if (device != device_) return;
    // The ledger may still have the block: that it came back was not told if that was on a thread for which
    // this does not hold.
    memory_ledger::remove(memory);
    if (bytes > 0) memory_ledger::add(memory, bytes, current_memory_category());
  }
  void reportOutOfMemory(int64_t, size_t, size_t, c10::Device) override {}
  bool memoryProfilingEnabled() const override { return true; }

 private:
  const c10::Device device_;
};

}  // namespace

DeviceLedger::DeviceLedger(c10::Device device)
    : guard_(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Report>(device)) {
  memory_ledger::start();
  // The host's allocator asks whether the ledger is on, and so adds nothing; the reports of this object do
  // not ask.
  memory_ledger::stop();
}

DeviceLedger::~DeviceLedger() = default;

}  // namespace tessera

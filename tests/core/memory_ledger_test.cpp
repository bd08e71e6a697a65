#include "tessera/core/memory_ledger.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Any addresses will do.
const char g_places[8] = {};

TEST(MemoryLedgerTest, ThePeakIsKept) {
  memory_ledger::start();
  memory_ledger::add(&g_places[0], 3 * kMiB, MemoryCategory::Other);
  memory_ledger::add(&g_places[1], 5 * kMiB, MemoryCategory::Backward);
  memory_ledger::remove(&g_places[0]);
  memory_ledger::remove(&g_places[7]);  // memory that was allocated before start()
  memory_ledger::add(&g_places[0], 4 * kMiB - kMiB / 2, MemoryCategory::Other);
  memory_ledger::stop();
  const memory_ledger::Peak peak = memory_ledger::peak();
  EXPECT_EQ(peak.of(MemoryCategory::Other), 3 * kMiB) << "half a mebibyte more is not a new peak";
  EXPECT_EQ(peak.of(MemoryCategory::Backward), 5 * kMiB);
  EXPECT_EQ(peak.total(), 8 * kMiB);
  EXPECT_EQ(memory_ledger::live().of(MemoryCategory::Other), 4 * kMiB - kMiB / 2);
  EXPECT_EQ(memory_ledger::most().of(MemoryCategory::Other), 4 * kMiB - kMiB / 2);
  memory_ledger::start();
  EXPECT_EQ(memory_ledger::peak().total(), 0);
  memory_ledger::stop();
}

TEST(MemoryLedgerTest, SmallUseIsCountedToTheByte) {
  memory_ledger::start();
  memory_ledger::add(&g_places[0], 100, MemoryCategory::Other);
  memory_ledger::add(&g_places[1], 1, MemoryCategory::Other);
  memory_ledger::remove(&g_places[0]);
  memory_ledger::add_external(MemoryCategory::GatheredParameters, 50);
  memory_ledger::add_external(MemoryCategory::GatheredParameters, -20);
  memory_ledger::stop();
  memory_ledger::add_external(MemoryCategory::GatheredParameters, 7);
  EXPECT_EQ(memory_ledger::peak().total(), 101);
  EXPECT_EQ(memory_ledger::live().of(MemoryCategory::GatheredParameters), 30);
}

}  // namespace
}  // namespace tessera

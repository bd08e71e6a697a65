// Runs ranks as threads, each with a fake device, which communicate through the stub of NCCL.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "tests/comm/nccl/thread_ranks.h"
#include "tests/testing/fake_device.h"

namespace tessera::testing {

inline std::shared_ptr<const comm::detail::NcclLibrary> stub_library() {
  return comm::detail::NcclLibrary::require(TESSERA_STUB_NCCL);
}

inline const StubNccl& stub_at(const std::string& path) {
  const StubNccl& found = stub_table(path);
  found.set_enqueue([](void* stream, void (*run)(void*), void* argument) {
    fake_device::enqueue(stream, [run, argument] { run(argument); });
  });
  return found;
}
inline const StubNccl& stub() {
  static const StubNccl& table = stub_at(TESSERA_STUB_NCCL);
  return table;
}

// Makes streams run late by random delays of this seed, to which TESSERA_TEST_SEED is added. Prints the seed.
inline void use_delays(uint64_t seed, fake_device::Lost lost = fake_device::Lost::None) {
  if (const char* more = std::getenv("TESSERA_TEST_SEED"); more != nullptr)
    seed += std::strtoull(more, nullptr, 10);
  std::printf("delays of seed %llu\n", static_cast<unsigned long long>(seed));
  fake_device::configure({.seed = seed, .lost = lost});
}

// Options of run_nccl_ranks(), which runs body(communicator) on a thread for each rank and rethrows the first
// exception. Rank i has device i, or all ranks share device 0.
struct NcclRun {
  std::string library = TESSERA_STUB_NCCL;
  std::chrono::milliseconds start_timeout = std::chrono::minutes(10);
  bool shares_device = false;
};
inline void run_nccl_ranks(int64_t size, const RankBody& body, const NcclRun& run = {}) {
  stub_at(run.library);
  const auto device = [&](int64_t rank) { return fake_device::device(run.shares_device ? 0 : rank); };
  run_thread_ranks({size, run.library, device, run.shares_device, run.start_timeout}, body);
}

}  // namespace tessera::testing

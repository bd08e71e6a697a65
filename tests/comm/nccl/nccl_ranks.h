// Ranks that are threads, each with a fake device, which talk by the stub of NCCL.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <c10/core/DeviceGuard.h>
#include <dlfcn.h>

#include "tessera/comm/communicator.h"
#include "tessera/comm/fake/fake_backend.h"
#include "tessera/comm/nccl/nccl_backend.h"

#include "tests/comm/nccl/stub_nccl.h"
#include "tests/testing/fake_device.h"

namespace tessera::testing {
namespace detail {
// Before main(): autograd has a thread for each device that there is at the first backward.
inline const bool kHasFakeDevices = [] {
  fake_device::install();
  return true;
}();
}  // namespace detail

inline std::shared_ptr<const comm::detail::NcclLibrary> stub_library() {
  return comm::detail::NcclLibrary::open(TESSERA_STUB_NCCL);
}

inline const StubNccl& stub_at(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW);
  const auto get = reinterpret_cast<decltype(&stub_nccl)>(dlsym(library, "stub_nccl"));
  const StubNccl& found = *get();
  found.set_enqueue([](void* stream, void (*run)(void*), void* argument) {
    fake_device::enqueue(stream, [run, argument] { run(argument); });
  });
  return found;
}
inline const StubNccl& stub() {
  static const StubNccl& table = stub_at(TESSERA_STUB_NCCL);
  return table;
}

// Streams are delayed by this seed, which is printed; TESSERA_TEST_SEED is added to it.
inline void use_delays(uint64_t seed, fake_device::Lost lost = fake_device::Lost::None) {
  if (const char* more = std::getenv("TESSERA_TEST_SEED"); more != nullptr)
    seed += std::strtoull(more, nullptr, 10);
  std::printf("delays of seed %llu\n", static_cast<unsigned long long>(seed));
  fake_device::configure({.seed = seed, .lost = lost});
}

// Runs body(communicator) on threads, whose devices are numbered as they are, and rethrows the first
// exception.
struct NcclRun {
  std::string library = TESSERA_STUB_NCCL;
  std::chrono::milliseconds start_timeout = std::chrono::minutes(10);
};
inline void run_nccl_ranks(int64_t size,
                           const std::function<void(const std::shared_ptr<comm::Communicator>&)>& body,
                           const NcclRun& run = {}) {
  stub_at(run.library);
  auto hosts = comm::make_fake_backends(size);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank, host = std::move(hosts[static_cast<size_t>(rank)])]() mutable {
      const c10::Device device = fake_device::device(rank);
      const c10::DeviceGuard guard(device);
      try {
        body(std::make_shared<comm::Communicator>(comm::detail::make_nccl_backend(
            std::move(host), device, comm::detail::NcclLibrary::open(run.library), run.start_timeout)));
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

}  // namespace tessera::testing

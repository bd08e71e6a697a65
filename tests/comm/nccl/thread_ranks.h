// Runs ranks as threads of one process, which communicate through the stub of NCCL, on any kind of device.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

#include "tessera/comm/communicator.h"
#include "tessera/comm/fake/fake_backend.h"
#include "tessera/comm/nccl/nccl_backend.h"
#include "tessera/device/device_event.h"

#include "tests/comm/nccl/stub_nccl.h"
#include "tests/testing/stub_library.h"

namespace tessera::testing {

using RankBody = std::function<void(const std::shared_ptr<comm::Communicator>&)>;

struct ThreadRanks {
  int64_t size = 1;
  std::string library;  // path of the stub of NCCL
  std::function<c10::Device(int64_t rank)> device;
  bool shares_device = false;  // all ranks share one device, each with a stream of its own
  std::chrono::milliseconds start_timeout = std::chrono::minutes(10);
};

inline const StubNccl& stub_table(const std::string& path) {
  return stub_of<const StubNccl>(path, "stub_nccl");
}

// Runs body(communicator) on a thread for each rank, and rethrows the first exception.
inline void run_thread_ranks(const ThreadRanks& ranks, const RankBody& body) {
  auto hosts = comm::make_fake_backends(ranks.size);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks.size));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < ranks.size; ++rank) {
    threads.emplace_back([&, rank, host = std::move(hosts[static_cast<size_t>(rank)])]() mutable {
      const c10::Device device = ranks.device(rank);
      const c10::DeviceGuard guard(device);
      std::optional<c10::StreamGuard> own_stream;
      if (ranks.shares_device) own_stream.emplace(pool_stream(device));
      try {
        body(std::make_shared<comm::Communicator>(comm::detail::make_nccl_backend(
            std::move(host), device, comm::detail::NcclLibrary::require(ranks.library),
            ranks.start_timeout)));
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

// Runs ranks as threads of one process, all on one GPU, which communicate through the stub of NCCL. For
// tests that need a GPU. The process must have CUDA_DEVICE_MAX_CONNECTIONS=32, so that no stream is queued
// behind the wait of another one, and CUDA_MODULE_LOADING=EAGER, since loading a kernel late waits for all
// streams.
#pragma once

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/core/shared_library.h"
#include "tessera/device/pinned_memory.h"

#include "tests/comm/nccl/thread_ranks.h"
#include "tests/testing/cuda_device.h"

namespace tessera::testing {

// The functions of NVIDIA's driver that are used, as cuda.h declares them: handles are pointers, results are
// ints, 0 for success.
struct CudaDriver {
  int (*cuCtxGetCurrent)(void**);
  int (*cuCtxSetCurrent)(void*);
  int (*cuEventCreate)(void**, unsigned);
  int (*cuEventRecord)(void*, void*);
  int (*cuEventSynchronize)(void*);
  int (*cuEventDestroy_v2)(void*);
  int (*cuMemHostAlloc)(void**, size_t, unsigned);
  int (*cuStreamCreate)(void**, unsigned);
  int (*cuStreamSynchronize)(void*);
  int (*cuStreamWaitValue32_v2)(void*, uint64_t, uint32_t, unsigned);
  int (*cuMemcpyAsync)(uint64_t, uint64_t, size_t, void*);

  static const CudaDriver& get() {
    static const CudaDriver driver = [] {
      SharedLibrary library({"libcuda.so.1"});
      CudaDriver found;
#define TESSERA_FIND(name) library.find(found.name, #name)
      TESSERA_FIND(cuCtxGetCurrent);
      TESSERA_FIND(cuCtxSetCurrent);
      TESSERA_FIND(cuEventCreate);
      TESSERA_FIND(cuEventRecord);
      TESSERA_FIND(cuEventSynchronize);
      TESSERA_FIND(cuEventDestroy_v2);
      TESSERA_FIND(cuMemHostAlloc);
      TESSERA_FIND(cuStreamCreate);
      TESSERA_FIND(cuStreamSynchronize);
      TESSERA_FIND(cuStreamWaitValue32_v2);
      TESSERA_FIND(cuMemcpyAsync);
#undef TESSERA_FIND
      if (!library.is_usable()) throw std::runtime_error(library.why_not());
      return found;
    }();
    return driver;
  }
};

// Returns the first call of the driver that failed; "" if none has.
inline std::string& cuda_fault() {
  static std::string& fault = *new std::string;
  return fault;
}
inline void must(const char* what, int result) {
  static std::mutex& mutex = *new std::mutex;
  if (result == 0) return;
  const std::lock_guard<std::mutex> lock(mutex);
  if (cuda_fault().empty()) cuda_fault() = std::string(what) + ": CUresult " + std::to_string(result);
}

namespace detail {
inline constexpr int kEventWithoutTiming = 2, kStreamNonBlocking = 1, kPortable = 1, kAtLeast = 0;
inline constexpr size_t kNumFlags = 1 << 20;  // the most tasks of a process

// Returns the flags, one for each task, which is set when the task is done. They are made before the first
// task, since allocating pinned memory may wait for the streams.
inline std::atomic<uint32_t>* task_flags() {
  static std::atomic<uint32_t>* const flags = [] {
    void* memory = nullptr;
    must("cuMemHostAlloc",
         CudaDriver::get().cuMemHostAlloc(&memory, kNumFlags * sizeof(uint32_t), kPortable));
    return memory == nullptr ? nullptr : new (memory) std::atomic<uint32_t>[kNumFlags]();
  }();
  return flags;
}

// A stream takes about a thousand kernels. The launch of one more waits for room with CUDA's locks held, so
// that no other rank gets to the task that the stream waits for. A rank's own thread therefore waits before
// it is that far ahead. The thread of all ranks' backwards must not.
inline constexpr int kMostTasksAhead = 8;
inline thread_local std::shared_ptr<std::atomic<int>> t_tasks_ahead;  // null: not a rank's own thread
inline void wait_for_own_tasks() {
  while (t_tasks_ahead != nullptr && *t_tasks_ahead >= kMostTasksAhead)
    std::this_thread::sleep_for(std::chrono::microseconds(50));
}

// Runs the task on a thread of its own when the stream comes to it, and holds the stream until it has ended.
inline void enqueue_on_cuda(void* stream, void (*run)(void*), void* argument) {
  static std::atomic<size_t> next{0};
  const CudaDriver& driver = CudaDriver::get();
  std::atomic<uint32_t>* const flag = task_flags() + next++ % kNumFlags;
  flag->store(0);
  void *context = nullptr, *ready = nullptr;
  must("cuCtxGetCurrent", driver.cuCtxGetCurrent(&context));
  must("cuEventCreate", driver.cuEventCreate(&ready, kEventWithoutTiming));
  must("cuEventRecord", driver.cuEventRecord(ready, stream));
  // Pinned memory has one address for the host and the device.
  must("cuStreamWaitValue32",
       driver.cuStreamWaitValue32_v2(stream, reinterpret_cast<uint64_t>(flag), 1, kAtLeast));
  const std::shared_ptr<std::atomic<int>> ahead = t_tasks_ahead;
  if (ahead != nullptr) ++*ahead;
  std::thread([=, &driver] {
    must("cuCtxSetCurrent", driver.cuCtxSetCurrent(context));
    must("cuEventSynchronize", driver.cuEventSynchronize(ready));
    must("cuEventDestroy", driver.cuEventDestroy_v2(ready));
    run(argument);
    flag->store(1);
    if (ahead != nullptr) --*ahead;
  }).detach();
}

// Returns the stream of all copies, which the stub makes one after another. It is made before the first task.
inline void* copy_stream() {
  static void* const stream = [] {
    void* made = nullptr;
    must("cuStreamCreate", CudaDriver::get().cuStreamCreate(&made, kStreamNonBlocking));
    return made;
  }();
  return stream;
}

inline void move_on_cuda(void* to, const void* from, unsigned long num_bytes) {
  const CudaDriver& driver = CudaDriver::get();
  void* const stream = copy_stream();
  must("cuMemcpyAsync", driver.cuMemcpyAsync(reinterpret_cast<uint64_t>(to), reinterpret_cast<uint64_t>(from),
                                             num_bytes, stream));
  must("cuStreamSynchronize", driver.cuStreamSynchronize(stream));
}

// Allocates pinned memory and frees it, so that LibTorch keeps it for the ranks. They take some while
// streams wait for each other, and CUDA may wait for all streams before it gives more: that would be a
// deadlock.
inline void keep_pinned_memory(c10::Device device) {
  constexpr int64_t kSmallest = 64, kLargest = int64_t{1} << 20;
  constexpr int kOfEach = 32;
  std::vector<at::Tensor> kept;
  for (int64_t size = kSmallest; size <= kLargest; size *= 2)
    for (int i = 0; i < kOfEach; ++i) kept.push_back(empty_pinned({size}, at::kByte, device));
}
// Has LibTorch make a handle of cuBLAS for each rank and for the thread of backwards, and keep them: a handle
// takes memory from CUDA.
inline void keep_handles(int64_t size, c10::Device device) {
  std::barrier all(size);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&] {
      const at::Tensor x = at::ones({8, 8}, at::TensorOptions(device).dtype(at::kDouble));
      at::mm(x, x);
      all.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  at::Tensor x = at::ones({8, 8}, at::TensorOptions(device).dtype(at::kDouble)).requires_grad_();
  at::mm(x, x).sum().backward();
}
}  // namespace detail

// Returns the path of the stub, which lies beside the program.
inline std::string own_stub_path() { return SharedLibrary::own("libstub_nccl.so").path(); }

// Runs body(communicator) on a thread and a stream of the one device for each rank; rethrows the first
// exception.
inline void run_cuda_ranks(int64_t size, const RankBody& body) {
  const std::string library = own_stub_path();
  const c10::Device device = cuda_device();
  const StubNccl& stub = stub_table(library);
  stub.set_enqueue(&detail::enqueue_on_cuda);
  stub.set_move(&detail::move_on_cuda);
  stub.set_before_call(&detail::wait_for_own_tasks);
  // The first tensor makes the device's context the current one.
  at::zeros({1}, at::TensorOptions(device));
  detail::keep_pinned_memory(device);
  detail::keep_handles(size, device);
  if (detail::task_flags() == nullptr || detail::copy_stream() == nullptr)
    throw std::runtime_error(cuda_fault());
  run_thread_ranks(
      {.size = size, .library = library, .device = [&](int64_t) { return device; }, .shares_device = true},
      [&](const std::shared_ptr<comm::Communicator>& world) {
        detail::t_tasks_ahead = std::make_shared<std::atomic<int>>(0);
        body(world);
      });
}

}  // namespace tessera::testing

#include "tessera/device/device_graph.h"

#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>

#include "tessera/core/environment.h"
#include "tessera/core/log.h"
#include "tessera/core/shared_library.h"
#include "tessera/device/device_event.h"

namespace tessera {
namespace {

// The members of at::cuda::CUDAGraph as functions that take the object first. The header of the class wants
// CUDA's headers, so the members are looked up by the names that libtorch_cuda.so of LibTorch 2.11 has for
// them.
struct CudaGraph {
  void (*construct)(void*, bool keeps_nodes) = nullptr;
  void (*destroy)(void*) = nullptr;
  void (*begin)(void*, c10::MempoolId_t memory, int mode) = nullptr;
  void (*end)(void*) = nullptr;
  void (*replay)(void*) = nullptr;
  c10::MempoolId_t (*memory)(void*) = nullptr;

  // The mode of a recording that calls of other threads do not end (cudaStreamCaptureModeThreadLocal).
  static constexpr int kOfThisThread = 1;
};

// Gives the members, looked up once; null if one is missing.
const CudaGraph* cuda_graph() {
  static const std::optional<CudaGraph> kFound = [] {
    SharedLibrary process = SharedLibrary::of_process();
    CudaGraph found;
    process.find(found.construct, "_ZN2at4cuda9CUDAGraphC1Eb");
    process.find(found.destroy, "_ZN2at4cuda9CUDAGraphD1Ev");
    process.find(found.begin, "_ZN2at4cuda9CUDAGraph13capture_beginESt4pairIyyE21cudaStreamCaptureMode");
    process.find(found.end, "_ZN2at4cuda9CUDAGraph11capture_endEv");
    process.find(found.replay, "_ZN2at4cuda9CUDAGraph6replayEv");
    process.find(found.memory, "_ZN2at4cuda9CUDAGraph4poolEv");
    return process.is_usable() ? std::optional(found) : std::nullopt;
  }();
  return kFound ? &*kFound : nullptr;
}

std::atomic<bool> has_failed = false;  // no recording is tried after a failure

void note_failure(const std::string& why) {
  if (has_failed.exchange(true)) return;
  log::warn("the device cannot record CUDA graphs, so kernels are launched one by one: " +
            why.substr(0, why.find('\n')) + ". hint: TESSERA_GRAPHS=0 switches recording off");
}

// Gives the stream on which work is recorded. It is none of the default ones, and always the same for a
// device: libraries keep memory for each stream that they have seen.
c10::Stream recording_stream(c10::Device device) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, c10::Stream> streams;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = streams.find(device.index());
  return found != streams.end() ? found->second
                                : streams.emplace(device.index(), pool_stream(device)).first->second;
}

// Calls `run` and gives what it throws, in words; nothing if it does not throw.
std::optional<std::string> failure_of(const std::function<void()>& run) {
  try {
    run();
    return std::nullopt;
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

bool DeviceGraph::can_record(c10::Device device) {
  return has_streams(device) && !has_failed && environment::get_flag("TESSERA_GRAPHS").value_or(true) &&
         cuda_graph() != nullptr;
}

DeviceGraph::DeviceGraph(c10::Device device) : device_(device) {
  cuda_graph()->construct(graph_.data(), /*keeps_nodes=*/false);
}

DeviceGraph::~DeviceGraph() { cuda_graph()->destroy(graph_.data()); }

std::unique_ptr<DeviceGraph> DeviceGraph::record(c10::Device device, const std::function<void()>& work,
                                                 const DeviceGraph* beside) {
  if (!can_record(device)) return nullptr;
  const CudaGraph& cuda = *cuda_graph();
  const c10::StreamGuard stream(recording_stream(device));
  std::unique_ptr<DeviceGraph> graph(new DeviceGraph(device));
  // A graph takes memory from a pool of its own, which {0, 0} asks for, or from that of `beside`.
  const c10::MempoolId_t memory =
      beside == nullptr ? c10::MempoolId_t{0, 0} : cuda.memory(beside->graph_.data());
  std::optional<std::string> of_work,
      of_recording = failure_of([&] { cuda.begin(graph->graph_.data(), memory, CudaGraph::kOfThisThread); });
  if (!of_recording) {
    // A recording that has begun is ended also if `work` fails, or the stream would go on recording.
    of_work = failure_of(work);
    of_recording = failure_of([&] { cuda.end(graph->graph_.data()); });
  }
  if (!of_work && !of_recording) return graph;
  // If both have failed, the operation that was not allowed says more than the end of the recording.
  note_failure(of_work ? *of_work : *of_recording);
  // LibTorch's allocator goes on asking the object of a recording that has not ended, so that object is never
  // destroyed.
  if (of_recording) static_cast<void>(graph.release());
  return nullptr;
}

void DeviceGraph::replay() const {
  const c10::DeviceGuard device(device_);
  cuda_graph()->replay(graph_.data());
}

}  // namespace tessera

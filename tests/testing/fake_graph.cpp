// LibTorch's class of CUDA graphs for the fake device, with the symbol names that it has in libtorch_cuda.so.
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>

#include "tests/testing/fake_device.h"

enum cudaStreamCaptureMode : int {};

namespace at::cuda {
namespace {

namespace fake = tessera::testing::fake_device;

// Number of graphs that use each pool of memory.
std::mutex g_mutex;
std::map<uint64_t, int> g_users;

}  // namespace

struct CUDAGraph {
  explicit CUDAGraph(bool keeps_nodes);
  ~CUDAGraph();
  void capture_begin(c10::MempoolId_t memory, cudaStreamCaptureMode mode);
  void capture_end();
  void replay();
  c10::MempoolId_t pool();

 private:
  std::optional<fake::Recording> recording_;
  bool has_ended_ = false;
};

CUDAGraph::CUDAGraph(bool) {}

CUDAGraph::~CUDAGraph() {
  if (!has_ended_) return;
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (--g_users[recording_->memory()] == 0) fake::release_graph_memory(recording_->memory());
}

void CUDAGraph::capture_begin(c10::MempoolId_t memory, cudaStreamCaptureMode) {
  recording_.emplace(memory.first);
  const std::lock_guard<std::mutex> lock(g_mutex);
  ++g_users[recording_->memory()];
}

void CUDAGraph::capture_end() {
  recording_->end();
  has_ended_ = true;
}

void CUDAGraph::replay() {
  TORCH_CHECK(has_ended_, "a replay of nothing");
  recording_->replay();
}

c10::MempoolId_t CUDAGraph::pool() {
  TORCH_CHECK(has_ended_, "memory of nothing");
  return {recording_->memory(), 0};
}

}  // namespace at::cuda

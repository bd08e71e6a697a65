// `tessera bench train`: the speed and memory of a training step on random tokens.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/config/recipe.h"
#include "tessera/train/step_trace.h"

namespace tessera::train {

struct MemoryPart {
  std::string name;
  int64_t bytes = 0;
};

struct BenchOptions {
  config::Recipe recipe;
  bool trains_on_data = false;  // of the recipe's datasets; else on random tokens
  int64_t steps = 6;            // counted ones
  int64_t warmup_steps = 1;     // run before them
  std::string trace_path;       // where the last step's timeline is written, by rank 0; empty: nowhere
};

struct BenchResult {
  int64_t ranks = 1, threads = 1;
  int64_t tokens_per_step = 0;  // all ranks; mean, where steps differ
  double tokens_per_s = 0.0;    // median of the steps' rates
  double step_s_median = 0.0, step_s_min = 0.0, step_s_max = 0.0;
  int64_t peak_rss_bytes = 0;  // largest rank
  // On a GPU: what LibTorch's allocator held of its memory at most, largest rank, and what tensors had of
  // that.
  int64_t peak_device_bytes = 0, peak_device_live_bytes = 0;
  // What that rank's memory was used for at its peak; the sum is peak_device_bytes on a GPU, else
  // peak_rss_bytes.
  std::vector<MemoryPart> peak_parts;
  double activation_bytes_per_token_per_layer = 0.0;  // on that rank, when they were most
  double gemm_s = 0.0;          // the step's GEMMs alone, on one rank with all ranks measuring at once
  double gemm_gflops = 0.0;     // their rate
  double sol = 0.0;             // gemm_s / step_s_median
  double library_gemm_s = 0.0;  // the same GEMMs by LibTorch
  double library_sol = 0.0;     // library_gemm_s / step_s_median: above 1 where ours are faster
  // Of rank 0, by axis of the mesh.
  std::map<std::string, comm::Traffic> traffic_per_step;
  std::vector<double> losses;    // warm-up steps first
  std::vector<TraceLine> trace;  // of rank 0's last step, where it was traced
  int64_t peak_bytes() const { return peak_device_bytes > 0 ? peak_device_bytes : peak_rss_bytes; }
  // One JSON object on one line.
  std::string to_json() const;
};

// Trains the steps of bench_steps() with AdamW; making them is not timed. Collective.
BenchResult bench_train(const BenchOptions& options, const std::shared_ptr<comm::Communicator>& world);

}  // namespace tessera::train

// Measures the speed and memory of training steps (`tessera bench train`).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/config/recipe.h"
#include "tessera/measure/step_trace.h"

namespace tessera::train {

struct MemoryPart {
  std::string name;
  int64_t bytes = 0;
};

struct BenchOptions {
  config::Recipe recipe;
  bool trains_on_data = false;  // on the recipe's datasets; else on random tokens
  int64_t steps = 6;            // steps that are measured
  int64_t warmup_steps = 1;     // steps that run before these
  std::string trace_path;       // file for the timeline of the last step, written by rank 0; empty: none
};

struct BenchResult {
  int64_t ranks = 1, threads = 1;
  int64_t tokens_per_step = 0;  // of all ranks; the mean where steps differ
  double tokens_per_s = 0.0;    // median of the rates of the steps
  double step_s_median = 0.0, step_s_min = 0.0, step_s_max = 0.0;
  int64_t peak_rss_bytes = 0;  // of the rank whose peak is the largest
  // On a GPU, of that rank: the most that LibTorch's allocator held of its memory, and the most that tensors
  // had of that. 0 on the CPU.
  int64_t peak_device_bytes = 0, peak_device_live_bytes = 0;
  // Bytes of that rank's memory at its peak, by what they were used for. Their sum is peak_device_bytes on a
  // GPU, else peak_rss_bytes.
  std::vector<MemoryPart> peak_parts;
  double activation_bytes_per_token_per_layer = 0.0;  // of that rank, at their peak
  double gemm_s = 0.0;          // the step's GEMMs alone on the slowest rank, while all ranks measure
  double gemm_gflops = 0.0;     // rate of these on a rank
  double sol = 0.0;             // gemm_s / step_s_median
  double library_gemm_s = 0.0;  // the same GEMMs by LibTorch
  double library_sol = 0.0;     // library_gemm_s / step_s_median: above 1 where our GEMMs are faster
  // Traffic of rank 0, by axis of the mesh.
  std::map<std::string, comm::Traffic> traffic_per_step;
  std::vector<double> losses;             // warm-up steps first
  int64_t skipped_steps = 0;              // further steps, which overflowed float16 and are not measured
  std::vector<measure::TraceLine> trace;  // of rank 0's last step, where it was traced
  int64_t peak_bytes() const { return peak_device_bytes > 0 ? peak_device_bytes : peak_rss_bytes; }
  // Returns one JSON object on one line.
  std::string to_json() const;
};

// Trains the steps of bench_steps() as the recipe says, and measures them; making the steps is not timed. The
// schedule is of max_steps, or of the steps made here where these are more. Collective.
BenchResult bench_train(const BenchOptions& options, const std::shared_ptr<comm::Communicator>& world);

}  // namespace tessera::train

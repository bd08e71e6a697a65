// This machine's processor as a cluster to plan for, with rates that are measured.
#pragma once

#include <cstdint>

#include "tessera/planner/cluster.h"

namespace tessera::train {

struct ProcessorRates {
  double fp32_tflops = 0.0, bf16_tflops = 0.0;  // of large products
  double memory_gb_s = 0.0;                     // of a copy: bytes that are read and written

  ProcessorRates operator/(double by) const { return {fp32_tflops / by, bf16_tflops / by, memory_gb_s / by}; }
};

// Returns the GB/s of a copy of so many bytes by this process; 0 if it could not be measured.
double copy_rate(int64_t copy_bytes);
// Measures products and copies as `tessera doctor` does, by this process alone. Takes about a second, and 512
// MiB for a moment.
ProcessorRates measure_processor();

// Returns a cluster of `ranks` ranks that share this processor, each of which reaches these rates.
planner::Cluster this_processor(int64_t ranks, const ProcessorRates& of_rank);

}  // namespace tessera::train

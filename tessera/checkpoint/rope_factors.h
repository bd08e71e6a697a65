// The factors by which GGUF files give the scaling of rotary positions that Llama 3.1 came with.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tessera::checkpoint {

// The keys of `rope_scaling` with the type "llama3", and what they apply to.
struct Llama3Rope {
  double theta = 10000.0;
  int64_t head_dim = 0;
  double factor = 1.0, low_freq_factor = 1.0, high_freq_factor = 4.0;
  int64_t original_context = 8192;
};

// Returns for each of the head_dim / 2 frequencies the number by which the scaling divides it: the tensor
// "rope_freqs.weight".
std::vector<float> rope_factors(const Llama3Rope& rope);

// Finds a scaling that has these factors, each to within 1e-5 of it; nothing if there is none. Several
// settings can have the same factors: low_freq_factor is 1 in the result.
std::optional<Llama3Rope> find_llama3_rope(const std::vector<float>& factors, double theta);

}  // namespace tessera::checkpoint

// Angles of rotary position embeddings, with the scalings that Hugging Face configurations name.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/nn/sequence.h"

namespace tessera::nn {

enum class RopeType {
  Default,
  Linear,   // all frequencies are divided by `factor`
  Dynamic,  // NTK-aware: theta grows with the length of a document beyond max_position_embeddings
  Llama3,   // low frequencies are divided, high ones kept, with a smooth transition (Llama 3.1)
  Yarn,     // Peng et al., arXiv 2309.00071
  // Ding et al., arXiv 2402.13753: frequencies are divided by factors, which are others for documents longer
  // than original_max_position_embeddings.
  LongRope,
  // All frequencies but the first `turning` are 0, so that the rest of a head is not rotated; those are
  // divided by `factor` (Gemma 4).
  Proportional,
};

struct RopeOptions {
  RopeType type = RopeType::Default;
  int64_t head_dim = 0;  // elements of a head that are rotated
  double theta = 10000.0;
  double factor = 1.0;
  int64_t max_position_embeddings = 0;
  int64_t original_max_position_embeddings = 0;               // for Llama3, Yarn and LongRope
  double low_freq_factor = 1.0, high_freq_factor = 4.0;       // for Llama3
  double beta_fast = 32.0, beta_slow = 1.0;                   // for Yarn
  bool truncate = true;                                       // for Yarn
  std::vector<double> short_factors = {}, long_factors = {};  // for LongRope, [head_dim / 2]
  int64_t turning = 0;                                        // for Proportional
  // Factor on cos and sin, for Yarn and LongRope; 1 for the other types.
  double attention_factor = 1.0;
  // If not 0, the query at position p is multiplied by 1 + query_beta ln(1 + floor((p + query_offset) /
  // query_length)).
  double query_beta = 0.0;
  int64_t query_length = 1, query_offset = 0;
  bool rotates = true;  // false: the table has such factors alone
};

// Returns Yarn's factor on cos and sin for a configuration that names none: 0.1 ln(factor) + 1 or, if both
// scales are given (non-zero), the ratio of the two.
double yarn_attention_factor(double factor, double mscale, double mscale_all_dim);

class RotaryEmbedding {
 public:
  // options.head_dim must be even.
  explicit RotaryEmbedding(const RopeOptions& options);

  // Returns cos and sin, [tokens, head_dim / 2] each, for position_ids, [tokens] int64, which restart at the
  // document_starts, [documents + 1]. With `part`, the tokens are those of the part alone. Computed in
  // float64 for float64 models and otherwise in float32, since the roundings of Transformers are part of what
  // a model has learned.
  std::pair<at::Tensor, at::Tensor> angles(const at::Tensor& position_ids,
                                           const std::vector<int64_t>& document_starts,
                                           at::ScalarType model_dtype, const TokenPart& part = {}) const;

  // Returns angles() with the factors of the queries.
  RotaryTable table(const at::Tensor& position_ids, const std::vector<int64_t>& document_starts,
                    at::ScalarType model_dtype, const TokenPart& part = {}) const;

  const RopeOptions& options() const { return options_; }

 private:
  // Returns the frequencies on `device`. On a device with streams the copy is kept, since work that is being
  // recorded must not read from the host.
  at::Tensor frequencies_on(c10::Device device, at::ScalarType type) const;
  at::Tensor angle_of(const at::Tensor& position_ids, const std::vector<int64_t>& document_starts,
                      at::ScalarType type, const TokenPart& part) const;

  RopeOptions options_;
  at::Tensor frequencies_float_, frequencies_double_;  // [head_dim / 2]
  mutable std::mutex mutex_;
  mutable std::map<std::tuple<c10::DeviceType, c10::DeviceIndex, at::ScalarType>, at::Tensor> there_;
};

}  // namespace tessera::nn

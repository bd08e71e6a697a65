// Attention with linear biases (ALiBi; Press et al., arXiv 2108.12409).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::nn {

// Elements that heads get beyond their own for the biases.
inline constexpr int64_t kAlibiElements = 8;

struct AlibiOptions {
  std::vector<double> slopes;  // one for each head
  // Slopes, positions and their products are rounded to bfloat16, as Falcon does it.
  bool is_rounded = false;
};

// Returns the slopes of `heads` heads (section 3 of the paper, and its code for numbers of heads that are no
// power of 2).
std::vector<double> alibi_slopes(int64_t heads);
// Does the same as MPT does it: of the slopes 2^(-most i / n) for i = 1 to n, the next power of 2, those of
// even i come before those of odd i, and the first are taken.
std::vector<double> mpt_alibi_slopes(int64_t heads, double most);

// Makes the biases of keys. A bias -slope (p_query - p_key) of a score differs from slope p_key by a number
// that is the same for all keys of a query, which the softmax does not see.
class Alibi {
 public:
  explicit Alibi(const AlibiOptions& options) : options_(options) {}

  // Returns slope p for the positions p of the tokens, [tokens] int64, which restart in every document:
  // [tokens, heads] in float64 for float64 models and otherwise in float32.
  at::Tensor table(const at::Tensor& position_ids, at::ScalarType model_dtype) const;

 private:
  // Returns the slopes on `device`. On a device with streams the copy is kept, since work that is being
  // recorded must not read from the host.
  at::Tensor slopes_on(c10::Device device, at::ScalarType type) const;

  AlibiOptions options_;
  mutable std::mutex mutex_;
  mutable std::map<std::tuple<c10::DeviceType, c10::DeviceIndex, at::ScalarType>, at::Tensor> there_;
};

// Returns queries, keys and values, [tokens, heads, head_dim] each, with kAlibiElements more elements, by
// which the products of queries and keys grow by `bias`, [tokens, heads]. Those of the values are zeros.
std::array<at::Tensor, 3> with_biases(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const at::Tensor& bias);

}  // namespace tessera::nn

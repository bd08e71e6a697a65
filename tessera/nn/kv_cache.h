// Keys and values of the tokens that a sequence has already passed, for generation.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::nn {

// One sequence, all layers. Buffers grow by doubling, so appending costs amortised constant time a token.
class KvCache {
 public:
  // `capacity`: tokens to make room for at first; 0 = as many as the first append brings.
  explicit KvCache(int64_t num_layers, int64_t capacity = 0);

  // Adds k, v: [new, kv_heads, head_dim] to a layer; returns all keys and values so far, [total, kv_heads,
  // head_dim], as views of the buffers that the next append may replace.
  std::pair<at::Tensor, at::Tensor> append(int64_t layer, const at::Tensor& k, const at::Tensor& v);

  // Tokens that went through every layer.
  int64_t length() const;
  // Forgets the tokens after the first `length`.
  void truncate(int64_t length);
  int64_t num_layers() const { return static_cast<int64_t>(layers_.size()); }

 private:
  struct Layer {
    at::Tensor keys, values;
    int64_t used = 0;
  };
  std::vector<Layer> layers_;
  int64_t capacity_;
};

}  // namespace tessera::nn

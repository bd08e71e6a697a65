// Biases of attention scores that depend on the distance between two tokens alone.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "tessera/nn/attention_core.h"
#include "tessera/nn/initial_value.h"
#include "tessera/nn/layer.h"

namespace tessera::nn {

// The buckets of distances of T5 (Raffel et al., arXiv 1910.10683, section 2.1): small distances have one
// each, larger ones share buckets whose bounds grow by a factor, and all from `max_distance` on share the
// last.
struct DistanceBuckets {
  int64_t count = 32;
  int64_t max_distance = 128;
  // Half of the buckets are for keys behind the query, and half for those before it. Otherwise all are for
  // those before it, and the keys behind it share the bucket of distance 0.
  bool is_bidirectional = true;

  // Returns the buckets, int64, of keys that lie so many positions behind their queries (before them, if
  // negative). distances: int64, on the host.
  at::Tensor of(const at::Tensor& distances) const;
};

// A table with one bias for each bucket and head, made on the meta device, trainable.
class RelativeBias : public Layer, public HasInitialValues {
 public:
  RelativeBias(const DistanceBuckets& buckets, int64_t heads, double initial_multiple, at::ScalarType dtype);

  InitialValue initial_value(std::string_view) const override {
    return InitialValue::normal(initial_multiple_);
  }
  // Returns the biases of the distances from -reach to reach, [heads, 2 reach + 1], as
  // ops::biased_attention() takes them.
  at::Tensor by_distance(int64_t reach) const;

  at::Tensor weight;  // [buckets, heads]

 private:
  DistanceBuckets buckets_;
  double initial_multiple_;
};

// Returns the core that attends inside every document with the biases of this table, which other layers may
// share. Over a cache it is the state `layer` of each sequence: its keys and values so far.
std::shared_ptr<const AttentionCore> relative_attention(std::shared_ptr<const RelativeBias> bias);

}  // namespace tessera::nn

// The formula of the losses of rows of logits, for the leaves that compute them.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "tessera/ops/linear_cross_entropy.h"

namespace tessera::ops {

struct LossFormula {
  LossTerms terms;
  int64_t vocabulary = 1;                // number of tokens of all parts
  const VocabularyPart* part = nullptr;  // the part that the columns are; null: they are all

  bool smooths() const { return terms.label_smoothing > 0.0; }
  // The share of the target distribution that smoothing gives to each token of the vocabulary.
  double smoothing_of_token() const { return terms.label_smoothing / static_cast<double>(vocabulary); }

  // For a position whose softmax denominator has the logarithm `log_sum`: z_loss() is its z-loss, and 1 +
  // z_slope() the factor by which that multiplies the softmax in the gradient of the logits.
  bool has_z_loss() const { return terms.z_loss_coef > 0.0; }
  template <class T>
  T z_loss(T log_sum) const {
    return log_sum * log_sum * terms.z_loss_coef;
  }
  template <class T>
  T z_slope(T log_sum) const {
    return log_sum * (2.0 * terms.z_loss_coef);
  }

  int64_t first_token() const { return part == nullptr ? 0 : part->first_token; }
  // Tells whether the loss is the cross entropy over all of the vocabulary, without further terms.
  bool is_cross_entropy() const { return part == nullptr && !smooths() && !has_z_loss(); }
};

// Combines the sums of the parts into those of the whole vocabulary, in place, on every holder; collective
// among them. sums: [2, positions], the logarithms of the sums of exponentials and the logits of the labels,
// 0 if another part holds the label; with smoothing [3, positions], also the sums of the logits.
void combine_parts(const at::Tensor& sums, const VocabularyPart& part);

// Chooses how many rows of logits a device holds at a time: as many as fit into `bytes` or, if that is more,
// up to good_rows of those that fit into max_bytes. The more rows, the less often a product reads the weight,
// but the logits are the largest tensor of a step. The defaults are a processor's.
struct LogitChunks {
  int64_t bytes = int64_t{32} << 20, max_bytes = int64_t{112} << 20, good_rows = 512;

  // Returns the rows of a chunk; chunks are of nearly equal size. See linear_cross_entropy_chunk().
  int64_t rows(int64_t positions, int64_t vocabulary, int64_t bytes_per_logit) const;
};

}  // namespace tessera::ops

// What the losses of rows of logits are, for the leaves that compute them.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "tessera/ops/linear_cross_entropy.h"

namespace tessera::ops {

struct LossFormula {
  LossTerms terms;
  int64_t vocabulary = 1;                // tokens, of all parts
  const VocabularyPart* part = nullptr;  // that the columns are, if not all

  bool smooths() const { return terms.label_smoothing > 0.0; }
  // The part of the target that each token of the vocabulary has.
  double smoothing_of_token() const { return terms.label_smoothing / static_cast<double>(vocabulary); }

  // Of a position whose logarithm of the denominator is `log_sum`: its z-loss, and what the softmax in the
  // gradient is multiplied by because of it, less 1.
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
  // Without terms, over all of the vocabulary.
  bool is_cross_entropy() const { return part == nullptr && !smooths() && !has_z_loss(); }
};

// Makes of a part's sums those of the whole vocabulary. sums: [2, positions], the logarithms of the sums of
// exponentials and the logits of the labels, 0 where another part holds the label; with smoothing [3,
// positions], the sums of the logits too.
void combine_parts(const at::Tensor& sums, const VocabularyPart& part);

// Rows of logits that a device holds at a time: as many as fill `bytes`, or good_rows if these take at most
// max_bytes. The more, the less often a product reads the weight, but they are the largest tensor of a step.
// The default is a processor's.
struct LogitChunks {
  int64_t bytes = int64_t{32} << 20, max_bytes = int64_t{112} << 20, good_rows = 512;

  // As linear_cross_entropy_chunk().
  int64_t rows(int64_t positions, int64_t vocabulary, int64_t bytes_per_logit) const;
};

}  // namespace tessera::ops

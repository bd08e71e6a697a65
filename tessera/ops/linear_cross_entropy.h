// The output projection and the cross entropy in one autograd function that never holds all logits.
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

#include "tessera/core/ignore_label.h"

namespace tessera::ops {

// Rows of an output projection that is spread over several holders.
struct VocabularyPart {
  int64_t first_token = 0;  // token of the weight's first row
  int64_t vocab_size = 0;   // number of tokens of all parts together
  // Reduce a contiguous tensor of float32 or float64 in place, over the holders of all parts: the maximum and
  // the sum. All holders call them equally often, with equal shapes.
  std::function<void(const at::Tensor&)> all_max, all_sum;
};

// Sums of losses by the source (a dataset, say) that tokens come from.
struct LossSources {
  at::Tensor of_token;  // [tokens] int64 on the host: the source of each token
  // [sources] float64 on hidden's device; a forward adds its losses to them. With a second row, [2, sources],
  // it adds to that the number of labels that are not the likeliest token of their position.
  at::Tensor losses;
};

// Terms that the loss of a position has beside the cross entropy.
struct LossTerms {
  // Label smoothing e of Szegedy et al., "Rethinking the Inception architecture", 2016, section 7: the loss
  // of a position is (1 - e) times its cross entropy and e times the mean of -log softmax over the whole
  // vocabulary.
  double label_smoothing = 0.0;
  // Coefficient c of Chowdhery et al., "PaLM", 2022, section 5: c times the square of the logarithm of the
  // softmax's denominator is added, which keeps logits from drifting.
  double z_loss_coef = 0.0;
  // Logits z become soft_cap tanh(z / soft_cap) before anything else (Gemma Team, "Gemma 2", 2024, section
  // 2); 0: they stay as they are.
  double soft_cap = 0.0;
};

// Returns the sum over the labelled positions of -log softmax(hidden weight^T)[label], with `terms`: a
// scalar, float32 (float64 for float64 input), also for bfloat16.
//
// hidden: [tokens, hidden]; weight: [vocabulary, hidden], same type; labels: [tokens] int64 on the host,
// kIgnoreLabel for positions that are not trained: these cost nothing. Logits exist for `chunk_tokens`
// positions at a time (0: chosen for the device, linear_cross_entropy_chunk() on the host). With grad mode
// on, the gradients that are needed (hidden's, weight's, each only if it requires grad) are made in the
// forward pass and scaled in the backward pass, which therefore runs once and is not differentiable
// itself. Without a labelled position the loss is 0, with zero gradients. Throws Error(Data, "LABEL-RANGE")
// for a label outside the vocabulary.
//
// `bias`, [vocabulary] of weight's type, is added to the logits; undefined: nothing is. It is whole or a part
// as the weight is, and its gradient is made as the weight's.
//
// If there is a `part`, weight holds the rows of that part of the vocabulary, and the call is collective
// among the holders of the parts. The result is the loss over the whole vocabulary, equal for all holders;
// weight's gradient is that of its rows, and hidden's is this part's share: the sum over the holders is the
// whole.
at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                                int64_t chunk_tokens = 0, const VocabularyPart* part = nullptr,
                                const LossSources* sources = nullptr, const LossTerms& terms = {},
                                const at::Tensor& bias = {});

// Returns for how many positions the host holds logits at a time when `positions` are labelled: as many as
// fit into 32 MiB or, if that is more, up to 512 of those that fit into 112 MiB, whatever the number of
// positions is (a single row may take more). At least 1 and at most `positions` (1 if there are none).
int64_t linear_cross_entropy_chunk(int64_t positions, int64_t vocabulary, int64_t bytes_per_logit);

}  // namespace tessera::ops

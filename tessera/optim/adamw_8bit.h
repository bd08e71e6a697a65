// AdamW whose states are codes of 8 bits in blocks of 256 elements.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/core/optimizer_table.h"
#include "tessera/optim/rule.h"

namespace tessera::optim {

// Returns the rule of bitsandbytes' block-wise kernels for CUDA (Dettmers et al., "8-bit optimizers via
// block-wise quantization", 2022): the value is updated by the new moments before these are rounded, and
// decays after that. A block is 256 elements in the order of the whole parameter, whatever tiles it is cut
// into: where several hold a part of a block, its largest magnitude is the largest of theirs, so that every
// layout has the same codes.
RulePtr adamw_8bit_rule(const OptimizerOptions& options);

// Says whether bitsandbytes, as Transformers calls it, keeps the states of a parameter in 32 bits: it has
// fewer than 4096 elements or is an embedding.
bool has_32bit_states(const RuleParameter& parameter);

namespace detail {

constexpr int64_t kStateBlock = 256;

// One update of a tile: what the two functions below share.
struct Update8bit {
  at::Tensor value, gradient;             // dense, of one floating type
  at::Tensor mean_codes, square_codes;    // uint8, of the same shape
  at::Tensor mean_scales, square_scales;  // float32, [blocks of the whole parameter], from before
  double beta1, beta2, epsilon, lr, weight_decay;
  int64_t step;
  std::vector<int64_t> shape;  // of the whole parameter
  parallel::Box box;
};

// Puts the largest magnitudes of the new moments into `largest`, float64 [2, blocks], which has them of other
// blocks already.
void measure_8bit(const Update8bit& update, const at::Tensor& largest);
// Updates the value and makes the codes for the blocks' new scales, float32 [blocks] each.
void apply_8bit(const Update8bit& update, const at::Tensor& mean_scales, const at::Tensor& square_scales);
// These do the same in operations that every device has.
void plain_measure_8bit(const Update8bit& update, const at::Tensor& largest);
void plain_apply_8bit(const Update8bit& update, const at::Tensor& mean_scales,
                      const at::Tensor& square_scales);

}  // namespace detail
}  // namespace tessera::optim

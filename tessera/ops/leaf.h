// The innermost functions of the ops, one table of them for each kind of device.
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/core/carried_scope.h"
#include "tessera/ops/adamw.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/cached_attention.h"
#include "tessera/ops/e4m3.h"
#include "tessera/ops/loss_formula.h"
#include "tessera/ops/mlp_activation.h"
#include "tessera/ops/product.h"
#include "tessera/ops/random_elements.h"
#include "tessera/ops/small_linear.h"

namespace tessera::ops {

struct NormedRows {
  at::Tensor residual;     // undefined or x itself where there is no delta
  at::Tensor y;            // like x
  at::Tensor inverse_rms;  // one number a row, in compute_type(x)
};

// What the ops are made of. Where product_type() is E4m3, a leaf that makes a tensor which products read
// next, results of norms and of mlp's nonlinearity and gradients that come back through these and through
// rope, may say its scale (keep_e4m3_scale()), if that costs it no pass. The autograd functions, which decide
// what is saved, recomputed and added to which gradient, are the same on every device: they call these,
// without autograd, with operands that the op has checked and that lie on one device.
struct Leaves {
  // sum += a b + more, or sum = without `adds`; as product.h says.
  void (*multiply)(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, const MoreFactors& more,
                   bool adds);
  // x: [rows, depth] in bfloat16, any view. scale: what another call makes of the same numbers, or undefined:
  // then it is absmax / 448 for the absmax of all x, at least 1e-12. Codes are x / scale, rounded
  // to nearest even. What is not finite makes codes or the scale NaN.
  E4m3Matrix (*to_e4m3)(const at::Tensor& x, const at::Tensor& scale);
  // sum = a b^T, or += with `adds`. sum: [a's rows, b's rows], dense, b's rows a multiple of 16.
  void (*multiply_e4m3)(const at::Tensor& sum, const E4m3Matrix& a, const E4m3Matrix& b, bool adds);
  // For 2-dim a [rows, depth] and b [groups, depth, width]: [rows, width], each row by its group's matrix.
  // For 2-dim a [width, rows] and b [rows, depth]: [groups, width, depth], the sums over each group's rows.
  // ends: [groups], int32, where each group's rows end. Of bfloat16. Null: the host must know the groups.
  at::Tensor (*grouped_product)(const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends);
  // The two layers in one piece. Null: made of products.
  at::Tensor (*linear)(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias);
  // Also the adapter's inner product, x a^T. mask: undefined for none.
  std::pair<at::Tensor, at::Tensor> (*lora_linear)(const at::Tensor& x, const at::Tensor& weight,
                                                   const std::optional<at::Tensor>& bias, const at::Tensor& a,
                                                   const at::Tensor& b, double scaling,
                                                   const at::Tensor& mask);
  // As ops::small_linears(). Null: few rows are multiplied as many are.
  std::vector<at::Tensor> (*small_linears)(const at::Tensor& x, const std::vector<LinearOperands>& layers);

  // The norm of x + delta; delta may be undefined.
  NormedRows (*rms_norm)(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps);
  // y once more, to the bit.
  at::Tensor (*rms_norm_again)(const at::Tensor& residual, const at::Tensor& weight,
                               const at::Tensor& inverse_rms, double eps);
  // Gradients of x, with grad_residual added where that is defined, and of the weight; undefined where not
  // wanted.
  std::pair<at::Tensor, at::Tensor> (*rms_norm_backward)(const at::Tensor& grad,
                                                         const at::Tensor& grad_residual, const at::Tensor& x,
                                                         const at::Tensor& weight,
                                                         const at::Tensor& inverse_rms, bool want_x,
                                                         bool want_weight);
  // to = from, [tokens, heads * head_dim], its heads turned by the angles, or back for direction -1. The two
  // may be one tensor.
  void (*rope)(const at::Tensor& from, const at::Tensor& cos, const at::Tensor& sin, int direction,
               const at::Tensor& to);
  at::Tensor (*activate_mlp)(Nonlinearity f, const MlpInputs& inputs);
  // Undefined where not wanted.
  MlpInputs (*activate_mlp_backward)(Nonlinearity f, const at::Tensor& grad, const MlpInputs& inputs,
                                     bool want_gate, bool want_up);

  // As the functions of attention.h.
  AttentionResult (*attend_spans)(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const std::vector<AttentionSpan>& spans, const AttentionFormula& formula);
  AttentionGradients (*attend_spans_backward)(const at::Tensor& grad_out, const at::Tensor& q,
                                              const at::Tensor& k, const at::Tensor& v,
                                              const AttentionResult& result,
                                              const std::vector<AttentionSpan>& spans,
                                              const AttentionFormula& formula);
  // The whole op, which autograd differentiates. Null: made of the two above.
  at::Tensor (*document_attention)(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const std::vector<int64_t>& document_starts,
                                   const AttentionFormula& formula);
  // As the functions of cached_attention.h.
  void (*write_cache)(const CachedBatch& batch, int64_t layer, const at::Tensor& k, const at::Tensor& v);
  at::Tensor (*cached_attention)(const at::Tensor& q, const CachedBatch& batch, int64_t layer,
                                 const AttentionFormula& formula);
  // As the function of placed_attention.h. q: dense.
  at::Tensor (*attend_rows)(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& lengths, const AttentionFormula& formula);

  // Losses, in float64, of the rows of `logits`; with `in_place`, the rows become their gradients. labels:
  // int64 on the device of the logits, tokens of the whole vocabulary.
  void (*cross_entropy)(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& losses,
                        bool in_place, const LossFormula& formula);
  // A scalar.
  at::Tensor (*sum_losses)(const at::Tensor& losses);
  LogitChunks logit_chunks;

  // As the functions of adamw.h, sum_of_squares.h, cast.h and read_only.h. Gradients are dense, of their
  // value's type or bfloat16.
  void (*adamw)(const std::vector<AdamWTensors>& all, const at::Tensor& device_scale);
  std::vector<at::Tensor> (*sums_of_squares)(const std::vector<at::Tensor>& all);
  void (*cast_into)(const at::Tensor& to, const at::Tensor& from);
  void (*read_only)(const at::Tensor& x);
  // As random_elements.h says. out: dense.
  void (*draw)(const at::Tensor& out, const Draw& what, const ElementNumbers& numbers);
  // to = the values of blocks of ggml's type `ggml_type` (io::GgmlType, but F32), to the bit what
  // io::dequantize_ggml() makes, rounded to nearest even. to: dense, in float32, bfloat16 or float16; blocks:
  // dense bytes. Null: blocks are expanded where they are read.
  void (*expand_ggml)(const at::Tensor& to, const at::Tensor& blocks, int64_t num_blocks, uint32_t ggml_type);
};

// The type of the functions that an entry takes, to declare one of that name.
template <auto entry>
using Leaf = std::remove_pointer_t<std::remove_cvref_t<decltype(std::declval<Leaves>().*entry)>>;

// Tessera's kernels for the processor: of all types but float16.
const Leaves& host_leaves();
// Formulas of LibTorch's operations, which run on any device and which the other tables stand for: an entry
// that a table does not have is this one's.
const Leaves& plain_leaves();
// LibTorch's operations for CUDA, and Tessera's own kernels where their library is open (cuda/). The first
// call decides, and warns where the library is there and does not fit.
const Leaves& cuda_leaves();

// The table for tensors like x: that of its device, unless a scope or TESSERA_OPS=plain says otherwise.
const Leaves& leaves(const at::Tensor& x);

// While one lives, ops take this table.
using LeavesScope = CarriedScope<const Leaves*>;

// While one lives, no op uses kernels.
class PlainOps {
 public:
  PlainOps() : scope_(&plain_leaves()) {}

 private:
  LeavesScope scope_;
};

}  // namespace tessera::ops

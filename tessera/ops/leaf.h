// The innermost functions of the ops, one table of them for each kind of device.
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/device/carried_scope.h"
#include "tessera/ops/adamw.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/cached_attention.h"
#include "tessera/ops/e4m3.h"
#include "tessera/ops/loss_formula.h"
#include "tessera/ops/mlp_activation.h"
#include "tessera/ops/product.h"
#include "tessera/ops/random_elements.h"
#include "tessera/ops/rope.h"
#include "tessera/ops/small_linear.h"

namespace tessera::ops {

// The results of a norm of rows.
struct NormedRows {
  at::Tensor residual;     // x + delta; undefined or x itself if there is no delta
  at::Tensor y;            // the normalised rows, of x's shape and type
  at::Tensor inverse_rms;  // one number per row, in compute_type(x)
};

// The functions that ops are made of. The autograd functions, which decide what is saved, recomputed and
// added to which gradient, are the same on every device: they call these, without autograd, with operands
// that the op has checked and that lie on one device. If product_type() is E4m3, a leaf that makes a tensor
// which products read next (results of norms and of the MLP's nonlinearity, and gradients that come back
// through these and through rope) may note its scale (keep_e4m3_scale()), if that costs it no pass.
struct Leaves {
  // Computes sum += a b + more, or sum = a b + more without `adds`; the contract is product.h's.
  void (*multiply)(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, const MoreFactors& more,
                   bool adds);
  // Casts x, [rows, depth] in bfloat16, any view. scale: the one that another call has made of the same
  // numbers; undefined: it is absmax / 448 for the largest absolute value absmax of all x, at least 1e-12.
  // Codes are x / scale, rounded to nearest even. Numbers that are not finite make codes or the scale NaN.
  E4m3Matrix (*to_e4m3)(const at::Tensor& x, const at::Tensor& scale);
  // Computes sum = a b^T, or sum += a b^T with `adds`. sum: [a's rows, b's rows], dense, b's rows a multiple
  // of 16.
  void (*multiply_e4m3)(const at::Tensor& sum, const E4m3Matrix& a, const E4m3Matrix& b, bool adds);
  // For 2-dim a [rows, depth] and 3-dim b [groups, depth, width]: [rows, width], each row times its group's
  // matrix. For 2-dim a [width, rows] and 2-dim b [rows, depth]: [groups, width, depth], a b summed over each
  // group's rows. ends: [groups], int32 on the device, the end of each group's rows. All in bfloat16. Null:
  // the device has no such products, and the host must know the groups.
  at::Tensor (*grouped_product)(const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends);
  // The whole layers of linear.h and lora.h, in one piece. Null: the op makes them of products.
  at::Tensor (*linear)(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias);
  // Returns the result and the adapter's inner product, (x * mask) a^T. mask: undefined for none.
  std::pair<at::Tensor, at::Tensor> (*lora_linear)(const at::Tensor& x, const at::Tensor& weight,
                                                   const std::optional<at::Tensor>& bias, const at::Tensor& a,
                                                   const at::Tensor& b, double scaling,
                                                   const at::Tensor& mask);
  // The leaf of ops::small_linears(). Null: few rows are multiplied as many are.
  std::vector<at::Tensor> (*small_linears)(const at::Tensor& x, const std::vector<LinearOperands>& layers);

  // Returns the norm of x + delta; delta may be undefined.
  NormedRows (*rms_norm)(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps);
  // Returns the y of rms_norm once more, equal to the bit.
  at::Tensor (*rms_norm_again)(const at::Tensor& residual, const at::Tensor& weight,
                               const at::Tensor& inverse_rms, double eps);
  // Returns the gradients of x, to which grad_residual is added if defined, and of the weight; each undefined
  // if it is not wanted.
  std::pair<at::Tensor, at::Tensor> (*rms_norm_backward)(const at::Tensor& grad,
                                                         const at::Tensor& grad_residual, const at::Tensor& x,
                                                         const at::Tensor& weight,
                                                         const at::Tensor& inverse_rms, bool want_x,
                                                         bool want_weight);
  // Writes `from`, [tokens, heads * head_dim], into `to` with its heads turned by the angles, or turned back
  // if direction is -1. The two may be one tensor. The form gives head_dim.
  void (*rope)(const at::Tensor& from, const at::Tensor& cos, const at::Tensor& sin, const RopeForm& form,
               int direction, const at::Tensor& to);
  // The forward of activate_mlp(), and its gradients: each undefined if it is not wanted.
  at::Tensor (*activate_mlp)(Nonlinearity f, const MlpInputs& inputs);
  MlpInputs (*activate_mlp_backward)(Nonlinearity f, const at::Tensor& grad, const MlpInputs& inputs,
                                     bool want_gate, bool want_up);

  // The leaves of the functions of attention.h.
  AttentionResult (*attend_spans)(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const std::vector<AttentionSpan>& spans, const AttentionFormula& formula);
  AttentionGradients (*attend_spans_backward)(const at::Tensor& grad_out, const at::Tensor& q,
                                              const at::Tensor& k, const at::Tensor& v,
                                              const AttentionResult& result,
                                              const std::vector<AttentionSpan>& spans,
                                              const AttentionFormula& formula);
  // The whole document_attention() by operations that autograd differentiates. Null: the op makes it of the
  // two above.
  at::Tensor (*document_attention)(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                   const std::vector<int64_t>& document_starts,
                                   const AttentionFormula& formula);
  // The leaves of the functions of cached_attention.h.
  void (*write_cache)(const CachedBatch& batch, int64_t layer, const at::Tensor& k, const at::Tensor& v);
  at::Tensor (*cached_attention)(const at::Tensor& q, const CachedBatch& batch, int64_t layer,
                                 const AttentionFormula& formula);
  // The leaf of attend_rows() in placed_attention.h. q: dense.
  at::Tensor (*attend_rows)(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& lengths, const AttentionFormula& formula);

  // Writes the losses of the rows of `logits`, [rows, vocabulary], into `losses`, [rows] in float64; with
  // `in_place`, the logits become their gradients. labels: [rows], int64 on the device of the logits, tokens
  // of the whole vocabulary.
  void (*cross_entropy)(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& losses,
                        bool in_place, const LossFormula& formula);
  // Returns the sum of all losses, a scalar.
  at::Tensor (*sum_losses)(const at::Tensor& losses);
  // Rows of logits that this kind of device holds at a time.
  LogitChunks logit_chunks;

  // The leaves of the functions of adamw.h, sum_of_squares.h, cast.h and read_only.h. Gradients are dense, of
  // their value's type or bfloat16.
  void (*adamw)(const std::vector<AdamWTensors>& all, const at::Tensor& device_scale);
  std::vector<at::Tensor> (*sums_of_squares)(const std::vector<at::Tensor>& all);
  void (*cast_into)(const at::Tensor& to, const at::Tensor& from);
  void (*read_only)(const at::Tensor& x);
  // Fills `out`, which is dense, with random numbers, as random_elements.h says.
  void (*draw)(const at::Tensor& out, const Draw& what, const ElementNumbers& numbers);
  // Writes the values of num_blocks blocks of ggml's type `ggml_type` (any io::GgmlType but F32) into `to`:
  // those that io::dequantize_ggml() makes, to the bit, rounded to nearest even. to: dense, in float32,
  // bfloat16 or float16; blocks: dense bytes on to's device. Null: blocks are expanded on the host, where
  // they are read.
  void (*expand_ggml)(const at::Tensor& to, const at::Tensor& blocks, int64_t num_blocks, uint32_t ggml_type);
};

// The type of an entry of Leaves as a function type, to declare a function for the entry.
template <auto entry>
using Leaf = std::remove_pointer_t<std::remove_cvref_t<decltype(std::declval<Leaves>().*entry)>>;

// Tessera's kernels for the processor; they take all types but float16.
const Leaves& host_leaves();
// The processor's table for float16: Tessera's products, Tessera's attention by way of float32, and for the
// rest the formulas below.
const Leaves& half_leaves();
// Formulas of LibTorch's operations, which run on any device and define what the other tables compute: an
// entry that another table lacks is taken from here.
const Leaves& plain_leaves();
// LibTorch's operations for CUDA, and Tessera's own kernels if their library is open (cuda/). The first call
// decides, and warns if the library is there and does not fit.
const Leaves& cuda_leaves();

// The table of tensors without memory (the meta device): it makes results and computes nothing, and its
// results have the shapes and types that the host's kernels make.
const Leaves& meta_leaves();

// Returns the table for tensors like x: that of its device, unless a LeavesScope or TESSERA_OPS=plain says
// otherwise.
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

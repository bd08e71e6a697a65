#include "tessera/ops/leaf.h"

#include "tessera/core/environment.h"
#include "tessera/ops/host.h"
#include "tessera/ops/plain.h"

namespace tessera::ops {

const Leaves& host_leaves() {
  static constexpr Leaves kLeaves = {
      .multiply = host::multiply,
      .to_e4m3 = plain::to_e4m3,
      .multiply_e4m3 = plain::multiply_e4m3,
      .linear = nullptr,
      .lora_linear = nullptr,
      .small_linears = host::small_linears,
      .rms_norm = host::rms_norm,
      .rms_norm_again = host::rms_norm_again,
      .rms_norm_backward = host::rms_norm_backward,
      .rope = host::rope,
      .activate_mlp = host::activate_mlp,
      .activate_mlp_backward = host::activate_mlp_backward,
      .attend_spans = host::attend_spans,
      .attend_spans_backward = host::attend_spans_backward,
      .document_attention = nullptr,
      .write_cache = host::write_cache,
      .cached_attention = host::cached_attention,
      .attend_rows = plain::attend_rows,
      .cross_entropy = host::cross_entropy,
      .sum_losses = host::sum_losses,
      .logit_chunks = {},
      .adamw = host::adamw,
      .sums_of_squares = host::sums_of_squares,
      .cast_into = host::cast_into,
      .read_only = host::read_only,
      .draw = host::draw,
  };
  return kLeaves;
}

const Leaves& plain_leaves() {
  static constexpr Leaves kLeaves = {
      .multiply = plain::multiply,
      .to_e4m3 = plain::to_e4m3,
      .multiply_e4m3 = plain::multiply_e4m3,
      .linear = plain::linear,
      .lora_linear = plain::lora_linear,
      .small_linears = nullptr,
      .rms_norm = plain::rms_norm,
      .rms_norm_again = plain::rms_norm_again,
      .rms_norm_backward = plain::rms_norm_backward,
      .rope = plain::rope,
      .activate_mlp = plain::activate_mlp,
      .activate_mlp_backward = plain::activate_mlp_backward,
      .attend_spans = plain::attend_spans,
      .attend_spans_backward = plain::attend_spans_backward,
      .document_attention = plain::document_attention,
      .write_cache = plain::write_cache,
      .cached_attention = plain::cached_attention,
      .attend_rows = plain::attend_rows,
      .cross_entropy = plain::cross_entropy,
      .sum_losses = plain::sum_losses,
      .logit_chunks = {},
      .adamw = plain::adamw,
      .sums_of_squares = plain::sums_of_squares,
      .cast_into = plain::cast_into,
      .read_only = plain::read_only,
      .draw = plain::draw,
  };
  return kLeaves;
}

const Leaves& leaves(const at::Tensor& x) {
  static const bool is_plain = environment::get("TESSERA_OPS") == "plain";
  if (const Leaves* const* chosen = LeavesScope::current()) return **chosen;
  if (x.is_meta()) return meta_leaves();
  if (is_plain) return plain_leaves();
  if (x.is_cuda()) return cuda_leaves();
  if (!x.is_cpu()) return plain_leaves();
  return x.scalar_type() == at::kHalf ? half_leaves() : host_leaves();
}

}  // namespace tessera::ops

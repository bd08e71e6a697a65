#include "tessera/ops/rope.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/trace.h"
#include "tessera/ops/host.h"
#include "tessera/ops/support.h"

namespace tessera::ops {

void host::rope(const at::Tensor& from, const at::Tensor& cos_in, const at::Tensor& sin_in,
                const RopeForm& form, int direction, const at::Tensor& to) {
  const auto type = from.scalar_type();
  const at::Tensor cos = in_compute_type(cos_in, type), sin = in_compute_type(sin_in, type);
  const int64_t tokens = cos.size(0), half = cos.size(1);
  if (from.numel() == 0) return;
  const int64_t width = from.numel() / tokens, heads = width / form.head_dim;
  dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    using C = kernels::ComputeType<T>;
    const T* x = read<T>(from);
    const C *c = read<C>(cos), *s = read<C>(sin);
    T* y = write<T>(to);
    at::parallel_for(0, tokens, rows_per_task(width), [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token) {
        kernels::rope_token(x + token * width, c + token * half, s + token * half, direction,
                            y + token * width, {heads, form.head_dim, half, form.is_interleaved});
      }
    });
  });
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kName = "apply_rope_";

void rotate(const at::Tensor& from, const at::Tensor& cos, const at::Tensor& sin, const RopeForm& form,
            int direction, const at::Tensor& to) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  leaves(from).rope(from, cos, sin, form, direction, to);
}

struct RopeFunction : torch::autograd::Function<RopeFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin, const RopeForm& form) {
    ctx->save_for_backward({cos, sin});
    keep_product_type(*ctx);
    ctx->saved_data["head_dim"] = form.head_dim;
    ctx->saved_data["is_interleaved"] = form.is_interleaved;
    ctx->mark_dirty({x});
    rotate(x, cos, sin, form, 1, x);
    return x;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward(kName);
    const auto saved = ctx->get_saved_variables();
    const ProductScope products(kept_product_type(*ctx));
    const at::Tensor grad = grads[0].contiguous(), grad_x = at::empty_like(grad);
    const RopeForm form{ctx->saved_data["head_dim"].toInt(), ctx->saved_data["is_interleaved"].toBool()};
    rotate(grad, saved[0], saved[1], form, -1, grad_x);
    return {grad_x, {}, {}, {}};
  }
};

}  // namespace

at::Tensor apply_rope_(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                       const RopeForm& given) {
  const trace::Scope trace_scope("apply_rope");
  check_operands(kName, {&x, &cos, &sin});
  TESSERA_CHECK_ARGUMENT(cos.dim() == 2 && cos.size(1) > 0 && sin.sizes() == cos.sizes(),
                         "apply_rope_: cos and sin must be [tokens, angles]");
  RopeForm form = given;
  if (form.head_dim == 0) form.head_dim = 2 * cos.size(1);
  const int64_t head_dim = form.head_dim;
  TESSERA_CHECK_ARGUMENT(head_dim >= 2 * cos.size(1), "apply_rope_: more angles than pairs of a head");
  TESSERA_CHECK_ARGUMENT(
      (x.dim() == 2 || (x.dim() == 3 && x.size(2) == head_dim)) && x.size(0) == cos.size(0) &&
          x.size(1) % (x.dim() == 2 ? head_dim : 1) == 0 && x.is_contiguous(),
      "apply_rope_: x must be dense, [tokens, heads * head_dim] or [tokens, heads, head_dim]");
  TESSERA_CHECK_ARGUMENT(!cos.requires_grad() && !sin.requires_grad(),
                         "apply_rope_: angles have no gradient");
  if (!needs_graph({x})) {
    rotate(x, cos, sin, form, 1, x);
    note_write(x);
    return x;
  }
  TESSERA_CHECK_ARGUMENT(!x.is_leaf() && !x.is_view(),
                         "apply_rope_: x must own its values and come from an op");
  return RopeFunction::apply(x, cos, sin, form);
}

}  // namespace tessera::ops

#include "tessera/ops/rope.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/trace.h"
#include "tessera/ops/plain.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kName = "apply_rope";

at::Tensor rotate(const at::Tensor& x_in, const at::Tensor& cos_in, const at::Tensor& sin_in, int direction) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto type = x_in.scalar_type();
  const at::Tensor x = x_in.stride(2) == 1 || x_in.size(2) <= 1 ? x_in : x_in.contiguous();
  const at::Tensor cos = in_compute_type(cos_in, type), sin = in_compute_type(sin_in, type);
  const int64_t tokens = x.size(0), heads = x.size(1), half = x.size(2) / 2;
  const int64_t token_stride = x.stride(0), head_stride = x.stride(1), width = heads * 2 * half;
  at::Tensor y = at::empty(x.sizes(), x.options());
  dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    using C = kernels::ComputeType<T>;
    const T* from = read<T>(x);
    const C *c = read<C>(cos), *s = read<C>(sin);
    T* to = write<T>(y);
    at::parallel_for(0, tokens, rows_per_task(width), [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token) {
        kernels::rope_token(from + token * token_stride, head_stride, c + token * half, s + token * half,
                            direction, to + token * width, heads, half);
      }
    });
  });
  return y;
}

struct RopeFunction : torch::autograd::Function<RopeFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin) {
    ctx->save_for_backward({cos, sin});
    return rotate(x, cos, sin, 1);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward(kName);
    const auto saved = ctx->get_saved_variables();
    return {rotate(grads[0], saved[0], saved[1], -1), {}, {}};
  }
};

}  // namespace

at::Tensor apply_rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const trace::Scope trace_scope("apply_rope");
  check_operand(x, kName);
  check_operand(cos, kName);
  check_operand(sin, kName);
  TESSERA_ASSERT(x.dim() == 3 && x.size(2) % 2 == 0, "apply_rope: x must be [tokens, heads, even head_dim]");
  TESSERA_ASSERT(cos.dim() == 2 && cos.size(0) == x.size(0) && cos.size(1) * 2 == x.size(2) &&
                     sin.sizes() == cos.sizes(),
                 "apply_rope: cos and sin must be [tokens, head_dim / 2]");
  TESSERA_ASSERT(!cos.requires_grad() && !sin.requires_grad(), "apply_rope: angles have no gradient");
  if (!needs_graph({x})) {
    return PlainOps::are_on() ? plain::apply_rope(x, cos, sin) : rotate(x, cos, sin, 1);
  }
  return RopeFunction::apply(x, cos, sin);
}

}  // namespace tessera::ops

#include "tessera/ops/rms_norm.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/memory_ledger.h"
#include "tessera/core/trace.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kName = "rms_norm";

// Returns the result and the inverse rms of every row.
std::pair<at::Tensor, at::Tensor> forward_pass(const at::Tensor& x_in, const at::Tensor& weight_in,
                                               double eps) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto type = x_in.scalar_type();
  const at::Tensor x = x_in.contiguous(), weight = in_compute_type(weight_in, type);
  const int64_t width = x.size(-1), rows = width > 0 ? x.numel() / width : 0;
  at::Tensor y = at::empty(x.sizes(), x.options());
  at::Tensor inverse_rms = at::empty({rows}, weight.options());
  dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    using C = kernels::ComputeType<T>;
    const T* from = read<T>(x);
    const C* scale = read<C>(weight);
    T* to = write<T>(y);
    C* inverse = write<C>(inverse_rms);
    at::parallel_for(0, rows, rows_per_task(width), [&](int64_t begin, int64_t end) {
      kernels::rms_norm_forward(from + begin * width, scale, eps, to + begin * width, inverse + begin,
                                end - begin, width);
    });
  });
  return {y, inverse_rms};
}

// Gradients of x and weight; undefined where not wanted.
std::pair<at::Tensor, at::Tensor> backward_pass(const at::Tensor& grad_in, const at::Tensor& x_in,
                                                const at::Tensor& weight_in, const at::Tensor& inverse_rms,
                                                bool want_x, bool want_weight) {
  // The gradient of the weight is summed in blocks that do not depend on the number of threads, so that
  // neither does its last bit.
  constexpr int64_t kMaxBlocks = 32, kMinRows = 32;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto type = x_in.scalar_type();
  const at::Tensor grad = grad_in.contiguous(), x = x_in.contiguous(),
                   weight = in_compute_type(weight_in, type);
  const int64_t width = x.size(-1), rows = inverse_rms.numel();
  const int64_t block_rows = std::max(kMinRows, (rows + kMaxBlocks - 1) / kMaxBlocks);
  const int64_t blocks = (rows + block_rows - 1) / block_rows;
  at::Tensor grad_x = want_x ? at::empty(x.sizes(), x.options()) : at::Tensor();
  at::Tensor partial = want_weight ? at::zeros({blocks, width}, weight.options()) : at::Tensor();
  dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    using C = kernels::ComputeType<T>;
    const T *dy = read<T>(grad), *from = read<T>(x);
    const C *scale = read<C>(weight), *inverse = read<C>(inverse_rms);
    T* dx = write<T>(grad_x);
    C* dw = write<C>(partial);
    at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * block_rows, count = std::min(block_rows, rows - first);
        kernels::rms_norm_backward(dy + first * width, from + first * width, scale, inverse + first,
                                   dx == nullptr ? nullptr : dx + first * width,
                                   dw == nullptr ? nullptr : dw + block * width, count, width);
      }
    });
  });
  at::Tensor grad_weight;
  const MemoryScope memory(MemoryCategory::Gradients);
  if (want_weight) grad_weight = partial.sum(0).to(weight_in.scalar_type());
  return {grad_x, grad_weight};
}

struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight, double eps) {
    auto [y, inverse_rms] = forward_pass(x, weight, eps);
    ctx->save_for_backward({x, weight, inverse_rms});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward(kName);
    const auto saved = ctx->get_saved_variables();
    auto [grad_x, grad_weight] = backward_pass(grads[0], saved[0], saved[1], saved[2],
                                               ctx->needs_input_grad(0), ctx->needs_input_grad(1));
    return {grad_x, grad_weight, {}};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const trace::Scope trace_scope("rms_norm");
  check_operand(x, kName);
  check_operand(weight, kName);
  TESSERA_ASSERT(x.dim() > 0 && weight.dim() == 1 && x.size(-1) == weight.size(0), "rms_norm: shapes");
  if (!needs_graph({x, weight})) return forward_pass(x, weight, eps).first;
  return RmsNormFunction::apply(x, weight, eps);
}

}  // namespace tessera::ops

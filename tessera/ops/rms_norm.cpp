#include "tessera/ops/rms_norm.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/trace.h"
#include "tessera/device/memory_scope.h"
#include "tessera/ops/host.h"
#include "tessera/ops/saved_activation.h"
#include "tessera/ops/support.h"

namespace tessera::ops {

NormedRows host::rms_norm(const at::Tensor& x_in, const at::Tensor& delta_in, const at::Tensor& weight_in,
                          double eps) {
  const auto type = x_in.scalar_type();
  const at::Tensor x = x_in.contiguous(), weight = in_compute_type(weight_in, type);
  const at::Tensor delta = delta_in.defined() ? delta_in.contiguous() : at::Tensor();
  const int64_t width = x.size(-1), rows = width > 0 ? x.numel() / width : 0;
  NormedRows result;
  if (delta.defined()) result.residual = at::empty(x.sizes(), x.options());
  result.y = at::empty(x.sizes(), x.options());
  result.inverse_rms = at::empty({rows}, weight.options());
  dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    using C = kernels::ComputeType<T>;
    const T *from = read<T>(x), *added = delta.defined() ? read<T>(delta) : nullptr;
    const C* scale = read<C>(weight);
    T *to = write<T>(result.y), *sum = write<T>(result.residual);
    C* inverse = write<C>(result.inverse_rms);
    at::parallel_for(0, rows, rows_per_task(width), [&](int64_t begin, int64_t end) {
      const int64_t first = begin * width;
      const T* rows_from = from + first;
      if (added != nullptr) {
        kernels::add(from + first, added + first, sum + first, (end - begin) * width);
        rows_from = sum + first;
      }
      kernels::rms_norm_forward(rows_from, scale, eps, to + first, inverse + begin, end - begin, width);
    });
  });
  return result;
}

at::Tensor host::rms_norm_again(const at::Tensor& residual, const at::Tensor& weight_in,
                                const at::Tensor& inverse_rms, double) {
  const auto type = residual.scalar_type();
  const at::Tensor x = residual.contiguous(), weight = in_compute_type(weight_in, type);
  const int64_t width = x.size(-1), rows = inverse_rms.numel();
  at::Tensor y = at::empty(x.sizes(), x.options());
  dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    using C = kernels::ComputeType<T>;
    at::parallel_for(0, rows, rows_per_task(width), [&](int64_t begin, int64_t end) {
      kernels::rms_norm_scale(read<T>(x) + begin * width, read<C>(weight), read<C>(inverse_rms) + begin,
                              write<T>(y) + begin * width, end - begin, width);
    });
  });
  return y;
}

std::pair<at::Tensor, at::Tensor> host::rms_norm_backward(const at::Tensor& grad_in,
                                                          const at::Tensor& grad_residual_in,
                                                          const at::Tensor& x_in, const at::Tensor& weight_in,
                                                          const at::Tensor& inverse_rms, bool want_x,
                                                          bool want_weight) {
  // The gradient of the weight is summed in blocks that do not depend on the number of threads, so that its
  // last bit does not either.
  constexpr int64_t kMaxBlocks = 32, kMinRows = 32;
  const auto type = x_in.scalar_type();
  const at::Tensor grad = grad_in.contiguous(), x = x_in.contiguous(),
                   weight = in_compute_type(weight_in, type);
  const at::Tensor grad_residual = grad_residual_in.defined() ? grad_residual_in.contiguous() : at::Tensor();
  const int64_t width = x.size(-1), rows = inverse_rms.numel();
  const int64_t block_rows = std::max(kMinRows, (rows + kMaxBlocks - 1) / kMaxBlocks);
  const int64_t blocks = (rows + block_rows - 1) / block_rows;
  at::Tensor grad_x = want_x ? at::empty(x.sizes(), x.options()) : at::Tensor();
  at::Tensor partial = want_weight ? at::zeros({blocks, width}, weight.options()) : at::Tensor();
  dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    using C = kernels::ComputeType<T>;
    const T *dy = read<T>(grad), *from = read<T>(x);
    const T* dr = grad_residual.defined() ? read<T>(grad_residual) : nullptr;
    const C *scale = read<C>(weight), *inverse = read<C>(inverse_rms);
    T* dx = write<T>(grad_x);
    C* dw = write<C>(partial);
    at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * block_rows, count = std::min(block_rows, rows - first);
        kernels::rms_norm_backward(dy + first * width, from + first * width, scale, inverse + first,
                                   dr == nullptr ? nullptr : dr + first * width,
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

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kName = "rms_norm";

// If no product reads the result (not for_products), the leaf need not find its e4m3 scale.
NormedRows forward_pass(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps,
                        bool for_products) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::optional<ProductScope> no_products;
  if (!for_products && product_type() == ProductType::E4m3) no_products.emplace(ProductType::OfOperands);
  return leaves(x).rms_norm(x, delta, weight, eps);
}

// Makes y again from the residual and the inverse of its root mean square, and collects the gradients of y's
// readers.
class NormSource : public ActivationSource {
 public:
  bool collects_gradient() const override { return true; }
  SavedActivation residual, inverse_rms;
  at::Tensor weight;
  double eps = 0.0;

 protected:
  at::Tensor make() const override {
    const at::Tensor x = residual.get();
    return leaves(x).rms_norm_again(x, weight, inverse_rms.get(), eps);
  }
};

// The op with a graph. Inputs are x, weight and delta; results are the residual (x itself without a delta)
// and y. Readers leave y's gradient to the source (way 1 of [Note: ways around autograd] in linear.cpp).
struct RmsNormFunction : torch::autograd::Function<RmsNormFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                               const std::optional<at::Tensor>& delta, double eps,
                               const c10::intrusive_ptr<NormSource>& source) {
    NormedRows normed = forward_pass(x, delta.value_or(at::Tensor()), weight, eps, source != nullptr);
    keep_product_type(*ctx);
    if (!delta) normed.residual = x.view_as(x);
    ctx->set_materialize_grads(false);
    save_activations(*ctx, {delta ? normed.residual : x, normed.inverse_rms}, {weight});
    ctx->saved_data["has_delta"] = delta.has_value();
    keep_source(*ctx, source);
    if (source != nullptr) {
      // The tensors are kept without their graph, which would hold itself through the source.
      source->residual = SavedActivation(normed.residual);
      source->inverse_rms = SavedActivation(normed.inverse_rms);
      source->weight = weight.detach();
      source->eps = eps;
    }
    return {normed.residual, normed.y};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward(kName);
    const auto saved = take_activations(*ctx);
    const auto source = take_source(*ctx);
    // Products read the gradient next, as that of their result: in this scope the leaf may note its e4m3
    // scale.
    const ProductScope products(kept_product_type(*ctx));
    const bool has_delta = ctx->saved_data["has_delta"].toBool();
    at::Tensor grad_y = grads[1];
    if (source != nullptr && source->gradient.defined()) {
      at::AutoDispatchBelowADInplaceOrView below_autograd;
      const at::Tensor collected = source->gradient.view(saved[0].sizes());
      grad_y = grad_y.defined() ? grad_y + collected : collected;
      source->gradient.reset();
    }
    const bool want_delta = has_delta && ctx->needs_input_grad(2), want_x = ctx->needs_input_grad(0);
    at::Tensor grad_x = grads[0], grad_weight;
    if (grad_y.defined()) {
      at::AutoDispatchBelowADInplaceOrView below_autograd;
      std::tie(grad_x, grad_weight) = leaves(saved[0]).rms_norm_backward(
          grad_y, grads[0], saved[0], saved[2], saved[1], want_x || want_delta, ctx->needs_input_grad(1));
    }
    return {want_x ? grad_x : at::Tensor(), grad_weight, want_delta ? grad_x : at::Tensor(), {}, {}};
  }
};

void check_norm(const at::Tensor& x, const at::Tensor& weight) {
  check_operands(kName, {&x, &weight});
  TESSERA_CHECK_ARGUMENT(x.dim() > 0 && weight.dim() == 1 && x.size(-1) == weight.size(0),
                         "rms_norm: shapes");
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const trace::Scope trace_scope("rms_norm");
  check_norm(x, weight);
  if (!needs_graph({x, weight})) return forward_pass(x, {}, weight, eps, false).y;
  return RmsNormFunction::apply(x, weight, std::optional<at::Tensor>(), eps,
                                c10::intrusive_ptr<NormSource>())[1];
}

NormedResidual add_rms_norm(const at::Tensor& x, const std::optional<at::Tensor>& delta,
                            const at::Tensor& weight, double eps) {
  const trace::Scope trace_scope("rms_norm");
  check_norm(x, weight);
  check_operands(kName, {&x, delta ? &*delta : &x});
  TESSERA_ASSERT(!delta || (delta->sizes() == x.sizes() && delta->scalar_type() == x.scalar_type()),
                 "add_rms_norm: shape or type of the delta");
  const at::Tensor added = delta.value_or(at::Tensor());
  if (!needs_graph({x, weight, added})) {
    const NormedRows normed = forward_pass(x, added, weight, eps, true);
    return {delta ? normed.residual : x, normed.y};
  }
  const auto source = c10::make_intrusive<NormSource>();
  const variable_list results = RmsNormFunction::apply(x, weight, delta, eps, source);
  return {results[0], {results[1], source}};
}

}  // namespace tessera::ops

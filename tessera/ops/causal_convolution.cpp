#include "tessera/ops/causal_convolution.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/trace.h"
#include "tessera/ops/leaf.h"
#include "tessera/ops/saved_activation.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kName = "causal_convolution";

// The place of each token in its document.
std::vector<int64_t> places_in_documents(const std::vector<int64_t>& starts) {
  std::vector<int64_t> places(static_cast<size_t>(starts.back()));
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    for (int64_t token = starts[i]; token < starts[i + 1]; ++token)
      places[static_cast<size_t>(token)] = token - starts[i];
  }
  return places;
}

// The products of a convolution, in the type that x is computed in: x, [tokens, channels], and weight,
// [taps, channels], are contiguous and of that type.
struct Sums {
  at::Tensor x, weight;
  std::vector<int64_t> places;

  int64_t tokens() const { return x.size(0); }
  int64_t channels() const { return x.size(1); }
  int64_t taps() const { return weight.size(0); }
  bool is_on_kernels() const { return &leaves(x) == &host_leaves(); }

  // Returns which of the tokens from `shift` on have a token of their document that far before them:
  // [tokens - shift, 1].
  at::Tensor reaching(int64_t shift) const {
    std::vector<int64_t> own(places.begin() + shift, places.end());
    return copied_to(x.device(), own).ge(shift).unsqueeze(1);
  }
};

constexpr int64_t kBlock = 256;  // channels of one task

// Calls f(first, count) for blocks of channels, from several threads.
template <class F>
void for_blocks(int64_t channels, const F& f) {
  const int64_t blocks = (channels + kBlock - 1) / kBlock;
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block)
      f(block * kBlock, std::min(kBlock, channels - block * kBlock));
  });
}

template <class T>
void sum_on_host(const Sums& sums, const at::Tensor& y) {
  const int64_t channels = sums.channels(), taps = sums.taps(), tokens = sums.tokens();
  const T *x = read<T>(sums.x), *weight = read<T>(sums.weight);
  T* const out = write<T>(y);
  for_blocks(channels, [&](int64_t first, int64_t count) {
    for (int64_t token = 0; token < tokens; ++token) {
      const int64_t reach = std::min(taps - 1, sums.places[static_cast<size_t>(token)]);
      T* const to = out + token * channels + first;
      std::fill(to, to + count, T(0));
      for (int64_t shift = 0; shift <= reach; ++shift) {
        const T* const from = x + (token - shift) * channels + first;
        const T* const by = weight + (taps - 1 - shift) * channels + first;
        for (int64_t c = 0; c < count; ++c) to[c] += from[c] * by[c];
      }
    }
  });
}

template <class T>
void gradients_on_host(const Sums& sums, const at::Tensor& grad, const at::Tensor& grad_x,
                       const at::Tensor& grad_weight) {
  const int64_t channels = sums.channels(), taps = sums.taps(), tokens = sums.tokens();
  const T *x = read<T>(sums.x), *weight = read<T>(sums.weight), *dy = read<T>(grad);
  T *const dx = write<T>(grad_x), *const dw = write<T>(grad_weight);
  for_blocks(channels, [&](int64_t first, int64_t count) {
    for (int64_t token = 0; token < tokens; ++token) {
      const int64_t reach = std::min(taps - 1, sums.places[static_cast<size_t>(token)]);
      const T* const from = dy + token * channels + first;
      for (int64_t shift = 0; shift <= reach; ++shift) {
        const int64_t tap = (taps - 1 - shift) * channels + first, seen = (token - shift) * channels + first;
        if (dx != nullptr) {
          for (int64_t c = 0; c < count; ++c) dx[seen + c] += from[c] * weight[tap + c];
        }
        if (dw != nullptr) {
          for (int64_t c = 0; c < count; ++c) dw[tap + c] += from[c] * x[seen + c];
        }
      }
    }
  });
}

// Returns the convolution without its silu, in x's type of computation.
at::Tensor sum(const Sums& sums) {
  if (sums.is_on_kernels()) {
    at::Tensor y = at::empty(sums.x.sizes(), sums.x.options());
    sums.x.scalar_type() == at::kDouble ? sum_on_host<double>(sums, y) : sum_on_host<float>(sums, y);
    return y;
  }
  at::Tensor y = sums.x * sums.weight[sums.taps() - 1];
  for (int64_t shift = 1; shift < std::min(sums.taps(), sums.tokens()); ++shift) {
    const int64_t rest = sums.tokens() - shift;
    y.narrow(0, shift, rest)
        .add_(sums.x.narrow(0, 0, rest) * sums.weight[sums.taps() - 1 - shift] * sums.reaching(shift));
  }
  return y;
}

// Returns the gradients of x and of the weight, [taps, channels]; each undefined if it is not wanted.
std::pair<at::Tensor, at::Tensor> gradients_of(const Sums& sums, const at::Tensor& grad, bool want_x,
                                               bool want_weight) {
  at::Tensor grad_x, grad_weight;
  if (want_x) grad_x = at::zeros(sums.x.sizes(), sums.x.options());
  if (want_weight) grad_weight = at::zeros(sums.weight.sizes(), sums.weight.options());
  if (sums.is_on_kernels()) {
    sums.x.scalar_type() == at::kDouble ? gradients_on_host<double>(sums, grad, grad_x, grad_weight)
                                        : gradients_on_host<float>(sums, grad, grad_x, grad_weight);
    return {grad_x, grad_weight};
  }
  for (int64_t shift = 0; shift < std::min(sums.taps(), sums.tokens()); ++shift) {
    const int64_t rest = sums.tokens() - shift, tap = sums.taps() - 1 - shift;
    const at::Tensor own = grad.narrow(0, shift, rest) * sums.reaching(shift);
    if (want_x) grad_x.narrow(0, 0, rest).add_(own * sums.weight[tap]);
    if (want_weight) grad_weight[tap].copy_((own * sums.x.narrow(0, 0, rest)).sum(0));
  }
  return {grad_x, grad_weight};
}

Sums sums_of(const at::Tensor& x, const at::Tensor& weight, const std::vector<int64_t>& starts) {
  const auto type = x.scalar_type();
  return {in_compute_type(x, type), in_compute_type(weight.t(), type), places_in_documents(starts)};
}

at::Tensor forward_pass(const at::Tensor& x, const at::Tensor& weight, const std::vector<int64_t>& starts,
                        bool has_silu) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor y = sum(sums_of(x, weight, starts));
  return (has_silu ? at::silu(y) : y).to(x.scalar_type());
}

struct ConvolutionFunction : torch::autograd::Function<ConvolutionFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::vector<int64_t>& starts, bool has_silu) {
    save_activations(*ctx, {x}, {weight});
    ctx->saved_data["starts"] = starts;
    ctx->saved_data["has_silu"] = has_silu;
    return forward_pass(x, weight, starts, has_silu);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward(kName);
    const auto saved = take_activations(*ctx);
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::Tensor &x = saved[0], &weight = saved[1];
    const Sums sums = sums_of(x, weight, ctx->saved_data["starts"].toIntVector());
    at::Tensor grad = in_compute_type(grads[0], x.scalar_type());
    if (ctx->saved_data["has_silu"].toBool()) grad = at::silu_backward(grad, sum(sums));
    auto [grad_x, grad_weight] = gradients_of(sums, grad, ctx->needs_input_grad(0), ctx->needs_input_grad(1));
    if (grad_x.defined()) grad_x = grad_x.to(x.scalar_type());
    if (grad_weight.defined()) grad_weight = grad_weight.t().contiguous().to(weight.scalar_type());
    return {grad_x, grad_weight, {}, {}};
  }
};

}  // namespace

at::Tensor causal_convolution(const at::Tensor& x, const at::Tensor& weight,
                              const std::vector<int64_t>& document_starts, bool has_silu) {
  const trace::Scope trace_scope(kName);
  check_operands(kName, {&x, &weight});
  TESSERA_CHECK_ARGUMENT(x.dim() == 2 && weight.dim() == 2 && weight.size(0) == x.size(1) &&
                             weight.size(1) > 0 && !document_starts.empty() && document_starts.front() == 0 &&
                             document_starts.back() == x.size(0),
                         "causal_convolution: shapes");
  if (!needs_graph({x, weight})) return forward_pass(x, weight, document_starts, has_silu);
  return ConvolutionFunction::apply(x, weight, document_starts, has_silu);
}

}  // namespace tessera::ops

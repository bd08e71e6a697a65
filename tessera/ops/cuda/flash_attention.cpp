#include "tessera/ops/cuda/flash_attention.h"

#include <optional>

#include <ATen/ATen.h>

#include "tessera/ops/cuda/device_numbers.h"

namespace tessera::ops::cuda {
namespace {

// The arguments that the two functions share.
struct Arguments {
  at::Tensor query_starts, key_starts;
  int64_t longest_query, longest_key;
  std::optional<int64_t> left, right;

  Arguments(const VarlenCall& call, at::Device device)
      : query_starts(device_numbers(call.starts(&SeenSpan::queries), device)),
        key_starts(device_numbers(call.starts(&SeenSpan::keys), device)),
        longest_query(call.longest(&SeenSpan::queries)),
        longest_key(call.longest(&SeenSpan::keys)) {
    if (call.left >= 0) left = call.left;
    if (call.right >= 0) right = call.right;
  }
};

at::Tensor dense_heads(const at::Tensor& x) { return x.stride(2) == 1 ? x : x.contiguous(); }

AttentionResult forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const VarlenCall& call,
                        double scale) {
  const Arguments with(call, q.device());
  const auto made = at::_flash_attention_forward(
      dense_heads(q), dense_heads(k), dense_heads(v), with.query_starts, with.key_starts, with.longest_query,
      with.longest_key, /*dropout_p=*/0.0, call.is_causal(), /*return_debug_mask=*/false,
      std::optional<double>(scale), with.left, with.right);
  return {std::get<0>(made), std::get<1>(made)};
}

AttentionGradients backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const AttentionResult& result, const VarlenCall& call,
                            double scale) {
  const Arguments with(call, q.device());
  // The state of the dropout's random numbers. There is no dropout.
  const at::Tensor random_state = at::empty({2}, q.options().dtype(at::kUInt64)),
                   unused = at::empty({0}, q.options());
  auto [grad_q, grad_k, grad_v] = at::_flash_attention_backward(
      grad_out, dense_heads(q), dense_heads(k), dense_heads(v), result.out, result.log_sum.contiguous(),
      with.query_starts, with.key_starts, with.longest_query, with.longest_key, /*dropout_p=*/0.0,
      call.is_causal(), random_state, unused, std::optional<double>(scale), with.left, with.right);
  return {grad_q, grad_k, grad_v};
}

}  // namespace

bool flash_computes(at::ScalarType type, int64_t head_dim, const AttentionFormula& formula) {
  return (type == at::kBFloat16 || type == at::kHalf) && head_dim % 8 == 0 && head_dim <= 256 &&
         formula.soft_cap == 0.0;
}

at::Tensor flash_attend_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& lengths, const AttentionFormula& formula) {
  const int64_t rows = k.size(0), length = k.size(1);
  const auto all_rows = [](const at::Tensor& x) { return dense_heads(x.flatten(0, 1)); };
  const at::Tensor starts = at::arange(rows + 1, lengths.options().dtype(at::kInt));
  std::optional<int64_t> left, right;
  // Distances are counted from the last of a row's tokens.
  if (formula.window > 0) {
    left = formula.window - 1;
    right = 0;
  }
  // The bound of the queries' lengths is 2 though they are single ones, as VarlenCall::longest() says.
  const auto made = at::_flash_attention_forward(
      q, all_rows(k), all_rows(v), starts, starts * length, /*max_q=*/2, length, /*dropout_p=*/0.0,
      /*is_causal=*/false, /*return_debug_mask=*/false, std::optional<double>(formula.scale), left, right,
      /*seqused_k=*/lengths.to(at::kInt));
  return std::get<0>(made);
}

const VarlenKernel& flash_attention() {
  static constexpr VarlenKernel kKernel{forward, backward};
  return kKernel;
}

}  // namespace tessera::ops::cuda

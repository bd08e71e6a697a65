#include "tessera/ops/attention.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kName = "document_attention";

// Neighbouring documents of one length, which one call of the kernel handles as a batch.
struct Run {
  int64_t first;  // token
  int64_t documents;
  int64_t length;
};

std::vector<Run> runs_of(at::IntArrayRef starts) {
  std::vector<Run> runs;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const int64_t length = starts[i + 1] - starts[i];
    if (length == 0) continue;
    if (!runs.empty() && runs.back().length == length) {
      ++runs.back().documents;
    } else {
      runs.push_back({starts[i], 1, length});
    }
  }
  return runs;
}

// The run's tokens of [tokens, heads, ...] as [documents, heads, length, ...], without a copy.
at::Tensor batch_of(const at::Tensor& tensor, const Run& run) {
  std::vector<int64_t> sizes = tensor.sizes().vec();
  sizes[0] = run.length;
  sizes.insert(sizes.begin(), run.documents);
  return tensor.narrow(0, run.first, run.documents * run.length).view(sizes).transpose(1, 2);
}

// Back to [tokens of the run, heads, ...].
at::Tensor tokens_of(const at::Tensor& batch) { return batch.transpose(1, 2).flatten(0, 1); }

bool covers_all(const std::vector<Run>& runs, int64_t tokens) {
  return runs.size() == 1 && runs[0].documents * runs[0].length == tokens;
}

// The kernel wants dense heads.
at::Tensor dense_heads(const at::Tensor& tensor) {
  return tensor.size(2) <= 1 || tensor.stride(2) == 1 ? tensor : tensor.contiguous();
}

// Returns the result and the logarithm of the softmax's denominator, [tokens, heads].
std::pair<at::Tensor, at::Tensor> forward_pass(const at::Tensor& q_in, const at::Tensor& k_in,
                                               const at::Tensor& v_in, at::IntArrayRef starts, double scale) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor q = dense_heads(q_in), k = dense_heads(k_in), v = dense_heads(v_in);
  const std::vector<Run> runs = runs_of(starts);
  const int64_t tokens = q.size(0);
  const auto attend = [&](const Run& run) {
    auto [batch, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
        batch_of(q, run), batch_of(k, run), batch_of(v, run), 0.0, true, {}, scale);
    return std::pair{tokens_of(batch), tokens_of(log_sum)};
  };
  if (covers_all(runs, tokens)) {
    auto [out, log_sum] = attend(runs[0]);
    return {out.contiguous(), log_sum.contiguous()};
  }
  at::Tensor out = at::empty(q.sizes(), q.options());
  at::Tensor log_sum = at::empty({tokens, q.size(1)}, q.options().dtype(compute_type(q.scalar_type())));
  for (const Run& run : runs) {
    const auto part = attend(run);
    out.narrow(0, run.first, part.first.size(0)).copy_(part.first);
    log_sum.narrow(0, run.first, part.second.size(0)).copy_(part.second);
  }
  return {out, log_sum};
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::vector<int64_t>& starts, double scale) {
    auto [out, log_sum] = forward_pass(q, k, v, starts, scale);
    ctx->save_for_backward({q, k, v, out, log_sum});
    ctx->saved_data["starts"] = starts;
    ctx->saved_data["scale"] = scale;
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward(kName);
    const auto saved = ctx->get_saved_variables();
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const at::Tensor grad = dense_heads(grads[0]), q = dense_heads(saved[0]), k = dense_heads(saved[1]),
                     v = dense_heads(saved[2]), &out = saved[3], &log_sum = saved[4];
    const double scale = ctx->saved_data["scale"].toDouble();
    const std::vector<Run> runs = runs_of(ctx->saved_data["starts"].toIntVector());
    const auto differentiate = [&](const Run& run) {
      auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          batch_of(grad, run), batch_of(q, run), batch_of(k, run), batch_of(v, run), batch_of(out, run),
          batch_of(log_sum, run), 0.0, true, {}, scale);
      return std::array<at::Tensor, 3>{tokens_of(dq), tokens_of(dk), tokens_of(dv)};
    };
    std::array<at::Tensor, 3> result;
    if (covers_all(runs, q.size(0))) {
      result = differentiate(runs[0]);
    } else {
      result = {at::empty(q.sizes(), q.options()), at::empty(k.sizes(), k.options()),
                at::empty(v.sizes(), v.options())};
      for (const Run& run : runs) {
        const auto part = differentiate(run);
        for (size_t i = 0; i < part.size(); ++i)
          result[i].narrow(0, run.first, part[i].size(0)).copy_(part[i]);
      }
    }
    for (size_t i = 0; i < result.size(); ++i) {
      if (!ctx->needs_input_grad(i)) result[i].reset();
    }
    return {result[0], result[1], result[2], {}, {}};
  }
};

void check_heads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  for (const at::Tensor* operand : {&q, &k, &v}) {
    check_operand(*operand, kName);
    TESSERA_ASSERT(operand->dim() == 3 && operand->scalar_type() == q.scalar_type(),
                   "attention: q, k, v must be [tokens, heads, head_dim] of one type");
  }
  TESSERA_ASSERT(k.sizes() == v.sizes() && q.size(2) == k.size(2), "attention: shapes of q, k, v");
  TESSERA_ASSERT(k.size(1) > 0 && q.size(1) > 0 && q.size(1) % k.size(1) == 0 && q.size(2) > 0,
                 "attention: heads must be a multiple of kv_heads");
}

}  // namespace

at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::vector<int64_t>& document_starts, double scale) {
  check_heads(q, k, v);
  TESSERA_ASSERT(k.size(0) == q.size(0), "document_attention: q and k have the same tokens");
  TESSERA_ASSERT(!document_starts.empty() && document_starts.front() == 0 &&
                     document_starts.back() == q.size(0) &&
                     std::is_sorted(document_starts.begin(), document_starts.end()),
                 "document_attention: document_starts must run from 0 to tokens");
  if (!needs_graph({q, k, v})) return forward_pass(q, k, v, document_starts, scale).first;
  return AttentionFunction::apply(q, k, v, document_starts, scale);
}

at::Tensor cached_attention(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in,
                            double scale) {
  check_heads(q_in, k_in, v_in);
  const int64_t fresh = q_in.size(0), total = k_in.size(0), past = total - fresh;
  TESSERA_ASSERT(past >= 0, "cached_attention: fewer keys than queries");
  if (past == 0) return forward_pass(q_in, k_in, v_in, {0, total}, scale).first;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor q = dense_heads(q_in), k = dense_heads(k_in), v = dense_heads(v_in);
  at::Tensor out = at::empty(q.sizes(), q.options());
  // The kernel's own causal mask starts at the first key, so this one is written out, for a block of queries
  // at a time.
  constexpr int64_t kBlock = 128;
  for (int64_t first = 0; first < fresh; first += kBlock) {
    const int64_t count = std::min(kBlock, fresh - first), visible = past + first + count;
    std::optional<at::Tensor> mask;
    if (count > 1) {
      mask = at::full({count, visible}, -std::numeric_limits<double>::infinity(), q.options())
                 .triu_(past + first + 1);
    }
    const at::Tensor part = std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
        batch_of(q, {first, 1, count}), batch_of(k, {0, 1, visible}), batch_of(v, {0, 1, visible}), 0.0,
        false, mask, scale));
    out.narrow(0, first, count).copy_(tokens_of(part));
  }
  return out;
}

}  // namespace tessera::ops

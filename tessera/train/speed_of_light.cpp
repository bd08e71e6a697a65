#include "tessera/train/speed_of_light.h"

#include <algorithm>
#include <map>

#include <ATen/ATen.h>

#include "tessera/core/process_stats.h"
#include "tessera/nn/sparse_mlp.h"
#include "tessera/ops/product.h"

namespace tessera::train {
namespace {

void add(std::vector<GemmShape>& gemms, int64_t m, int64_t n, int64_t k) {
  for (GemmShape& gemm : gemms) {
    if (gemm.m == m && gemm.n == n && gemm.k == k) {
      ++gemm.count;
      return;
    }
  }
  gemms.push_back({m, n, k, 1});
}

void add_layer(std::vector<GemmShape>& gemms, int64_t tokens, int64_t in, int64_t out, bool trains) {
  add(gemms, tokens, out, in);              // forward
  add(gemms, tokens, in, out);              // gradient of the input
  if (trains) add(gemms, out, in, tokens);  // gradient of the weight
}

}  // namespace

StepGemms step_gemms(const models::CausalLM& model, int64_t tokens, int64_t label_tokens) {
  StepGemms gemms;
  const at::Tensor& head = model.head().weight();
  add_layer(gemms.head, label_tokens, head.size(1), head.size(0), head.requires_grad());
  // Of experts: of as many tokens as each takes on average.
  std::map<const nn::Linear*, int64_t> share;
  for (const auto& module : model.modules(/*include_self=*/false)) {
    const auto* sparse = dynamic_cast<const nn::SparseMLP*>(module.get());
    if (sparse == nullptr) continue;
    const int64_t experts = sparse->options().num_experts;
    for (const auto& expert : sparse->experts) {
      for (const auto& linear : {expert->gate_proj, expert->up_proj, expert->down_proj}) {
        share[linear.get()] = (tokens * sparse->options().experts_per_token + experts - 1) / experts;
      }
    }
  }
  for (const auto& module : model.modules(/*include_self=*/false)) {
    const auto* linear = dynamic_cast<const nn::Linear*>(module.get());
    if (linear == nullptr || linear->weight.is_same(head)) continue;
    const int64_t rows = share.contains(linear) ? share.at(linear) : tokens;
    add_layer(gemms.layers, rows, linear->in_features(), linear->out_features(),
              linear->weight.requires_grad());
    if (linear->adapter() == nullptr) continue;
    for (const auto& factor : linear->adapter()->named_parameters()) {
      add_layer(gemms.layers, rows, factor.value().size(1), factor.value().size(0), true);
    }
  }
  return gemms;
}

double measure_gemms(const std::vector<GemmShape>& gemms, const at::TensorOptions& options, GemmPath path) {
  const at::NoGradGuard no_grad;
  constexpr int kRounds = 3;
  double total = 0.0;
  for (const GemmShape& gemm : gemms) {
    if (gemm.m == 0 || gemm.n == 0 || gemm.k == 0) continue;
    const at::Tensor a = at::ones({gemm.m, gemm.k}, options), b = at::ones({gemm.n, gemm.k}, options);
    at::Tensor c = at::empty({gemm.m, gemm.n}, options);
    const auto multiply = [&] {
      if (path == GemmPath::Ours) {
        ops::product_out(c, a, b.t());
      } else {
        at::mm_out(c, a, b.t());
      }
    };
    multiply();
    double best = 1e30;
    for (int round = 0; round < kRounds; ++round) {
      const Timer timer;
      multiply();
      best = std::min(best, timer.seconds());
    }
    total += best * static_cast<double>(gemm.count);
  }
  return total;
}

double gemm_rate(const at::TensorOptions& options, GemmPath path) {
  const std::vector<GemmShape> gemms = {{1024, 1024, 1024, 1}};
  return gemm_flops(gemms) / measure_gemms(gemms, options, path) * 1e-9;
}

double gemm_flops(const std::vector<GemmShape>& gemms) {
  double flops = 0.0;
  for (const GemmShape& gemm : gemms) {
    flops += 2.0 * static_cast<double>(gemm.m) * static_cast<double>(gemm.n) * static_cast<double>(gemm.k) *
             static_cast<double>(gemm.count);
  }
  return flops;
}

}  // namespace tessera::train

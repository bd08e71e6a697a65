#include "tessera/measure/speed_of_light.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include <ATen/ATen.h>

#include "tessera/device/device.h"
#include "tessera/device/device_time.h"
#include "tessera/ops/leaf.h"
#include "tessera/ops/product.h"

namespace tessera::measure {
namespace {

using ops::ProductType;

// Adds a product [m, k] x [k, n]. E4m3 counts only where the width of the result allows it.
void add(std::vector<GemmShape>& gemms, int64_t m, int64_t n, int64_t k, ProductType type) {
  if (n % ops::kE4m3Depth != 0) type = ProductType::OfOperands;
  for (GemmShape& gemm : gemms) {
    if (gemm.m == m && gemm.n == n && gemm.k == k && gemm.type == type) {
      ++gemm.count;
      return;
    }
  }
  gemms.push_back({m, n, k, 1, type});
}

// Makes an operand, on a GPU of random numbers: a GPU multiplies ones and zeros faster, because its power
// depends on the bits that change.
at::Tensor operand(at::IntArrayRef shape, const at::TensorOptions& options) {
  if (options.device().type() == kHost) return at::ones(shape, options);
  return at::randn(shape, options.dtype(at::kFloat)).to(c10::typeMetaToScalarType(options.dtype()));
}

void add_layer(std::vector<GemmShape>& gemms, int64_t tokens, int64_t in, int64_t out, bool trains,
               ProductType type = ProductType::OfOperands) {
  add(gemms, tokens, out, in, type);              // forward
  add(gemms, tokens, in, out, type);              // gradient of the input
  if (trains) add(gemms, out, in, tokens, type);  // gradient of the weight
}

// Returns a function that computes c = a b^T each time it is called.
std::function<void()> multiplication(const at::Tensor& c, const at::Tensor& a, const at::Tensor& b,
                                     ProductType type, GemmPath path) {
  if (type == ProductType::E4m3) {
    const ops::Leaves& table = ops::leaves(c);
    return [&table, c, a = table.to_e4m3(a, {}), b = table.to_e4m3(b, {})] {
      table.multiply_e4m3(c, a, b, /*adds=*/false);
    };
  }
  if (path == GemmPath::Ours) return [=] { ops::product_out(c, a, b.t()); };
  return [=, result = c]() mutable { at::mm_out(result, a, b.t()); };
}

// Gives the share of the tokens that goes through a layer: all of them, or, for a layer of an expert that is
// here, as many as each expert would get if tokens chose all of them equally often.
class ExpertShares {
 public:
  explicit ExpertShares(const models::CausalLM& model) {
    for (const auto& block : model.blocks()) {
      const auto& sparse = block->sparse_mlp;
      if (sparse == nullptr) continue;
      const auto is_here = [](const auto& expert) { return expert->down_proj->weight.numel() > 0; };
      const auto here = std::count_if(sparse->experts.begin(), sparse->experts.end(), is_here);
      for (const auto& expert : sparse->experts) {
        for (const auto& linear :
             {expert->gate_proj, expert->up_proj, expert->gate_up_proj, expert->down_proj}) {
          shares_[linear.get()] = static_cast<double>(sparse->options().experts_per_token) /
                                  static_cast<double>(std::max<int64_t>(1, here));
        }
      }
    }
  }
  double of(const nn::Linear& linear) const {
    const auto found = shares_.find(&linear);
    return found == shares_.end() ? 1.0 : found->second;
  }

 private:
  std::map<const nn::Linear*, double> shares_;
};

// Adds the operations of the layer's product for one token of the model.
void add_product_of(const nn::Linear& linear, const ExpertShares& shares, FlopCount& count) {
  const bool is_e4m3 =
      linear.product_type() == ProductType::E4m3 && linear.out_features() % ops::kE4m3Depth == 0;
  (is_e4m3 ? count.per_token_e4m3 : count.per_token) +=
      2.0 * static_cast<double>(linear.in_features() * linear.out_features()) * shares.of(linear);
}

// Returns the operations of attention's forward for a pair of tokens: the scores, and their product with the
// values.
double attention_of(const nn::Attention& attention) {
  // A layer of another stage of a pipeline has no rows here.
  if (attention.o_proj->weight.numel() == 0) return 0.0;
  return 4.0 * static_cast<double>(attention.o_proj->in_features());
}

}  // namespace

double state_flops(const nn::GatedDeltaNet& mixer) {
  // A layer of another stage of a pipeline has no rows here.
  if (mixer.out_proj->weight.numel() == 0) return 0.0;
  return 6.0 * static_cast<double>(mixer.options().key_dim * mixer.out_proj->in_features());
}

StepGemms step_gemms(const models::CausalLM& model, int64_t tokens, int64_t label_tokens) {
  StepGemms gemms;
  const at::Tensor& head = model.head().weight();
  add_layer(gemms.head, label_tokens, head.size(1), head.size(0), head.requires_grad());
  const ExpertShares shares(model);
  for (const auto& module : model.modules(/*include_self=*/false)) {
    const auto* linear = dynamic_cast<const nn::Linear*>(module.get());
    if (linear == nullptr || linear->weight.is_same(head)) continue;
    const auto rows = static_cast<int64_t>(std::ceil(static_cast<double>(tokens) * shares.of(*linear)));
    add_layer(gemms.layers, rows, linear->in_features(), linear->out_features(),
              linear->weight.requires_grad(), linear->product_type());
    if (linear->adapter() == nullptr) continue;
    for (const auto& factor : linear->adapter()->named_parameters()) {
      const at::Tensor& value = factor.value();
      if (value.dim() == 2)
        add_layer(gemms.layers, rows, value.size(1), value.size(0), value.requires_grad());
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
    const at::Tensor a = operand({gemm.m, gemm.k}, options), b = operand({gemm.n, gemm.k}, options);
    const auto multiply = multiplication(at::empty({gemm.m, gemm.n}, options), a, b, gemm.type, path);
    total += best_seconds(options.device(), kRounds, multiply) * static_cast<double>(gemm.count);
  }
  return total;
}

double gemm_rate(const at::TensorOptions& options, GemmPath path, ProductType type) {
  const int64_t size = options.device().type() == kHost ? 1024 : 8192;
  const std::vector<GemmShape> gemms = {{size, size, size, 1, type}};
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

double FlopCount::of(int64_t tokens, int64_t label_tokens, int64_t token_pairs, double e4m3_weight) const {
  return (per_token + per_token_e4m3 * e4m3_weight) * static_cast<double>(tokens) +
         per_label * static_cast<double>(label_tokens) + per_pair * static_cast<double>(token_pairs);
}

FlopCount model_flops(const models::CausalLM& model) {
  constexpr int64_t kTokens = 1 << 16;  // so that experts' shares are hardly rounded
  const StepGemms gemms = step_gemms(model, kTokens, kTokens);
  FlopCount count;
  for (const GemmShape& gemm : gemms.layers) {
    (gemm.type == ProductType::E4m3 ? count.per_token_e4m3 : count.per_token) += gemm_flops({gemm}) / kTokens;
  }
  count.per_label = gemm_flops(gemms.head) / kTokens;
  for (const auto& block : model.blocks()) {
    if (block->attention != nullptr) count.per_pair += 3.0 * attention_of(*block->attention);
    if (block->delta_net != nullptr) count.per_token += 3.0 * state_flops(*block->delta_net);
  }
  return count;
}

FlopCount recomputed_flops(const models::CausalLM& model, int64_t checkpoint_every, bool recompute_mlps) {
  FlopCount count;
  const ExpertShares shares(model);
  int64_t number = 0;
  for (const auto& block : model.blocks()) {
    const bool is_whole = checkpoint_every > 0 && ++number % checkpoint_every == 0;
    if (is_whole && block->attention != nullptr) count.per_pair += attention_of(*block->attention);
    if (is_whole && block->delta_net != nullptr) count.per_token += state_flops(*block->delta_net);
    for (const auto& module : block->modules()) {
      const auto* linear = dynamic_cast<const nn::Linear*>(module.get());
      const auto* mlp = dynamic_cast<const nn::MLP*>(module.get());
      if (is_whole && linear != nullptr) add_product_of(*linear, shares, count);
      if (!recompute_mlps || mlp == nullptr) continue;
      for (const auto& made : {mlp->gate_proj, mlp->up_proj, mlp->gate_up_proj}) {
        if (made != nullptr) add_product_of(*made, shares, count);
      }
    }
  }
  return count;
}

}  // namespace tessera::measure

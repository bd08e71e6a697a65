#include "tessera/optim/muon_rule.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "tessera/device/device.h"

namespace tessera::optim {
namespace {

constexpr double kEpsilon = 1e-7;

class MuonRule : public Rule {
 public:
  MuonRule(OptimizerKind kind, const OptimizerOptions& options) : kind_(kind), o_(options) {}
  std::vector<RuleState> states(const RuleParameter&) const override { return {{"momentum_buffer"}}; }
  bool is_elementwise() const override { return false; }
  int64_t num_rounds() const override { return 1; }
  bool transforms() const override { return true; }

  at::Tensor matrix(RuleUpdate& u) const override {
    const at::Tensor& buffer = u.states[0];
    const bool is_nesterov = o_.nesterov != 0.0;
    at::Tensor direction = buffer;
    if (kind_ == OptimizerKind::Muon) {
      buffer.mul_(o_.momentum).add_(u.gradient);
      if (is_nesterov) direction = u.gradient.add_(buffer, o_.momentum);
    } else {
      buffer.lerp_(u.gradient, 1.0 - o_.momentum);
      if (is_nesterov) direction = u.gradient.lerp_(buffer, o_.momentum);
    }
    const bool is_wide = u.parameter->type == at::kDouble || is_on_host(u.value);
    return is_wide ? direction : direction.to(at::kBFloat16);
  }

  // Steps of Newton and Schulz with the coefficients of Jordan et al., which bring all singular values
  // near 1.
  at::Tensor transformed(const at::Tensor& whole) const override {
    constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
    const bool is_tall = whole.size(0) > whole.size(1);
    const at::Tensor norm = whole.norm();
    const at::Tensor divisor = kind_ == OptimizerKind::MuonTorch ? norm.clamp_min(kEpsilon) : norm + kEpsilon;
    at::Tensor x = (is_tall ? whole.t() : whole) / divisor;
    for (int64_t step = 0; step < static_cast<int64_t>(o_.ns_steps); ++step) {
      const at::Tensor gram = at::mm(x, x.t());
      x = at::addmm(x, at::addmm(gram, gram, gram, kB, kC), x, kA);
    }
    return (is_tall ? x.t() : x).contiguous();
  }

  void apply(RuleUpdate& u) const override {
    if (u.weight_decay != 0.0) u.value.mul_(1.0 - u.lr * u.weight_decay);
    u.value.add_(u.totals.back().to(u.value.scalar_type()), -u.lr * factor(u.parameter->shape));
  }

 private:
  double factor(const std::vector<int64_t>& shape) const {
    const auto rows = static_cast<double>(shape[0]), columns = static_cast<double>(shape[1]);
    const bool matches_adamw = kind_ == OptimizerKind::Muon || o_.match_rms_adamw != 0.0;
    if (matches_adamw) return 0.2 * std::sqrt(std::max(rows, columns));
    return std::sqrt(std::max(1.0, rows / columns));
  }

  const OptimizerKind kind_;
  const OptimizerOptions o_;
};

}  // namespace

RulePtr muon_rule(OptimizerKind kind, const OptimizerOptions& options) {
  return std::make_shared<MuonRule>(kind, options);
}

bool is_for_muon(const RuleParameter& parameter) {
  using enum nn::ParameterRole;
  const bool is_table = parameter.role == Embedding || parameter.role == LayerTable ||
                        parameter.role == Positions || parameter.role == OutputHead ||
                        parameter.role == Classifier;
  return parameter.shape.size() == 2 && !is_table;
}

}  // namespace tessera::optim

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "tessera/optim/whole_rules.h"

namespace tessera::optim {
namespace {

at::Tensor sum_of_squares(const at::Tensor& x) { return x.square().sum(at::kDouble); }

class StableAdamWRule : public Rule {
 public:
  explicit StableAdamWRule(const OptimizerOptions& options) : o_(options) {}
  std::vector<RuleState> states(const RuleParameter&) const override { return {{"exp_avg"}, {"exp_avg_sq"}}; }
  bool is_elementwise() const override { return false; }
  int64_t num_rounds() const override { return 1; }
  bool changes_tiles(int64_t round) const override { return round == 0; }
  int64_t measured_size(int64_t, const RuleParameter&) const override { return 1; }
  at::Tensor measure(int64_t, RuleUpdate& u) const override {
    // Averages with these weights have no bias.
    const double beta2 = unbiased(o_.beta2, u.step);
    u.states[0].lerp_(u.gradient, 1.0 - unbiased(o_.beta1, u.step));
    u.states[1].mul_(beta2).addcmul_(u.gradient, u.gradient, 1.0 - beta2);
    return u.gradient.square().div_(u.states[1].clamp_min(o_.epsilon * o_.epsilon)).sum(at::kDouble);
  }
  void apply(RuleUpdate& u) const override {
    const at::Tensor rms = u.totals[0].div(static_cast<double>(u.parameter->numel())).sqrt_();
    const at::Tensor lr = rms.clamp_min_(1.0).reciprocal_().mul_(u.lr).to(u.value.scalar_type());
    if (u.weight_decay != 0.0) u.value.mul_(1.0 - lr * u.weight_decay);
    u.value.sub_(u.states[0].div(u.states[1].sqrt().add_(o_.epsilon)).mul_(lr));
  }

 private:
  static double unbiased(double beta, int64_t step) {
    const double power = std::pow(beta, static_cast<double>(step));
    return (power - beta) / (power - 1.0);
  }

  const OptimizerOptions o_;
};

class LambRule : public Rule {
 public:
  explicit LambRule(const OptimizerOptions& options) : o_(options) {}
  std::vector<RuleState> states(const RuleParameter&) const override { return {{"exp_avg"}, {"exp_avg_sq"}}; }
  bool is_elementwise() const override { return false; }
  int64_t num_rounds() const override { return 1; }
  bool changes_tiles(int64_t round) const override { return round == 0; }
  int64_t measured_size(int64_t, const RuleParameter&) const override { return 2; }
  at::Tensor measure(int64_t, RuleUpdate& u) const override {
    u.states[0].mul_(o_.beta1).add_(u.gradient, 1.0 - o_.beta1);
    u.states[1].mul_(o_.beta2).addcmul_(u.gradient, u.gradient, 1.0 - o_.beta2);
    return at::stack({sum_of_squares(u.value), sum_of_squares(direction(u))});
  }
  void apply(RuleUpdate& u) const override {
    const at::Tensor of_value = u.totals[0].select(0, 0), of_direction = u.totals[0].select(0, 1);
    const at::Tensor ratio = of_value.div(of_direction).sqrt_().clamp_(o_.min_coeff, o_.max_coeff);
    const at::Tensor has_both = of_value.gt(0).logical_and_(of_direction.gt(0));
    const at::Tensor lr = at::where(has_both, ratio, at::ones_like(ratio)) * u.lr;
    u.value.sub_(direction(u).mul_(lr.to(u.value.scalar_type())));
  }

 private:
  at::Tensor direction(const RuleUpdate& u) const {
    const auto t = static_cast<double>(u.step);
    const at::Tensor root = u.states[1].div(1.0 - std::pow(o_.beta2, t)).sqrt_().add_(o_.epsilon);
    return u.states[0].div(1.0 - std::pow(o_.beta1, t)).div_(root).add_(u.value, u.weight_decay);
  }

  const OptimizerOptions o_;
};

}  // namespace

RulePtr stable_adamw_rule(const OptimizerOptions& options) {
  return std::make_shared<StableAdamWRule>(options);
}
RulePtr lamb_rule(const OptimizerOptions& options) { return std::make_shared<LambRule>(options); }

}  // namespace tessera::optim

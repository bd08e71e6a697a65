#include "tessera/optim/element_rules.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "tessera/device/host_memory.h"
#include "tessera/ops/adamw.h"

namespace tessera::optim {
namespace {

// A rule with numbers.
class OptionRule : public Rule {
 public:
  explicit OptionRule(const OptimizerOptions& options) : o_(options) {}

 protected:
  const OptimizerOptions o_;
};

// Returns the square root of Adam's second moment without its bias, plus epsilon.
at::Tensor adam_denominator(const at::Tensor& square, double beta2, int64_t step, double epsilon) {
  const double correction = std::sqrt(1.0 - std::pow(beta2, static_cast<double>(step)));
  return square.sqrt().div_(correction).add_(epsilon);
}

void update_square(const at::Tensor& square, const at::Tensor& gradient, double beta2) {
  square.mul_(beta2).addcmul_(gradient, gradient, 1.0 - beta2);
}

class AdamWRule : public OptionRule {
 public:
  using OptionRule::OptionRule;
  std::vector<RuleState> states(const RuleParameter&) const override { return {{"exp_avg"}, {"exp_avg_sq"}}; }
  void apply(RuleUpdate& u) const override {
    ops::AdamWUpdate update;
    update.step = u.step;
    update.learning_rate = u.lr;
    update.beta1 = o_.beta1;
    update.beta2 = o_.beta2;
    update.epsilon = o_.epsilon;
    update.weight_decay = u.weight_decay;
    ops::adamw({{u.value, u.gradient, u.states[0], u.states[1], update}});
  }
};

class SgdRule : public OptionRule {
 public:
  using OptionRule::OptionRule;
  std::vector<RuleState> states(const RuleParameter&) const override {
    if (o_.momentum == 0.0) return {};
    return {{"momentum_buffer"}};
  }
  void apply(RuleUpdate& u) const override {
    if (u.weight_decay != 0.0) u.gradient.add_(u.value, u.weight_decay);
    if (o_.momentum == 0.0) {
      u.value.add_(u.gradient, -u.lr);
      return;
    }
    const at::Tensor& buffer = u.states[0];
    // The first gradient is not dampened.
    buffer.mul_(o_.momentum).add_(u.gradient, u.step == 1 ? 1.0 : 1.0 - o_.dampening);
    u.value.add_(o_.nesterov != 0.0 ? u.gradient.add_(buffer, o_.momentum) : buffer, -u.lr);
  }
};

class LionRule : public OptionRule {
 public:
  using OptionRule::OptionRule;
  std::vector<RuleState> states(const RuleParameter&) const override { return {{"exp_avg"}}; }
  void apply(RuleUpdate& u) const override {
    const at::Tensor& mean = u.states[0];
    if (u.weight_decay != 0.0) u.value.mul_(1.0 - u.lr * u.weight_decay);
    u.value.add_((mean * o_.beta1).add_(u.gradient, 1.0 - o_.beta1).sign_(), -u.lr);
    mean.mul_(o_.beta2).add_(u.gradient, 1.0 - o_.beta2);
  }
};

class AdagradRule : public OptionRule {
 public:
  using OptionRule::OptionRule;
  std::vector<RuleState> states(const RuleParameter&) const override { return {{"sum"}}; }
  void apply(RuleUpdate& u) const override {
    if (u.weight_decay != 0.0) u.gradient.add_(u.value, u.weight_decay);
    u.states[0].addcmul_(u.gradient, u.gradient);
    const double lr = u.lr / (1.0 + static_cast<double>(u.step - 1) * o_.lr_decay);
    u.value.addcdiv_(u.gradient, u.states[0].sqrt().add_(o_.epsilon), -lr);
  }
};

class RmsPropRule : public OptionRule {
 public:
  using OptionRule::OptionRule;
  std::vector<RuleState> states(const RuleParameter&) const override {
    std::vector<RuleState> all = {{"square_avg"}};
    if (o_.momentum != 0.0) all.push_back({"momentum_buffer"});
    if (o_.centered != 0.0) all.push_back({"grad_avg"});
    return all;
  }
  void apply(RuleUpdate& u) const override {
    if (u.weight_decay != 0.0) u.gradient.add_(u.value, u.weight_decay);
    update_square(u.states[0], u.gradient, o_.alpha);
    at::Tensor variance = u.states[0];
    if (o_.centered != 0.0) {
      const at::Tensor& mean = u.states.back();
      mean.lerp_(u.gradient, 1.0 - o_.alpha);
      variance = variance.addcmul(mean, mean, -1.0);
    }
    const at::Tensor root = variance.sqrt().add_(o_.epsilon);
    if (o_.momentum == 0.0) {
      u.value.addcdiv_(u.gradient, root, -u.lr);
      return;
    }
    u.states[1].mul_(o_.momentum).addcdiv_(u.gradient, root);
    u.value.add_(u.states[1], -u.lr);
  }
};

class AdEMAMixRule : public OptionRule {
 public:
  using OptionRule::OptionRule;
  std::vector<RuleState> states(const RuleParameter&) const override {
    return {{"exp_avg"}, {"exp_avg_slow"}, {"exp_avg_sq"}};
  }
  void apply(RuleUpdate& u) const override {
    const double beta3 = beta3_at(u.step), alpha = alpha_at(u.step);
    u.states[0].lerp_(u.gradient, 1.0 - o_.beta1);
    u.states[1].lerp_(u.gradient, 1.0 - beta3);
    update_square(u.states[2], u.gradient, o_.beta2);
    const double correction = 1.0 - std::pow(o_.beta1, static_cast<double>(u.step));
    const at::Tensor numerator = u.states[0].div(correction).add_(u.states[1], alpha);
    if (u.weight_decay != 0.0) u.value.mul_(1.0 - u.lr * u.weight_decay);
    u.value.addcdiv_(numerator, adam_denominator(u.states[2], o_.beta2, u.step, o_.epsilon), -u.lr);
  }

 private:
  double alpha_at(int64_t step) const {
    return o_.t_alpha == 0.0 ? o_.alpha
                             : std::min(static_cast<double>(step) * o_.alpha / o_.t_alpha, o_.alpha);
  }
  // Section 3.2 of the paper: the half-life grows linearly.
  double beta3_at(int64_t step) const {
    const double done = static_cast<double>(step) / o_.t_beta3;
    if (o_.t_beta3 == 0.0 || done >= 1.0) return o_.beta3;
    const double log1 = std::log(o_.beta1), log3 = std::log(o_.beta3);
    return std::min(std::exp(log1 * log3 / ((1.0 - done) * log3 + done * log1)), o_.beta3);
  }
};

class ScheduleFreeRule : public OptionRule {
 public:
  using OptionRule::OptionRule;
  std::vector<RuleState> states(const RuleParameter&) const override {
    using Form = RuleState::Form;
    return {
        {.name = "z", .start = RuleState::Start::Value},
        {.name = "exp_avg_sq"},
        {.name = "lr_max", .form = Form::Whole, .shape = {1}, .type = at::kDouble, .is_on_host = true},
        {.name = "weight_sum", .form = Form::Whole, .shape = {1}, .type = at::kDouble, .is_on_host = true}};
  }
  void begin(RuleUpdate& u) const override {
    double& lr_max = host_span<double>(u.states[2])[0];
    double& weight_sum = host_span<double>(u.states[3])[0];
    lr_max = std::max(lr_max, u.lr);
    weight_sum += weight_of(u, lr_max);
  }
  void apply(RuleUpdate& u) const override {
    const double weight_sum = host_span<double>(u.states[3])[0];
    const double share =
        weight_sum == 0.0 ? 0.0 : weight_of(u, host_span<double>(u.states[2])[0]) / weight_sum;
    const at::Tensor &y = u.value, &z = u.states[0], &square = u.states[1];
    update_square(square, u.gradient, o_.beta2);
    const double correction = 1.0 - std::pow(o_.beta2, static_cast<double>(u.step));
    const at::Tensor direction = u.gradient.div_(square.div(correction).sqrt_().add_(o_.epsilon));
    if (u.weight_decay != 0.0) direction.add_(y, u.weight_decay);
    y.lerp_(z, share).add_(direction, u.lr * (o_.beta1 * (1.0 - share) - 1.0));
    z.sub_(direction, u.lr);
  }
  bool has_average() const override { return true; }
  void move_to_average(bool is_average, const at::Tensor& value,
                       const std::vector<at::Tensor>& states) const override {
    value.lerp_(states[0], is_average ? 1.0 - 1.0 / o_.beta1 : 1.0 - o_.beta1);
  }

 private:
  double weight_of(const RuleUpdate& u, double lr_max) const {
    return std::pow(static_cast<double>(u.step), o_.r) * std::pow(lr_max, o_.weight_lr_power);
  }
};

}  // namespace

RulePtr adamw_rule(const OptimizerOptions& options) { return std::make_shared<AdamWRule>(options); }
RulePtr sgd_rule(const OptimizerOptions& options) { return std::make_shared<SgdRule>(options); }
RulePtr lion_rule(const OptimizerOptions& options) { return std::make_shared<LionRule>(options); }
RulePtr adagrad_rule(const OptimizerOptions& options) { return std::make_shared<AdagradRule>(options); }
RulePtr rmsprop_rule(const OptimizerOptions& options) { return std::make_shared<RmsPropRule>(options); }
RulePtr ademamix_rule(const OptimizerOptions& options) { return std::make_shared<AdEMAMixRule>(options); }
RulePtr schedule_free_rule(const OptimizerOptions& options) {
  return std::make_shared<ScheduleFreeRule>(options);
}

}  // namespace tessera::optim

#include "tessera/optim/low_rank_rules.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/core/rng.h"
#include "tessera/device/device.h"
#include "tessera/device/host_memory.h"
#include "tessera/optim/low_rank.h"
#include "tessera/optim/muon_rule.h"

namespace tessera::optim {
namespace {

// Keeps Adam's moments of a projected gradient. These states come first: P, then the two moments.
class LowRankRule : public Rule {
 public:
  explicit LowRankRule(const OptimizerOptions& options) : o_(options) {}
  std::vector<RuleState> states(const RuleParameter& parameter) const override {
    using Form = RuleState::Form;
    const LowRank projection = of(parameter);
    return {{.name = "projection", .form = Form::Whole, .shape = projection.shape()},
            {.name = "exp_avg", .form = Form::Whole, .shape = projection.projected_shape()},
            {.name = "exp_avg_sq", .form = Form::Whole, .shape = projection.projected_shape()}};
  }
  bool is_elementwise() const override { return false; }
  int64_t num_rounds() const override { return 2; }
  bool changes_tiles(int64_t) const override { return false; }

 protected:
  LowRank of(const RuleParameter& parameter) const { return {parameter, o_.rank}; }
  int64_t projected_numel(const RuleParameter& parameter) const {
    return RuleParameter{of(parameter).projected_shape()}.numel();
  }
  // Says whether this update projects by a new P.
  bool is_due(int64_t step) const { return (step - 1) % static_cast<int64_t>(o_.update_proj_gap) == 0; }
  at::Tensor projected(const RuleUpdate& u) const {
    return of(*u.parameter).project(u.gradient, u.states[0], *u.box).view({-1});
  }
  // Moves the moments towards the projected gradient, and returns their ratio.
  at::Tensor move_moments(const RuleUpdate& u, const at::Tensor& gradient) const {
    const at::Tensor &mean = u.states[1], &square = u.states[2];
    mean.mul_(o_.beta1).add_(gradient, 1.0 - o_.beta1);
    square.mul_(o_.beta2).addcmul_(gradient, gradient, 1.0 - o_.beta2);
    return mean / square.sqrt().add_(o_.epsilon);
  }
  at::Tensor total_of(const RuleUpdate& u) const {
    return u.totals.back().view(of(*u.parameter).projected_shape()).to(u.parameter->type);
  }
  // Returns the learning rate for such a ratio of moments, which takes their biases out.
  double corrected_lr(const RuleUpdate& u) const {
    const auto t = static_cast<double>(u.step);
    return u.lr * std::sqrt(1.0 - std::pow(o_.beta2, t)) / (1.0 - std::pow(o_.beta1, t));
  }
  static void decay(RuleUpdate& u) {
    if (u.weight_decay != 0.0) u.value.mul_(1.0 - u.lr * u.weight_decay);
  }

  const OptimizerOptions o_;
};

class GaLoreRule : public LowRankRule {
 public:
  using LowRankRule::LowRankRule;
  // In the first round the ranks agree on the parameters that have gradients, and then on P.
  int64_t measured_size(int64_t round, const RuleParameter& parameter) const override {
    return round == 0 ? 0 : projected_numel(parameter);
  }
  bool examines() const override { return true; }
  std::vector<int64_t> examined_shape(const RuleUpdate& u) const override {
    return is_due(u.step) ? of(*u.parameter).shape() : std::vector<int64_t>{};
  }
  at::Tensor examine(const at::Tensor& gradient, const RuleParameter& parameter) const override {
    return of(parameter).singular_vectors(gradient);
  }
  void keep(RuleUpdate& u, const at::Tensor& examined) const override { u.states[0].copy_(examined); }
  at::Tensor measure(int64_t, RuleUpdate& u) const override { return projected(u); }
  void absorb(int64_t round, RuleUpdate& u) const override {
    if (round == 1) u.totals.back() = move_moments(u, total_of(u));
  }
  void apply(RuleUpdate& u) const override {
    const at::Tensor direction = of(*u.parameter).lead_back(u.totals.back(), u.states[0], *u.box);
    u.value.add_(direction, -corrected_lr(u) * o_.scale);
    decay(u);
  }
};

class ApolloRule : public LowRankRule {
 public:
  ApolloRule(const OptimizerOptions& options, uint64_t seed) : LowRankRule(options), seed_(seed) {}
  std::vector<RuleState> states(const RuleParameter& parameter) const override {
    std::vector<RuleState> all = LowRankRule::states(parameter);
    all.push_back({.name = "scaled_grad_norm", .form = RuleState::Form::Whole, .shape = {1}});
    return all;
  }
  void begin(RuleUpdate& u) const override {
    if (is_due(u.step) && !u.states[0].is_meta()) draw(u);
  }
  // First the projected gradient, then the norm of the scaled one.
  int64_t measured_size(int64_t round, const RuleParameter& parameter) const override {
    return round == 0 ? projected_numel(parameter) : 1;
  }
  at::Tensor measure(int64_t round, RuleUpdate& u) const override {
    return round == 0 ? projected(u) : scaled(u).square_().sum(at::kDouble);
  }
  // The totals become the factors of the gradient: those of rows or columns, and that of the limit.
  void absorb(int64_t round, RuleUpdate& u) const override {
    u.totals.back() = round == 0 ? factors(u) : limit(u);
  }
  void apply(RuleUpdate& u) const override {
    u.value.sub_(scaled(u).mul_(u.totals[1] * (corrected_lr(u) * std::sqrt(o_.scale))));
    decay(u);
  }

 private:
  // Draws the elements of P from a normal distribution of variance 1 / rank.
  void draw(const RuleUpdate& u) const {
    const at::Tensor values = at::empty(u.states[0].sizes(), at::TensorOptions(kHost).dtype(at::kDouble));
    double* const elements = host_span<double>(values).data();
    const CounterRng rng(seed_, stream_of((u.parameter->name + "/projection").c_str()),
                         static_cast<uint64_t>(u.step));
    const double deviation = 1.0 / std::sqrt(static_cast<double>(of(*u.parameter).rank()));
    constexpr int64_t kGrain = 4096;
    at::parallel_for(0, values.numel(), kGrain, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) elements[i] = deviation * rng.normal(static_cast<uint64_t>(i));
    });
    u.states[0].copy_(values);
  }

  at::Tensor factors(const RuleUpdate& u) const {
    constexpr double kTiny = 1e-8;
    const at::Tensor gradient = total_of(u), direction = move_moments(u, gradient);
    if (o_.scale_type != 0.0) return direction.norm().div_(gradient.norm().add_(kTiny)).view({1, 1});
    const std::vector<int64_t> along = {of(*u.parameter).shortens_rows() ? 1 : 0};
    const auto norms = [&](const at::Tensor& x) { return x.norm(2, along, /*keepdim=*/true); };
    return norms(direction).div_(norms(gradient).add_(kTiny));
  }

  // The limiter of norm growth of Chen et al., "Fira" (2024).
  at::Tensor limit(const RuleUpdate& u) const {
    constexpr double kGrowth = 1.01, kTiny = 1e-8;
    const at::Tensor &last = u.states[3], norm = u.totals.back().sqrt().to(last.scalar_type());
    const at::Tensor divisor =
        u.step == 1 ? at::ones_like(norm) : norm.div(last.add(kTiny)).clamp_min_(kGrowth).div_(kGrowth);
    last.copy_(norm.div(divisor));
    return divisor.reciprocal();
  }

  at::Tensor scaled(const RuleUpdate& u) const {
    const at::Tensor& all = u.totals[0];
    return u.gradient * (all.numel() == 1 ? all : of(*u.parameter).part(all, *u.box));
  }

  const uint64_t seed_;
};

}  // namespace

RulePtr galore_rule(const OptimizerOptions& options) { return std::make_shared<GaLoreRule>(options); }

RulePtr apollo_rule(const OptimizerOptions& options, uint64_t seed) {
  return std::make_shared<ApolloRule>(options, seed);
}

bool is_for_low_rank(const RuleParameter& parameter) {
  if (!parameter.is_target.has_value()) return is_for_muon(parameter);
  const bool is_table = parameter.role == nn::ParameterRole::Embedding ||
                        parameter.role == nn::ParameterRole::LayerTable ||
                        parameter.role == nn::ParameterRole::Positions;
  return *parameter.is_target && parameter.shape.size() == 2 && !is_table;
}

}  // namespace tessera::optim

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/optim/whole_rules.h"
#include "tessera/parallel/box_part.h"

namespace tessera::optim {
namespace {

bool is_factored(const RuleParameter& parameter) { return parameter.shape.size() >= 2; }

// Returns the sizes without dim `dim`, counted from the end.
std::vector<int64_t> without(std::vector<int64_t> sizes, int64_t dim) {
  sizes.erase(sizes.end() - dim);
  return sizes;
}

parallel::Box without(const parallel::Box& box, int64_t dim) {
  return {without(box.offset, dim), without(box.size, dim)};
}

int64_t numel_of(const std::vector<int64_t>& sizes) { return RuleParameter{sizes}.numel(); }

// Averages of the rows of a parameter (over its last dim) and of its columns, on every rank whole.
struct Factors {
  at::Tensor rows, columns;

  static std::vector<RuleState> states(const RuleParameter& parameter, const std::string& name) {
    using Form = RuleState::Form;
    return {{.name = name + "_row", .form = Form::Whole, .shape = without(parameter.shape, 1)},
            {.name = name + "_col", .form = Form::Whole, .shape = without(parameter.shape, 2)}};
  }
  static int64_t numel(const RuleParameter& parameter) {
    return numel_of(without(parameter.shape, 1)) + numel_of(without(parameter.shape, 2));
  }
  // Returns the sums of a tile's rows and columns, zero for all others: [numel()], float64.
  static at::Tensor sums(const RuleUpdate& u, const at::Tensor& x) {
    const auto sum = [&](int64_t dim) {
      const at::Tensor all = at::zeros(without(u.parameter->shape, dim), x.options().dtype(at::kDouble));
      parallel::box_part(all, without(*u.box, dim)).add_(x.sum(-dim, /*keepdim=*/false, at::kDouble));
      return all.view({-1});
    };
    return at::cat({sum(1), sum(2)});
  }
  // Moves the averages towards the means that `sums`, joined over all tiles, give.
  void absorb(const RuleUpdate& u, const at::Tensor& sums, double beta) const {
    const auto& shape = u.parameter->shape;
    const auto move = [&](const at::Tensor& average, const at::Tensor& sum, int64_t count) {
      if (average.numel() == 0) return;  // this rank holds nothing of the parameter
      average.mul_(beta).add_(sum.div(static_cast<double>(count)).view(average.sizes()), 1.0 - beta);
    };
    const int64_t num_rows = numel_of(without(shape, 1));
    move(rows, sums.narrow(0, 0, num_rows), shape.back());
    move(columns, sums.narrow(0, num_rows, sums.numel() - num_rows), shape[shape.size() - 2]);
  }
  // Returns x / root of (rows columns / mean of the rows) for a tile, which is x over its estimated root.
  at::Tensor scaled(const RuleUpdate& u, const at::Tensor& x) const {
    const at::Tensor of_rows = rows.div(rows.mean(-1, /*keepdim=*/true)).rsqrt_();
    const at::Tensor here = parallel::box_part(of_rows, without(*u.box, 1)).unsqueeze(-1);
    return x.mul(here).mul_(parallel::box_part(columns.rsqrt(), without(*u.box, 2)).unsqueeze(-2));
  }
};

// Returns what divides an update whose squares sum up to `total`, so that its root mean square is at most
// `threshold`.
at::Tensor clip_divisor(const RuleUpdate& u, const at::Tensor& total, double threshold) {
  return total.div(static_cast<double>(u.parameter->numel()))
      .sqrt_()
      .div_(threshold)
      .clamp_min_(1.0)
      .to(u.gradient.scalar_type());
}

class AdafactorRule : public Rule {
 public:
  explicit AdafactorRule(const OptimizerOptions& options) : o_(options) {}
  std::vector<RuleState> states(const RuleParameter& parameter) const override {
    if (is_factored(parameter)) return Factors::states(parameter, "exp_avg_sq");
    return {{"exp_avg_sq"}};
  }
  bool is_elementwise() const override { return false; }
  // First the averages of squares, then the root mean square of the update.
  int64_t num_rounds() const override { return 2; }
  bool changes_tiles(int64_t round) const override { return round == 1; }
  int64_t measured_size(int64_t round, const RuleParameter& parameter) const override {
    return round == 1 ? 1 : is_factored(parameter) ? Factors::numel(parameter) : 0;
  }
  at::Tensor measure(int64_t round, RuleUpdate& u) const override {
    if (round == 0) return Factors::sums(u, u.gradient.square().add_(o_.epsilon));
    if (!is_factored(*u.parameter)) {
      const double beta = beta_at(u.step);
      u.states[0].mul_(beta).add_(u.gradient.square().add_(o_.epsilon), 1.0 - beta);
    }
    return direction(u).square_().sum(at::kDouble);
  }
  void absorb(int64_t round, RuleUpdate& u) const override {
    if (round == 0 && is_factored(*u.parameter))
      Factors{u.states[0], u.states[1]}.absorb(u, u.totals[0], beta_at(u.step));
  }
  void apply(RuleUpdate& u) const override {
    const at::Tensor step = direction(u).div_(clip_divisor(u, u.totals[1], o_.clip_threshold));
    if (u.weight_decay != 0.0) u.value.mul_(1.0 - u.lr * u.weight_decay);
    u.value.add_(step, -u.lr);
  }

 private:
  double beta_at(int64_t step) const { return 1.0 - std::pow(static_cast<double>(step), o_.decay_rate); }
  at::Tensor direction(const RuleUpdate& u) const {
    if (is_factored(*u.parameter)) return Factors{u.states[0], u.states[1]}.scaled(u, u.gradient);
    return u.states[0].rsqrt().mul_(u.gradient);
  }

  const OptimizerOptions o_;
};

class CameRule : public Rule {
 public:
  explicit CameRule(const OptimizerOptions& options) : o_(options) {}
  std::vector<RuleState> states(const RuleParameter& parameter) const override {
    if (!is_factored(parameter)) return {{"exp_avg"}, {"exp_avg_sq"}};
    std::vector<RuleState> all = {{"exp_avg"}};
    for (const char* const name : {"exp_avg_sq", "exp_avg_res"}) {
      for (RuleState& state : Factors::states(parameter, name)) all.push_back(std::move(state));
    }
    return all;
  }
  bool is_elementwise() const override { return false; }
  // First the averages of squares, then the root mean square of the update, then the averages of residuals.
  int64_t num_rounds() const override { return 3; }
  bool changes_tiles(int64_t round) const override { return round > 0; }
  int64_t measured_size(int64_t round, const RuleParameter& parameter) const override {
    if (round == 1) return 1;
    return is_factored(parameter) ? Factors::numel(parameter) : 0;
  }
  at::Tensor measure(int64_t round, RuleUpdate& u) const override {
    if (round == 0) return Factors::sums(u, u.gradient.square().add_(o_.epsilon));
    if (round == 1) {
      if (!is_factored(*u.parameter))
        u.states[1].mul_(o_.beta2).add_(u.gradient.square().add_(o_.epsilon), 1.0 - o_.beta2);
      return direction(u).square_().sum(at::kDouble);
    }
    const at::Tensor clipped = move_mean(u);
    return Factors::sums(u, clipped.sub_(u.states[0]).square_().add_(o_.epsilon2));
  }
  void absorb(int64_t round, RuleUpdate& u) const override {
    if (round == 1 || !is_factored(*u.parameter)) return;
    factors(u, round).absorb(u, u.totals[static_cast<size_t>(round)], round == 0 ? o_.beta2 : o_.beta3);
  }
  void apply(RuleUpdate& u) const override {
    if (!is_factored(*u.parameter)) move_mean(u);
    if (u.weight_decay != 0.0) u.value.mul_(1.0 - u.lr * u.weight_decay);
    u.value.add_(is_factored(*u.parameter) ? factors(u, 2).scaled(u, u.states[0]) : u.states[0], -u.lr);
  }

 private:
  static Factors factors(const RuleUpdate& u, int64_t round) {
    return round == 0 ? Factors{u.states[1], u.states[2]} : Factors{u.states[3], u.states[4]};
  }
  static at::Tensor direction(const RuleUpdate& u) {
    if (is_factored(*u.parameter)) return factors(u, 0).scaled(u, u.gradient);
    return u.states[1].rsqrt().mul_(u.gradient);
  }
  // Moves the mean towards the clipped update, which it returns.
  at::Tensor move_mean(RuleUpdate& u) const {
    const at::Tensor clipped = direction(u).div_(clip_divisor(u, u.totals[1], o_.clip_threshold));
    u.states[0].mul_(o_.beta1).add_(clipped, 1.0 - o_.beta1);
    return clipped;
  }

  const OptimizerOptions o_;
};

}  // namespace

RulePtr adafactor_rule(const OptimizerOptions& options) { return std::make_shared<AdafactorRule>(options); }
RulePtr came_rule(const OptimizerOptions& options) { return std::make_shared<CameRule>(options); }

}  // namespace tessera::optim

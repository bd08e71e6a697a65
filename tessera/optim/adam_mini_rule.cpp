#include "tessera/optim/adam_mini_rule.h"

#include <cmath>

#include <ATen/ATen.h>

namespace tessera::optim {
namespace {

nn::RowBlocks blocks_of(const RuleParameter& parameter) {
  const int64_t rows = parameter.shape[0];
  return parameter.shape.size() > 1 ? parameter.row_blocks : nn::RowBlocks{rows, rows, 0};
}

int64_t num_blocks(const RuleParameter& parameter) {
  return blocks_of(parameter).num_blocks(parameter.shape[0]);
}

// Returns the number of the block of each of the rows [begin, begin + count): int64.
at::Tensor block_numbers(const RuleParameter& parameter, int64_t begin, int64_t count, c10::Device device) {
  const nn::RowBlocks blocks = blocks_of(parameter);
  const at::Tensor rows = at::arange(begin, begin + count, at::TensorOptions(device).dtype(at::kLong));
  const at::Tensor group = rows.div(blocks.group, "floor"), within = rows.remainder(blocks.group);
  const int64_t of_heads = blocks.group - blocks.single;
  const at::Tensor number = at::where(within.lt(of_heads), within.div(blocks.head, "floor"),
                                      within + (blocks.heads_of_group() - of_heads));
  return group.mul(blocks.blocks_of_group()).add_(number);
}

class AdamMiniRule : public Rule {
 public:
  explicit AdamMiniRule(const OptimizerOptions& options) : o_(options) {}
  std::vector<RuleState> states(const RuleParameter& parameter) const override {
    return {
        {"exp_avg"},
        {.name = "exp_avg_sq", .form = RuleState::Form::Whole, .shape = {num_blocks(parameter)}},
    };
  }
  bool is_elementwise() const override { return false; }
  int64_t num_rounds() const override { return 1; }
  bool changes_tiles(int64_t round) const override { return round == 1; }
  int64_t measured_size(int64_t, const RuleParameter& parameter) const override {
    return num_blocks(parameter);
  }
  // Returns the sum of squares of each block.
  at::Tensor measure(int64_t, RuleUpdate& u) const override {
    const at::Tensor of_rows = u.gradient.square().view({u.gradient.size(0), -1}).sum(1, false, at::kDouble);
    return at::zeros({num_blocks(*u.parameter)}, of_rows.options()).index_add_(0, numbers(u), of_rows);
  }
  void absorb(int64_t, RuleUpdate& u) const override {
    const RuleParameter& parameter = *u.parameter;
    const at::Tensor& sums = u.totals.back();
    const int64_t rows = parameter.shape[0];
    const at::Tensor sizes = at::zeros_like(sums).index_add_(
        0, block_numbers(parameter, 0, rows, sums.device()),
        at::full({rows}, static_cast<double>(parameter.numel() / rows), sums.options()));
    u.states[1].mul_(o_.beta2).add_(sums.div(sizes), 1.0 - o_.beta2);
  }
  void apply(RuleUpdate& u) const override {
    const auto t = static_cast<double>(u.step);
    if (u.weight_decay != 0.0) u.value.mul_(1.0 - u.lr * u.weight_decay);
    u.states[0].lerp_(u.gradient, 1.0 - o_.beta1);
    const at::Tensor root = u.states[1].sqrt().div_(std::sqrt(1.0 - std::pow(o_.beta2, t))).add_(o_.epsilon);
    std::vector<int64_t> by_row(u.value.sizes().size(), 1);
    by_row[0] = u.value.size(0);
    u.value.addcdiv_(u.states[0], root.index_select(0, numbers(u)).view(by_row),
                     -u.lr / (1.0 - std::pow(o_.beta1, t)));
  }

 private:
  static at::Tensor numbers(const RuleUpdate& u) {
    return block_numbers(*u.parameter, u.box->offset[0], u.box->size[0], u.value.device());
  }

  const OptimizerOptions o_;
};

}  // namespace

RulePtr adam_mini_rule(const OptimizerOptions& options) { return std::make_shared<AdamMiniRule>(options); }

bool has_own_squares(const RuleParameter& parameter) {
  return parameter.shape.size() == 1 && parameter.name.ends_with("bias");
}

}  // namespace tessera::optim

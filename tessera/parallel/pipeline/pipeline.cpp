#include "tessera/parallel/pipeline/pipeline.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/error.h"
#include "tessera/parallel/pipeline/executor.h"
#include "tessera/parallel/pipeline/stage_layouts.h"

namespace tessera::parallel {
namespace {

// Returns the work of the matrices among the parameters: for each element of the whole matrix one
// multiplication in the forward, one for the gradient of the input and, if it is trained, one for its own
// gradient. Of a weight in blocks of codes only bytes are known; a byte counts as two elements, as it is in
// most of the forms.
double work_of(const std::vector<at::Tensor>& parameters, const ParameterLayouts& layouts) {
  double work = 0.0;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.dim() < 2) continue;
    const double elements = parameter.scalar_type() == at::kByte ? 2.0 : 1.0;
    work += elements * static_cast<double>(layouts.of(parameter).numel()) *
            (parameter.requires_grad() ? 3.0 : 2.0);
  }
  return work;
}

// Finds the stages that use each parameter.
class StagesOf {
 public:
  StagesOf(const PipelineParts& parts, const std::vector<int64_t>& bounds) {
    const int64_t last = static_cast<int64_t>(bounds.size()) - 2;
    add(parts.first, 0);
    for (int64_t stage = 0; stage <= last; ++stage) {
      for (int64_t i = bounds[stage]; i < bounds[stage + 1]; ++i) add(parts.blocks[i]->parameters(), stage);
    }
    add(parts.last, last);
  }

  std::set<int64_t> of(const at::Tensor& parameter) const {
    const auto found = stages_.find(parameter.unsafeGetTensorImpl());
    return found == stages_.end() ? std::set<int64_t>{0} : found->second;
  }

 private:
  void add(const std::vector<at::Tensor>& parameters, int64_t stage) {
    for (const at::Tensor& parameter : parameters) stages_[parameter.unsafeGetTensorImpl()].insert(stage);
  }
  std::unordered_map<const c10::TensorImpl*, std::set<int64_t>> stages_;
};

std::string text_of(const std::vector<int64_t>& split) {
  std::string text;
  for (const int64_t blocks : split) text += (text.empty() ? "[" : ", ") + std::to_string(blocks);
  return text + "]";
}

[[noreturn]] void refuse_stages(int64_t num_blocks, int64_t num_ranks, int64_t stages_per_rank) {
  throw Error(ErrorKind::Config, "PIPELINE", "the model has too few layers for the pipeline")
      .got(std::to_string(num_ranks) + " ranks" +
           (stages_per_rank > 1 ? " with " + std::to_string(stages_per_rank) + " stages each" : "") +
           " and " + std::to_string(num_blocks) + " layers")
      .need("at least one layer per stage")
      .hint(num_ranks <= num_blocks ? "pipeline_stages_per_rank: " + std::to_string(num_blocks / num_ranks)
                                    : "pipeline_parallel_size: " + std::to_string(num_blocks));
}

std::vector<int64_t> bounds_of(const std::vector<int64_t>& split) {
  std::vector<int64_t> bounds(split.size() + 1, 0);
  std::partial_sum(split.begin(), split.end(), bounds.begin() + 1);
  return bounds;
}

// Returns the bounds for `split`, which the user gave, or `by_work`, the bounds that the costs give, if it is
// empty. Throws for a split that does not fit.
std::vector<int64_t> checked_bounds(const std::vector<int64_t>& split, const std::vector<int64_t>& by_work) {
  if (split.empty()) return by_work;
  const std::vector<int64_t> bounds = bounds_of(split);
  const bool has_empty = std::ranges::any_of(split, [](int64_t blocks) { return blocks < 1; });
  if (!has_empty && bounds.size() == by_work.size() && bounds.back() == by_work.back()) return bounds;
  std::vector<int64_t> dealt;
  for (size_t stage = 1; stage < by_work.size(); ++stage)
    dealt.push_back(by_work[stage] - by_work[stage - 1]);
  const auto stages = std::to_string(dealt.size()), layers = std::to_string(by_work.back());
  throw Error(ErrorKind::Config, "PIPELINE",
              "pipeline_split does not match the model's layers and the stages")
      .got(text_of(split))
      .need(stages + " numbers from 1, one for each stage, that add up to the " + layers + " layers")
      .hint("a split by work would be " + text_of(dealt));
}

class ModuleStage : public PipelineStage {
 public:
  ModuleStage(ShardedModel& sharded, const PipelinePlan& plan, const Pipeline::Pass& pass,
              bool reduces_by_stage)
      : sharded_(sharded),
        plan_(plan),
        pass_(pass),
        reduces_by_stage_(reduces_by_stage),
        backwards_left_(static_cast<size_t>(plan.num_stages()), pass.num_micro_batches) {}

  at::Tensor forward(int64_t stage, int64_t micro_batch, const at::Tensor& input) override {
    const auto scope = random_scope(micro_batch);
    return pass_.run_blocks(micro_batch, plan_.bounds[stage], plan_.bounds[stage + 1], input);
  }
  void backward(int64_t stage, int64_t micro_batch, const at::Tensor& output,
                const at::Tensor& gradient) override {
    const auto scope = random_scope(micro_batch);
    // After the last backward of a stage, its units get no more gradients in this step and can be reduced at
    // once; not if another stage of this rank trains one of their parameters too.
    const bool is_last = --backwards_left_[static_cast<size_t>(stage)] == 0;
    sharded_.set_is_last_of_units(is_last && reduces_by_stage_);
    torch::autograd::backward({output}, {gradient.defined() ? gradient : at::full_like(output, pass_.scale)});
  }
  at::Tensor make_input(int64_t, int64_t micro_batch) const override {
    return pass_.make_hidden(micro_batch);
  }
  bool needs_input_gradient(int64_t stage) const override { return plan_.needs_input_gradient[stage]; }

 private:
  std::unique_ptr<nn::RandomScope> random_scope(int64_t micro_batch) const {
    if (!pass_.random_place) return nullptr;
    return std::make_unique<nn::RandomScope>(pass_.random_place(micro_batch));
  }

  ShardedModel& sharded_;
  const PipelinePlan& plan_;
  const Pipeline::Pass& pass_;
  const bool reduces_by_stage_;
  std::vector<int64_t> backwards_left_;  // by stage
};

}  // namespace

PartCosts product_costs(const PipelineParts& parts, const ParameterLayouts& layouts) {
  PartCosts costs;
  for (const auto& block : parts.blocks) costs.blocks.push_back(work_of(block->parameters(), layouts));
  costs.last = work_of(parts.last, layouts);
  return costs;
}

PipelinePlan plan_pipeline(const torch::nn::Module& root, const PipelineParts& parts, const PartCosts& costs,
                           int64_t num_ranks, const PipelineOptions& options) {
  TESSERA_CHECK_ARGUMENT(num_ranks >= 1 && options.stages_per_rank >= 1, "a pipeline of no stages");
  TESSERA_CHECK_ARGUMENT(options.kind != PipelineKind::OneFOneB || options.stages_per_rank == 1,
                         "1F1B has one stage per rank");
  const int64_t num_stages = num_ranks * options.stages_per_rank;
  const auto num_blocks = static_cast<int64_t>(parts.blocks.size());
  if (num_stages > num_blocks) refuse_stages(num_blocks, num_ranks, options.stages_per_rank);
  PipelinePlan plan{options,
                    num_ranks,
                    checked_bounds(options.split, split_blocks(costs, num_ranks, options.stages_per_rank)),
                    {}};
  plan.needs_input_gradient.assign(static_cast<size_t>(num_stages), false);
  const StagesOf stages(parts, plan.bounds);
  for (const at::Tensor& parameter : root.parameters()) {
    if (!parameter.requires_grad()) continue;
    const int64_t first = *stages.of(parameter).begin();
    std::fill(plan.needs_input_gradient.begin() + first + 1, plan.needs_input_gradient.end(), true);
  }
  return plan;
}

Pipeline::Pipeline(torch::nn::Module& root, const PipelineParts& parts, PipelinePlan plan, RankAxis axis,
                   ParameterLayouts& layouts)
    : plan_(std::move(plan)), axis_(std::move(axis)) {
  TESSERA_CHECK_ARGUMENT(axis_.group->size() == plan_.num_ranks, "the plan is for another number of ranks");
  const StagesOf stages(parts, plan_.bounds);
  for (const at::Tensor& parameter : root.parameters()) {
    const auto is_here = [&](int64_t stage) { return stage % plan_.num_ranks == axis_.group->rank(); };
    if (parameter.requires_grad() && std::ranges::count_if(stages.of(parameter), is_here) > 1)
      reduces_by_stage_ = false;
  }
  layouts = hold_by_stage(root, layouts, axis_, [&](const at::Tensor& parameter) {
    std::set<int64_t> ranks;
    for (const int64_t stage : stages.of(parameter)) ranks.insert(stage % plan_.num_ranks);
    return std::vector<int64_t>(ranks.begin(), ranks.end());
  });
}

at::Tensor Pipeline::run(ShardedModel& sharded, const Pass& pass) const {
  const ScheduleSizes sizes{plan_.num_ranks, plan_.options.stages_per_rank, pass.num_micro_batches};
  const bool has_backward = at::GradMode::is_enabled();
  const Schedule schedule =
      has_backward ? make_schedule(plan_.options.kind, sizes) : make_forward_schedule(sizes);
  // No backward of the schedule is the last one for all units, so the step ends with reduce_gradients(), and
  // complete_gradients() adds up those of tied weights, which lie on several ranks.
  sharded.set_is_last_micro_batch(false);
  ModuleStage stage(sharded, plan_, pass, reduces_by_stage_);
  const at::Tensor loss = run_schedule(schedule, *axis_.group, stage);
  if (has_backward) {
    sharded.reduce_gradients();
    complete_gradients(sharded, axis_);
  }
  return loss;
}

Pipeline pipeline(torch::nn::Module& root, const PipelineParts& parts, const RankAxis& axis,
                  ParameterLayouts& layouts, const PipelineOptions& options) {
  const PipelinePlan plan =
      plan_pipeline(root, parts, product_costs(parts, layouts), axis.group->size(), options);
  return Pipeline(root, parts, plan, axis, layouts);
}

}  // namespace tessera::parallel

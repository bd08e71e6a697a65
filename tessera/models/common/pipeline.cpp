#include "tessera/models/common/pipeline.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "tessera/core/error.h"
#include "tessera/nn/embedding.h"
#include "tessera/nn/sparse_mlp.h"
#include "tessera/parallel/pipeline/executor.h"
#include "tessera/parallel/pipeline/simulate.h"
#include "tessera/parallel/pipeline/split_blocks.h"
#include "tessera/parallel/pipeline/stage_layouts.h"

namespace tessera::models {
namespace {

// Of the parameters of experts: how many of its experts a token takes.
double share_of_expert(const CausalLM& model) {
  const ModelConfig& config = model.config();
  return static_cast<double>(config.experts_per_token) /
         static_cast<double>(std::max<int64_t>(1, config.num_experts));
}

// Products of a token with this matrix: forward, gradient of the input, and of the weight.
double work_of(const at::Tensor& parameter) {
  if (parameter.dim() != 2) return 0.0;
  return static_cast<double>(parameter.numel()) * (parameter.requires_grad() ? 3.0 : 2.0);
}

parallel::PartCosts costs_of(const CausalLM& model) {
  parallel::PartCosts costs;
  for (const auto& block : model.blocks()) {
    double work = 0.0;
    for (const at::Tensor& parameter : block->parameters()) work += work_of(parameter);
    for (const auto& module : block->modules(/*include_self=*/false)) {
      const auto* sparse = dynamic_cast<const nn::SparseMLP*>(module.get());
      if (sparse == nullptr) continue;
      for (const auto& expert : sparse->experts) {
        for (const at::Tensor& parameter : expert->parameters()) {
          work -= work_of(parameter) * (1.0 - share_of_expert(model));
        }
      }
    }
    costs.blocks.push_back(work);
  }
  // The embedding is a copy of rows.
  costs.first = static_cast<double>(model.config().hidden_size);
  costs.last = work_of(model.head().weight());
  return costs;
}

// The stages that use each parameter.
class StagesOf {
 public:
  StagesOf(const CausalLM& model, const std::vector<int64_t>& bounds) {
    const int64_t last = static_cast<int64_t>(bounds.size()) - 2;
    for (int64_t stage = 0; stage <= last; ++stage) {
      for (int64_t i = bounds[stage]; i < bounds[stage + 1]; ++i) {
        for (const at::Tensor& parameter : model.blocks()[i]->parameters()) add(parameter, stage);
      }
    }
    for (const at::Tensor& parameter : model.head().used_parameters()) add(parameter, last);
    for (const auto& module : model.modules(/*include_self=*/false)) {
      const auto* embedding = dynamic_cast<const nn::Embedding*>(module.get());
      if (embedding != nullptr) add(embedding->weight, 0);
    }
  }

  // What is used by nothing that is known belongs to what comes before the blocks.
  std::set<int64_t> of(const at::Tensor& parameter) const {
    const auto found = stages_.find(parameter.unsafeGetTensorImpl());
    return found == stages_.end() ? std::set<int64_t>{0} : found->second;
  }

 private:
  void add(const at::Tensor& parameter, int64_t stage) {
    stages_[parameter.unsafeGetTensorImpl()].insert(stage);
  }
  std::unordered_map<const c10::TensorImpl*, std::set<int64_t>> stages_;
};

class ModelStage : public parallel::PipelineStage {
 public:
  ModelStage(CausalLM& model, const PipelinePlan& plan, int64_t ranks_per_batch, const Pipeline::Pass& pass)
      : model_(model), plan_(plan), ranks_per_batch_(ranks_per_batch), pass_(pass) {}

  at::Tensor forward(int64_t stage, int64_t micro_batch, const at::Tensor& input) override {
    const auto scope = random_scope(micro_batch);
    return model_.run_blocks(pass_.micro_batches[micro_batch], plan_.bounds[stage], plan_.bounds[stage + 1],
                             input);
  }
  void backward(int64_t, int64_t micro_batch, const at::Tensor& output, const at::Tensor& gradient) override {
    const auto scope = random_scope(micro_batch);
    torch::autograd::backward({output}, {gradient.defined() ? gradient : at::full_like(output, pass_.scale)});
  }
  at::Tensor make_input(int64_t, int64_t micro_batch) const override {
    const int64_t tokens = pass_.micro_batches[micro_batch].input_ids.size(0) / ranks_per_batch_;
    return at::empty({tokens + model_.carried_rows(), model_.config().hidden_size},
                     at::TensorOptions(model_.device()).dtype(model_.hidden_type()));
  }
  bool needs_input_gradient(int64_t stage) const override { return plan_.needs_input_gradient[stage]; }

 private:
  std::unique_ptr<nn::RandomScope> random_scope(int64_t micro_batch) const {
    if (!pass_.random_place) return nullptr;
    return std::make_unique<nn::RandomScope>(pass_.random_place(micro_batch));
  }

  CausalLM& model_;
  const PipelinePlan& plan_;
  const int64_t ranks_per_batch_;
  const Pipeline::Pass& pass_;
};

[[noreturn]] void refuse_stages(const CausalLM& model, const PipelineSizes& sizes) {
  const auto blocks = static_cast<int64_t>(model.blocks().size());
  const bool fits_alone = sizes.num_ranks <= blocks;
  throw Error(ErrorKind::Config, "PIPELINE", "the model has too few layers for the pipeline")
      .got(std::to_string(sizes.num_ranks) + " ranks" +
           (sizes.stages_per_rank > 1 ? " with " + std::to_string(sizes.stages_per_rank) + " stages each"
                                      : "") +
           " and " + std::to_string(blocks) + " layers")
      .need("at least one layer a stage")
      .hint(fits_alone ? "pipeline_stages_per_rank: " + std::to_string(blocks / sizes.num_ranks)
                       : "pipeline_parallel_size: " + std::to_string(blocks));
}

}  // namespace

PipelinePlan plan_pipeline(const CausalLM& model, const PipelineSizes& sizes) {
  const int64_t num_stages = sizes.num_ranks * sizes.stages_per_rank;
  if (num_stages > static_cast<int64_t>(model.blocks().size())) refuse_stages(model, sizes);
  PipelinePlan plan{sizes, parallel::split_blocks(costs_of(model), num_stages), {}};
  plan.needs_input_gradient.assign(num_stages, false);
  const StagesOf stages(model, plan.bounds);
  for (const at::Tensor& parameter : model.parameters()) {
    if (!parameter.requires_grad()) continue;
    const int64_t first = *stages.of(parameter).begin();
    std::fill(plan.needs_input_gradient.begin() + first + 1, plan.needs_input_gradient.end(), true);
  }
  return plan;
}

parallel::ParameterLayouts hold_by_stage(CausalLM& model, const PipelinePlan& plan,
                                         const parallel::ParameterLayouts& layouts,
                                         const parallel::RankAxis& axis) {
  const StagesOf stages(model, plan.bounds);
  return parallel::hold_by_stage(model, layouts, axis, [&](const at::Tensor& parameter) {
    std::set<int64_t> ranks;
    for (const int64_t stage : stages.of(parameter)) ranks.insert(stage % plan.num_ranks);
    return std::vector<int64_t>(ranks.begin(), ranks.end());
  });
}

Pipeline::Pipeline(CausalLM& model, parallel::ShardedModel& sharded, PipelinePlan plan,
                   parallel::RankAxis axis, int64_t ranks_per_batch)
    : model_(model),
      sharded_(sharded),
      plan_(std::move(plan)),
      axis_(std::move(axis)),
      ranks_per_batch_(ranks_per_batch) {}

at::Tensor Pipeline::run(const Pass& pass) const {
  const parallel::ScheduleSizes sizes{plan_.num_ranks, plan_.stages_per_rank,
                                      static_cast<int64_t>(pass.micro_batches.size())};
  const bool has_backward = at::GradMode::is_enabled();
  const parallel::Schedule schedule =
      has_backward ? parallel::make_schedule(plan_.kind, sizes) : parallel::make_forward_schedule(sizes);
  sharded_.set_is_last_micro_batch(false);
  ModelStage stage(model_, plan_, ranks_per_batch_, pass);
  const at::Tensor loss = parallel::run_schedule(schedule, *axis_.group, stage);
  if (has_backward) {
    sharded_.reduce_gradients();
    parallel::complete_gradients(sharded_, axis_);
  }
  return loss;
}

}  // namespace tessera::models

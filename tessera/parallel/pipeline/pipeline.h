// Any torch::nn::Module as a pipeline: each rank holds a range of its blocks, and micro-batches go through
// them one behind the other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <torch/nn/module.h>

#include "tessera/core/pipeline_kind.h"
#include "tessera/nn/random_scope.h"
#include "tessera/parallel/fully_shard.h"
#include "tessera/parallel/parameter_layouts.h"
#include "tessera/parallel/pipeline/split_blocks.h"

namespace tessera::parallel {

// A module in the order in which a micro-batch goes through it. A parameter may have several places (a tied
// embedding is both first and last); what is in none of them belongs to what is first.
struct PipelineParts {
  std::vector<at::Tensor> first;  // parameters of what comes before the blocks,
  std::vector<std::shared_ptr<torch::nn::Module>> blocks;
  std::vector<at::Tensor> last;  // and of what comes behind them: the last norm, the output, the loss
};

struct PipelineOptions {
  PipelineKind kind = PipelineKind::OneFOneB;
  int64_t stages_per_rank = 1;  // above 1 for Interleaved, GPipe and ZeroBubble
  // How many blocks each stage holds; empty: dealt so that the ranks have like work.
  std::vector<int64_t> split = {};
};

// Which blocks each stage holds. The first stage also runs what comes before the blocks, the last one what
// comes behind. Stage s lies on rank s % num_ranks.
struct PipelinePlan {
  PipelineOptions options;
  int64_t num_ranks = 1;
  std::vector<int64_t> bounds;             // stage s runs the blocks bounds[s] to bounds[s + 1]
  std::vector<bool> needs_input_gradient;  // of each stage: whether anything before it trains

  int64_t num_stages() const { return static_cast<int64_t>(bounds.size()) - 1; }
};

// The products of one input row with every matrix, whole as `layouts` has it, with the gradients of what
// trains. What comes first counts nothing: an embedding copies rows.
PartCosts product_costs(const PipelineParts& parts, const ParameterLayouts& layouts = {});

// `costs`: of the parts of `root`, before anything is cut. Throws Error(Config, "PIPELINE"), with what would
// do, for more stages than blocks and for a split that is none of the blocks over the stages.
PipelinePlan plan_pipeline(const torch::nn::Module& root, const PipelineParts& parts, const PartCosts& costs,
                           int64_t num_ranks, const PipelineOptions& options);

// A module that is cut into stages along an axis.
class Pipeline {
 public:
  // Cuts `root`: see pipeline().
  Pipeline(torch::nn::Module& root, const PipelineParts& parts, PipelinePlan plan, RankAxis axis,
           ParameterLayouts& layouts);

  struct Pass {
    int64_t num_micro_batches = 1;
    // The blocks [begin, end) on a micro-batch, run inside the hooks of the root (nn::call_hooked()) and each
    // inside its own (nn::call()); with what comes before them for begin 0, and with the loss, a scalar,
    // behind the last one. `hidden`: what the block before gave; undefined for begin 0.
    std::function<at::Tensor(int64_t micro_batch, int64_t begin, int64_t end, const at::Tensor& hidden)>
        run_blocks = {};
    // Memory for what goes from block to block: of its shape and type, on the ranks' device.
    std::function<at::Tensor(int64_t micro_batch)> make_hidden = {};
    double scale = 1.0;  // of each loss, for the backward
    // Where dropout stands (nn::RandomScope), if anything drops.
    std::function<nn::RandomPlace(int64_t micro_batch)> random_place = {};
  };
  // Runs the micro-batches, the same ones on all ranks of the axis, of which each computes its stages.
  // Returns the sum of the losses, a float64 tensor of one element, on every rank. With gradients enabled,
  // tile.grad() of every trained parameter of `sharded`, the module as fully_shard() returned it, is complete
  // afterwards: those of a unit are reduced when its last micro-batch is through, beside what comes after.
  // Collective.
  at::Tensor run(ShardedModel& sharded, const Pass& pass) const;

  const PipelinePlan& plan() const { return plan_; }

 private:
  PipelinePlan plan_;
  RankAxis axis_;
  bool reduces_by_stage_ = true;  // no parameter is trained in two stages of this rank
};

// Cuts the blocks of `root` into stages along `axis`. Parameters of the stages of other ranks have no rows
// afterwards; one that several stages use lies on the ranks of each, and its gradients are summed. `root` is
// on the meta device, or has the same values on all ranks of the axis. `layouts`: of what other kinds of
// parallelism have cut before, if any; gets the axis, and goes to fully_shard(), where units are the blocks.
// There reduce_every_backward = false sends gradients once a step. Throws what plan_pipeline() throws. Not
// collective.
Pipeline pipeline(torch::nn::Module& root, const PipelineParts& parts, const RankAxis& axis,
                  ParameterLayouts& layouts, const PipelineOptions& options = {});

}  // namespace tessera::parallel

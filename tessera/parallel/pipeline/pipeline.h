// Runs any torch::nn::Module as a pipeline: each rank holds a range of its blocks, and micro-batches go
// through them one behind the other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <torch/nn/module.h>

#include "tessera/core/schedule_kind.h"
#include "tessera/nn/random_scope.h"
#include "tessera/parallel/fully_shard.h"
#include "tessera/parallel/parameter_layouts.h"
#include "tessera/parallel/pipeline/split_blocks.h"

namespace tessera::parallel {

// The parts of a module in the order in which a micro-batch goes through them. A parameter may be in several
// (a tied embedding is both in `first` and in `last`); a parameter that is in none belongs to `first`.
struct PipelineParts {
  std::vector<at::Tensor> first;  // parameters of what comes before the blocks
  std::vector<std::shared_ptr<torch::nn::Module>> blocks;
  // Parameters of what comes behind the blocks: the last norm, the output, the loss.
  std::vector<at::Tensor> last;
};

struct PipelineOptions {
  PipelineKind kind = PipelineKind::OneFOneB;
  int64_t stages_per_rank = 1;  // above 1 for Interleaved, GPipe and ZeroBubble
  // Number of blocks of each stage; empty: blocks are dealt so that the ranks have similar work.
  std::vector<int64_t> split = {};
};

// The blocks of each stage. The first stage also runs what comes before the blocks, the last one what comes
// behind them. Stage s lies on rank s % num_ranks.
struct PipelinePlan {
  PipelineOptions options;
  int64_t num_ranks = 1;
  std::vector<int64_t> bounds;             // stage s runs the blocks [bounds[s], bounds[s + 1])
  std::vector<bool> needs_input_gradient;  // by stage: whether anything before it is trained

  int64_t num_stages() const { return static_cast<int64_t>(bounds.size()) - 1; }
};

// Returns the work of the parts: the multiplications of one input row with every matrix, forward and
// backward, where matrices count whole (as `layouts` has them, not as tensor parallelism has cut them). Parts
// before the blocks count as 0, as an embedding only copies rows.
PartCosts product_costs(const PipelineParts& parts, const ParameterLayouts& layouts = {});

// Plans the stages of `root`. `costs` are those of its parts before anything is cut. Throws Error(Config,
// "PIPELINE"), with what would work, for more stages than blocks and for an options.split that does not deal
// all blocks to the stages.
PipelinePlan plan_pipeline(const torch::nn::Module& root, const PipelineParts& parts, const PartCosts& costs,
                           int64_t num_ranks, const PipelineOptions& options);

// A module that is cut into stages along an axis.
class Pipeline {
 public:
  // Cuts `root` by `plan`; see pipeline().
  Pipeline(torch::nn::Module& root, const PipelineParts& parts, PipelinePlan plan, RankAxis axis,
           ParameterLayouts& layouts);

  struct Pass {
    int64_t num_micro_batches = 1;
    // Runs the blocks [begin, end) on a micro-batch, inside the hooks of the root (nn::call_hooked()) and
    // each block inside its own (nn::call()). For begin 0 it also runs what comes before the blocks; `hidden`
    // is then undefined, and otherwise the output of the block before. Behind the last block it also computes
    // the loss, a scalar.
    std::function<at::Tensor(int64_t micro_batch, int64_t begin, int64_t end, const at::Tensor& hidden)>
        run_blocks = {};
    // Returns memory for what goes from block to block, with its shape and type, on the ranks' device.
    std::function<at::Tensor(int64_t micro_batch)> make_hidden = {};
    double scale = 1.0;  // factor of each loss, for the backward
    // Returns the place of dropout (nn::RandomScope) in a micro-batch; unset if nothing drops.
    std::function<nn::RandomPlace(int64_t micro_batch)> random_place = {};
  };
  // Runs the micro-batches, which are the same on all ranks of the axis; each rank computes its stages.
  // Returns the sum of the losses, a float64 tensor of one element, on every rank. `sharded` is what
  // fully_shard() returned for the module. With gradients enabled, tile.grad() of all its trained parameters
  // is complete afterwards; the gradients of a unit are reduced when its last micro-batch is through, beside
  // what comes after. Collective.
  at::Tensor run(ShardedModel& sharded, const Pass& pass) const;

  const PipelinePlan& plan() const { return plan_; }

 private:
  PipelinePlan plan_;
  RankAxis axis_;
  bool reduces_by_stage_ = true;  // no parameter is trained in two stages of this rank
};

// Cuts the blocks of `root` into stages along `axis`. Afterwards parameters of other ranks' stages have no
// rows here. A parameter that several stages use lies on the ranks of each of them, and its gradients are
// summed. `root` is on the meta device, or has the same values on all ranks of the axis.
//
// `layouts` are those of what other kinds of parallelism have cut before, if any; they get the axis, and go
// on to fully_shard(), whose units are the blocks. With reduce_every_backward = false there, gradients are
// sent once a step. Throws what plan_pipeline() throws. Not collective.
Pipeline pipeline(torch::nn::Module& root, const PipelineParts& parts, const RankAxis& axis,
                  ParameterLayouts& layouts, const PipelineOptions& options = {});

}  // namespace tessera::parallel

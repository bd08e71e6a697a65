#include "tessera/train/step.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/memory_ledger.h"
#include "tessera/core/trace.h"
#include "tessera/nn/random_scope.h"
#include "tessera/optim/gradient_norm.h"

namespace tessera::train {
namespace {

at::Tensor to_tensor(const std::vector<int64_t>& values) {
  return at::from_blob(const_cast<int64_t*>(values.data()), {static_cast<int64_t>(values.size())}, at::kLong)
      .clone();
}

// The value of `body()`, as a part of the timeline and of the memory's use.
template <class Body>
decltype(auto) in_phase(const char* name, MemoryCategory category, Body&& body) {
  const trace::Scope trace_scope(name);
  const MemoryScope memory(category);
  return body();
}

// A micro-batch that came out empty still runs, on one token without a label, so that every rank takes part
// in every collective.
data::MicroBatch filler() {
  data::MicroBatch batch;
  batch.input_ids = {0};
  batch.labels = {kIgnoreLabel};
  batch.position_ids = {0};
  batch.document_starts = {0, 1};
  return batch;
}

// Sum of the losses of all label tokens; throws where one is not finite, naming the first rank whose own is
// not, among the ranks that hold different labels.
double total_loss(double own, const parallel::DeviceMesh& mesh, int64_t step) {
  comm::Communicator& group = *mesh.group(parallel::kAxisLoss);
  const at::Tensor losses = at::empty({group.size()}, at::kDouble);
  group.all_gather_single(losses, at::full({1}, own, at::kDouble));
  const double* values = losses.const_data_ptr<double>();
  double total = 0.0;
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    if (!std::isfinite(values[rank])) {
      throw Error(
          ErrorKind::Numerics, "LOSS",
          "the loss of step " + std::to_string(step + 1) + " is not finite on rank " + std::to_string(rank))
          .got(std::to_string(values[rank]))
          .hint("nothing was updated; lower learning_rate, check the data, or set max_grad_norm");
    }
    total += values[rank];
  }
  return total;
}

}  // namespace

nn::TokenBatch to_tensors(const data::MicroBatch& batch) {
  return {to_tensor(batch.input_ids), to_tensor(batch.labels), to_tensor(batch.position_ids),
          batch.document_starts};
}

StepResult run_step(TrainedModel& trained, optim::Optimizer& optimizer, const parallel::DeviceMesh& mesh,
                    const StepInput& input) {
  parallel::ShardedModel& sharded = *trained.sharded;
  sharded.zero_grad();
  const int64_t num_micro_batches = static_cast<int64_t>(input.micro_batches->size());
  const auto scale = 1.0 / static_cast<double>(std::max<int64_t>(1, input.label_tokens));
  const int64_t dp_rank = mesh.coordinate(parallel::kAxisDp), dp_size = mesh.size(parallel::kAxisDp);
  double own_loss = 0.0;
  for (int64_t m = 0; m < num_micro_batches; ++m) {
    const data::MicroBatch& batch = (*input.micro_batches)[m];
    sharded.set_is_last_micro_batch(m + 1 == num_micro_batches);
    const nn::RandomScope scope(
        {input.seed, static_cast<uint64_t>(input.step), static_cast<uint64_t>(m * dp_size + dp_rank)});
    const at::Tensor loss = in_phase("forward", MemoryCategory::Activations, [&] {
      return trained.model->loss(to_tensors(batch.input_ids.empty() ? filler() : batch));
    });
    own_loss += loss.item<double>();
    if (loss.requires_grad())
      in_phase("backward", MemoryCategory::Backward, [&] { (loss * scale).backward(); });
  }
  StepResult result;
  result.loss = total_loss(own_loss, mesh, input.step) * scale;

  const optim::GradientNorm norm = optim::global_gradient_norm(sharded);
  if (!std::isfinite(norm.norm) && norm.bad_name.empty()) {
    throw Error(ErrorKind::Numerics, "GRADIENT",
                "the gradient norm of step " + std::to_string(input.step + 1) + " overflows")
        .hint("nothing was updated; lower learning_rate, check the data, or set max_grad_norm");
  }
  if (!std::isfinite(norm.norm)) {
    const auto bad = mesh.world()->all_gather_string(norm.is_bad_here ? norm.bad_name : "");
    const auto first = std::find_if(bad.begin(), bad.end(), [](const auto& name) { return !name.empty(); });
    throw Error(ErrorKind::Numerics, "GRADIENT",
                "the gradient of '" + *first + "' at step " + std::to_string(input.step + 1) +
                    " is not finite on rank " + std::to_string(first - bad.begin()))
        .hint("nothing was updated; lower learning_rate, check the data, or set max_grad_norm");
  }
  result.grad_norm = norm.norm;
  in_phase("optimizer", MemoryCategory::OptimizerState,
           [&] { optimizer.step(input.lr, optim::clip_factor(norm.norm, input.max_grad_norm)); });
  return result;
}

double evaluate(TrainedModel& trained, const parallel::DeviceMesh& mesh, data::Loader& loader,
                const std::function<void(int64_t done)>& on_step) {
  const at::NoGradGuard no_grad;
  trained.model->eval();
  double own_loss = 0.0;
  int64_t label_tokens = 0;
  loader.seek({});
  const int64_t num_steps = loader.steps_per_epoch();
  for (int64_t done = 0; done < num_steps;) {
    const data::Step step = loader.next_step();
    label_tokens += step.label_tokens;
    for (const data::MicroBatch& batch : step.micro_batches) {
      own_loss += trained.model->loss(to_tensors(batch.input_ids.empty() ? filler() : batch)).item<double>();
    }
    on_step(++done);
  }
  trained.model->train();
  const at::Tensor total = at::full({1}, own_loss, at::kDouble);
  mesh.group(parallel::kAxisLoss)->all_reduce(total);
  return total.item<double>() / static_cast<double>(std::max<int64_t>(1, label_tokens));
}

std::vector<optim::OptimizedTile> optimized_tiles(const parallel::ShardedModel& sharded, double weight_decay,
                                                  bool decay_all) {
  std::vector<optim::OptimizedTile> tiles;
  for (const auto& parameter : sharded.parameters()) {
    if (!parameter.requires_grad) continue;
    const bool is_matrix = parameter.layout.shape().size() >= 2;
    tiles.push_back({parameter.name, parameter.tile, is_matrix || decay_all ? weight_decay : 0.0,
                     parameter.layout, parameter.coordinates});
  }
  return tiles;
}

}  // namespace tessera::train

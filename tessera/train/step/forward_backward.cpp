#include "tessera/train/step/forward_backward.h"

#include <ATen/ATen.h>

#include "tessera/core/step_clock.h"
#include "tessera/core/trace.h"
#include "tessera/device/device.h"
#include "tessera/device/memory_scope.h"
#include "tessera/parallel/context_parallel/context_parallel.h"

namespace tessera::train {
namespace {

at::Tensor to_tensor(const std::vector<int64_t>& values) { return at::tensor(values, on_host(at::kLong)); }

// Returns the part of each micro-batch that this rank computes: its tokens along cp.
std::vector<nn::TokenBatch> own_tokens(const TrainedModel& trained,
                                       const std::vector<data::MicroBatch>& batches,
                                       const parallel::DeviceMesh& mesh, const LossParts& parts) {
  std::vector<nn::TokenBatch> own;
  own.reserve(batches.size());
  // Sequence parallelism deals the tokens to the ranks along tp in equal parts.
  const int64_t multiple = mesh.size(parallel::kAxisTp);
  const int64_t num_virtual = trained.model->num_virtual_tokens();
  for (const data::MicroBatch& given : batches) {
    data::MicroBatch longer;
    if (num_virtual > 0) longer = with_virtual_tokens(given, num_virtual, trained.model->config().vocab_size);
    const data::MicroBatch& batch = num_virtual > 0 ? longer : given;
    nn::TokenBatch whole = to_tensors(batch, multiple);
    if (!batch.datasets.empty() && parts.datasets.defined()) {
      std::vector<int64_t> datasets = batch.datasets;
      // Added tokens have no labels, so any dataset will do for them.
      datasets.resize(static_cast<size_t>(whole.input_ids.numel()), 0);
      whole.sources = {to_tensor(datasets), parts.datasets};
    }
    own.push_back(parallel::token_part(whole, *mesh.group(parallel::kAxisCp), multiple));
    own.back().router_values = parts.routers;
    own.back().statistics = parts.statistics;
  }
  return own;
}

// Adds to `part` on all ranks along pp what it has grown by on the last stage, the only one that computes
// losses. `before` is a copy of it from before the pass; undefined where the part is not asked for.
// Collective along pp.
void share_growth(const at::Tensor& part, const at::Tensor& before, const parallel::DeviceMesh& mesh) {
  if (!before.defined()) return;
  const at::Tensor grown = part - before;
  mesh.group(parallel::kAxisPp)->all_reduce(grown);
  part.copy_(before + grown);
}

at::Tensor run_pipeline(TrainedModel& trained, const parallel::DeviceMesh& mesh,
                        const models::StagedModel::Pass& pass, const LossParts& parts) {
  const auto copy_of = [](const at::Tensor& part) { return part.defined() ? part.clone() : at::Tensor(); };
  const LossParts before{copy_of(parts.datasets), copy_of(parts.routers), copy_of(parts.statistics)};
  const at::Tensor loss = trained.pipeline->run(pass);
  const at::NoGradGuard no_grad;
  share_growth(parts.datasets, before.datasets, mesh);
  share_growth(parts.routers, before.routers, mesh);
  share_growth(parts.statistics, before.statistics, mesh);
  return loss;
}

at::Tensor loss_of(TrainedModel& trained, const nn::TokenBatch& batch) {
  const trace::Scope trace_scope("forward");
  const SectionScope section(StepSection::Forward);
  const MemoryScope memory(MemoryCategory::Activations);
  return trained.model->loss(batch);
}

void add_loss(at::Tensor& sum, const at::Tensor& loss) {
  const at::NoGradGuard no_grad;
  if (!sum.defined()) sum = at::zeros({1}, loss.options().dtype(at::kDouble));
  sum.add_(loss);
}

}  // namespace

data::MicroBatch with_virtual_tokens(const data::MicroBatch& batch, int64_t count, int64_t first_id) {
  if (count == 0) return batch;
  data::MicroBatch longer{.label_tokens = batch.label_tokens};
  for (size_t d = 0; d + 1 < batch.document_starts.size(); ++d) {
    const int64_t begin = batch.document_starts[d], end = batch.document_starts[d + 1];
    longer.document_starts.push_back(std::ssize(longer.input_ids));
    const auto copy = [&](const std::vector<int64_t>& from, std::vector<int64_t>& to) {
      to.insert(to.end(), from.begin() + begin, from.begin() + end);
    };
    for (int64_t i = 0; i < count; ++i) {
      longer.input_ids.push_back(first_id + i);
      longer.labels.push_back(kIgnoreLabel);
      if (!batch.datasets.empty()) longer.datasets.push_back(batch.datasets[static_cast<size_t>(begin)]);
    }
    copy(batch.input_ids, longer.input_ids);
    copy(batch.labels, longer.labels);
    if (!batch.datasets.empty()) copy(batch.datasets, longer.datasets);
    for (int64_t i = 0; i < count + end - begin; ++i) longer.position_ids.push_back(i);
  }
  if (!batch.document_starts.empty()) longer.document_starts.push_back(std::ssize(longer.input_ids));
  return longer;
}

nn::TokenBatch to_tensors(data::MicroBatch batch, int64_t multiple) {
  const auto tokens = static_cast<int64_t>(batch.input_ids.size());
  // The last micro-batches of an epoch may be empty.
  if (tokens == 0) batch.document_starts = {0};
  const int64_t added = tokens == 0 ? multiple : (multiple - tokens % multiple) % multiple;
  for (int64_t i = 0; i < added; ++i) {
    batch.input_ids.push_back(0);
    batch.labels.push_back(kIgnoreLabel);
    batch.position_ids.push_back(i);
    if (!batch.type_ids.empty()) batch.type_ids.push_back(0);
  }
  if (added > 0) batch.document_starts.push_back(tokens + added);
  nn::TokenBatch result{to_tensor(batch.input_ids), to_tensor(batch.labels), to_tensor(batch.position_ids),
                        batch.document_starts};
  if (!batch.type_ids.empty()) result.type_ids = to_tensor(batch.type_ids);
  if (!batch.targets.empty())
    result.targets = at::tensor(batch.targets, on_host(at::kDouble)).view({batch.label_tokens, -1});
  if (added > 0) result.is_added = at::arange(tokens + added, on_host(at::kLong)) >= tokens;
  return result;
}

at::Tensor forward_backward(TrainedModel& trained, const parallel::DeviceMesh& mesh,
                            const std::vector<data::MicroBatch>& micro_batches, double scale,
                            const std::function<nn::RandomPlace(int64_t micro_batch)>& random_place,
                            const LossParts& parts) {
  const std::vector<nn::TokenBatch> own = own_tokens(trained, micro_batches, mesh, parts);
  const auto place_of = [&](int64_t m) {
    nn::RandomPlace place = random_place(m);
    place.part = own[static_cast<size_t>(m)].part;
    place.document_starts = own[static_cast<size_t>(m)].document_starts;
    return place;
  };
  if (trained.pipeline) return run_pipeline(trained, mesh, {own, scale, place_of}, parts);
  at::Tensor sum;
  for (size_t m = 0; m < own.size(); ++m) {
    // The last backward of the step reduces the gradients; earlier ones do so only with
    // ShardOptions::reduce_every_backward.
    trained.sharded->set_is_last_micro_batch(m + 1 == own.size());
    // The scope spans forward and backward, so that recomputed activations draw the same dropout masks.
    const nn::RandomScope scope(place_of(static_cast<int64_t>(m)));
    const at::Tensor loss = loss_of(trained, own[m]);
    add_loss(sum, loss);
    // A loss that depends on nothing trained has no backward.
    if (!loss.requires_grad()) continue;
    const trace::Scope trace_scope("backward");
    const SectionScope section(StepSection::Backward);
    const MemoryScope memory(MemoryCategory::Backward);
    (loss * scale).backward();
  }
  return sum;
}

at::Tensor forward(TrainedModel& trained, const parallel::DeviceMesh& mesh,
                   const std::vector<data::MicroBatch>& micro_batches, const LossParts& parts) {
  const at::NoGradGuard no_grad;
  const std::vector<nn::TokenBatch> own = own_tokens(trained, micro_batches, mesh, parts);
  if (trained.pipeline) return run_pipeline(trained, mesh, {own, 1.0, {}}, parts);
  at::Tensor sum;
  for (const nn::TokenBatch& batch : own) add_loss(sum, loss_of(trained, batch));
  return sum;
}

int64_t micro_batches_at_once(const parallel::DeviceMesh& mesh) {
  const int64_t pp = mesh.size(parallel::kAxisPp);
  // A stage idles for pp - 1 slots while the pipeline fills and drains: with 4 micro-batches a stage this is
  // less than a fifth of the time.
  return pp == 1 ? 1 : 4 * pp;
}

}  // namespace tessera::train

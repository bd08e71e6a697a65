#include "tessera/train/step/gradient_noise.h"

#include <ATen/ATen.h>

#include "tessera/device/memory_scope.h"

namespace tessera::train {

FirstGradient::FirstGradient(TrainedModel& trained, const parallel::DeviceMesh& mesh,
                             const std::vector<data::MicroBatch>& micro_batches)
    : trained_(trained) {
  const MemoryScope memory(MemoryCategory::Gradients);
  parallel::ShardedModel& sharded = *trained.sharded;
  clear_frozen_rows(trained.trained_rows, sharded);
  const optim::PendingNorm norm(sharded);
  int64_t tokens = 0;
  for (const data::MicroBatch& batch : micro_batches) tokens += batch.label_tokens;
  const at::Tensor all_tokens =
      at::full({1}, static_cast<double>(tokens), at::TensorOptions(mesh.device()).dtype(at::kDouble));
  mesh.group(parallel::kAxisDp)->all_reduce(all_tokens);
  numbers_ = at::cat({norm.sum_of_squares(), all_tokens});
  for (const auto& parameter : sharded.parameters()) gradients_.push_back(parameter.tile.grad());
  sharded.zero_grad();
}

void FirstGradient::add_back() {
  const at::NoGradGuard no_grad;
  size_t i = 0;
  for (const auto& parameter : trained_.sharded->parameters()) {
    const at::Tensor& first = gradients_[i++];
    if (!first.defined()) continue;
    at::Tensor& gradient = parameter.tile.mutable_grad();
    gradient = gradient.defined() ? gradient.add_(first) : first;
  }
}

std::optional<GradientNoise> gradient_noise(double first_square, double first_tokens, double square,
                                            double tokens) {
  if (first_tokens <= 0.0 || first_tokens >= tokens) return std::nullopt;
  return GradientNoise{.signal = (tokens * square - first_tokens * first_square) / (tokens - first_tokens),
                       .noise = (first_square - square) / (1.0 / first_tokens - 1.0 / tokens),
                       .steps = 1};
}

}  // namespace tessera::train

#include "tessera/train/reporters/light.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <ATen/ATen.h>

#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/device/device.h"
#include "tessera/device/host_memory.h"
#include "tessera/train/setup/recipe_values.h"

namespace tessera::train {

Light::Light(const config::Recipe& recipe, const TrainedModel& trained, const parallel::DeviceMesh& mesh)
    : ranks_(static_cast<double>(mesh.size(parallel::kAxisLoss))) {
  const int64_t room = recipe.sequence_len * recipe.micro_batch_size;
  // A GPU needs more tokens to be fully used.
  const int64_t most = mesh.device().type() == kHost ? 1024 : 8192;
  const int64_t tokens = std::clamp<int64_t>(room, 1, most);
  const measure::StepGemms gemms = measure::step_gemms(*trained.model, tokens, tokens);
  const auto options = at::TensorOptions(mesh.device()).dtype(run_types(recipe).compute);
  mesh.world()->barrier();
  // The ranks of a pipeline work side by side, each on its layers and the last one on the head too: one token
  // takes the sum of their times over their number.
  comm::Communicator& pp = *mesh.group(parallel::kAxisPp);
  const double head = pp.rank() + 1 == pp.size() ? measure::measure_gemms(gemms.head, options) : 0.0;
  const at::Tensor seconds =
      at::tensor({measure::measure_gemms(gemms.layers, options), head}, on_host(at::kDouble));
  pp.all_reduce(seconds);
  const double share = 1.0 / static_cast<double>(pp.size() * tokens);
  seconds_per_token_ = seconds[0].item<double>() * share;
  seconds_per_label_ = seconds[1].item<double>() * share;
  count_flops(recipe, trained, mesh);
  const auto peak_of = [&](ops::ProductType type) {
    const at::Tensor peak =
        at::full({1}, 1e9 * measure::gemm_rate(options, measure::GemmPath::Ours, type), seconds.options());
    mesh.world()->all_reduce(peak);
    return peak.item<double>();
  };
  peak_ = peak_of(ops::ProductType::OfOperands);
  if (recipe.fp8) e4m3_weight_ = peak_ / peak_of(ops::ProductType::E4m3);
  log::info("roofline: this machine could train on at most " +
            group_digits(std::llround(ranks_ / (seconds_per_token_ + seconds_per_label_))) +
            " tokens/s if a step consisted only of its matrix products, with every token trained; '% of "
            "roofline' below shows how close a step comes to that (docs/profiling.md)");
}

void Light::count_flops(const config::Recipe& recipe, const TrainedModel& trained,
                        const parallel::DeviceMesh& mesh) {
  model_ = measure::model_flops(*trained.model);
  const bool is_block = recipe.gradient_checkpointing == config::Checkpointing::Block;
  recomputed_ = measure::recomputed_flops(*trained.model, is_block ? recipe.gradient_checkpointing_every : 0,
                                          recipe.gradient_checkpointing == config::Checkpointing::Mlp);
  comm::Communicator& pp = *mesh.group(parallel::kAxisPp);
  // Only the last stage projects; a tied embedding lies on the first one too.
  if (pp.rank() + 1 < pp.size()) model_.per_label = 0.0;
  const at::Tensor counts =
      at::tensor({model_.per_token, model_.per_token_e4m3, model_.per_label, model_.per_pair,
                  recomputed_.per_token, recomputed_.per_token_e4m3, recomputed_.per_pair},
                 on_host(at::kDouble));
  mesh.group(parallel::kAxisTp)->all_reduce(counts);
  pp.all_reduce(counts);
  const auto of = host_span<const double>(counts);
  model_ = {of[0], of[1], of[2], of[3]};
  recomputed_ = {of[4], of[5], 0.0, of[6]};
}

void Light::on_step(const TrainState&, StepMetrics& metrics) {
  metrics.sol = (seconds_per_token_ * static_cast<double>(metrics.tokens) +
                 seconds_per_label_ * static_cast<double>(metrics.label_tokens)) /
                ranks_ / metrics.step_s;
  const auto count = [&](const measure::FlopCount& of) {
    return of.of(metrics.tokens, metrics.label_tokens, metrics.token_pairs, e4m3_weight_);
  };
  const double model = count(model_), again = count(recomputed_);
  metrics.mfu = model / metrics.step_s / peak_;
  metrics.hfu = (model + again) / metrics.step_s / peak_;
}

}  // namespace tessera::train

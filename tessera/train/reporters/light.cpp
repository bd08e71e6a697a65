#include "tessera/train/reporters/light.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <ATen/ATen.h>

#include "tessera/core/log.h"
#include "tessera/train/speed_of_light.h"

namespace tessera::train {

Light::Light(const config::Recipe& recipe, const TrainedModel& trained, const parallel::DeviceMesh& mesh)
    : ranks_(static_cast<double>(mesh.size(parallel::kAxisLoss))) {
  const int64_t room = recipe.sequence_len * recipe.micro_batch_size;
  const int64_t tokens = std::clamp<int64_t>(room, 1, 1024);
  const StepGemms gemms = step_gemms(*trained.model, tokens, tokens);
  const auto options = at::TensorOptions(mesh.device()).dtype(run_types(recipe.dtype).compute);
  mesh.world()->barrier();
  // The ranks of a pipeline work side by side, each on its layers, the last one on the head.
  comm::Communicator& pp = *mesh.group(parallel::kAxisPp);
  const double head = pp.rank() + 1 == pp.size() ? measure_gemms(gemms.head, options) : 0.0;
  const at::Tensor seconds = at::tensor({measure_gemms(gemms.layers, options), head},
                                        at::TensorOptions(pp.device()).dtype(at::kDouble));
  pp.all_reduce(seconds);
  const double share = 1.0 / static_cast<double>(pp.size() * tokens);
  seconds_per_token_ = seconds[0].item<double>() * share;
  seconds_per_label_ = seconds[1].item<double>() * share;
  log::info("light: matrix products alone, with every token trained, would run at " +
            std::to_string(std::llround(ranks_ / (seconds_per_token_ + seconds_per_label_))) +
            " tokens/s here; '% of light' below is how close a step comes to its products alone");
}

void Light::on_step(const TrainState&, StepMetrics& metrics) {
  metrics.sol = (seconds_per_token_ * static_cast<double>(metrics.tokens) +
                 seconds_per_label_ * static_cast<double>(metrics.label_tokens)) /
                ranks_ / metrics.step_s;
}

}  // namespace tessera::train

#include "tessera/train/step/loss_scaler.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"

namespace tessera::train {

LossScaler::LossScaler(const config::Recipe& recipe)
    : is_on_(recipe.dtype == config::ComputeType::Float16),
      is_dynamic_(recipe.loss_scale == 0.0),
      window_(recipe.loss_scale_window) {
  if (!is_on_) return;
  scale_ = is_dynamic_ ? std::ldexp(1.0, static_cast<int>(recipe.initial_scale_power)) : recipe.loss_scale;
  least_ = is_dynamic_ ? std::min(recipe.min_loss_scale, scale_) : scale_;
}

void LossScaler::update(bool is_finite, int64_t step) {
  if (!is_on_) return;
  if (is_finite) {
    if (!is_dynamic_ || ++num_finite_ < window_) return;
    // Above this bound the scaled loss itself, a float32 number, would come near its end.
    constexpr double kMost = 1e30;
    scale_ = std::min(2.0 * scale_, std::max(scale_, kMost));
    num_finite_ = 0;
    return;
  }
  ++num_skipped_;
  num_finite_ = 0;
  if (scale_ <= least_) {
    throw Error(ErrorKind::Numerics, "LOSS-SCALE",
                "gradients overflow float16 at step " + std::to_string(step + 1) + " at the least loss scale")
        .got(std::to_string(scale_))
        .hint("nothing was updated; lower learning_rate, or compute in bfloat16 or float32 (dtype)");
  }
  scale_ = std::max(0.5 * scale_, least_);
}

nlohmann::ordered_json LossScaler::to_json() const {
  return {{"scale", scale_}, {"finite_steps", num_finite_}, {"skipped_steps", num_skipped_}};
}

LossScaler LossScaler::from_json(const nlohmann::ordered_json& json) {
  LossScaler scaler;
  scaler.scale_ = json.at("scale");
  scaler.num_finite_ = json.at("finite_steps");
  scaler.num_skipped_ = json.at("skipped_steps");
  return scaler;
}

void LossScaler::go_on(const LossScaler& before) {
  num_skipped_ = before.num_skipped_;
  if (!is_on_ || !is_dynamic_) return;
  scale_ = std::max(before.scale_, least_);
  num_finite_ = before.num_finite_;
}

}  // namespace tessera::train

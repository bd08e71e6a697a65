#include "tessera/train/step/loss_scaler.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"

namespace tessera::train {
namespace {

bool is_dynamic(const config::PrecisionConfig& keys) { return keys.loss_scale == 0.0; }

double first_scale(const config::PrecisionConfig& keys) {
  if (!LossScaler::is_on(keys)) return 1.0;
  return is_dynamic(keys) ? std::ldexp(1.0, static_cast<int>(keys.initial_scale_power)) : keys.loss_scale;
}

double least_scale(const config::PrecisionConfig& keys) {
  const double first = first_scale(keys);
  return is_dynamic(keys) ? std::min(keys.min_loss_scale, first) : first;
}

}  // namespace

LossScaler::LossScaler(const config::PrecisionConfig& keys) : scale_(first_scale(keys)) {}

void LossScaler::update(const config::PrecisionConfig& keys, bool is_finite, int64_t step) {
  if (!is_on(keys)) return;
  if (is_finite) {
    if (!is_dynamic(keys) || ++num_finite_ < keys.loss_scale_window) return;
    // Above this bound the scaled loss itself, a float32 number, would come near its end.
    constexpr double kMost = 1e30;
    scale_ = std::min(2.0 * scale_, std::max(scale_, kMost));
    num_finite_ = 0;
    return;
  }
  ++num_skipped_;
  num_finite_ = 0;
  const double least = least_scale(keys);
  if (scale_ <= least) {
    throw Error(
        ErrorKind::Numerics, "LOSS-SCALE",
        "gradients overflow float16 at step " + std::to_string(step + 1) + " at the minimum loss scale")
        .got(std::to_string(scale_))
        .hint("the weights were not updated; lower learning_rate, or compute in bfloat16 or float32 (dtype)");
  }
  scale_ = std::max(0.5 * scale_, least);
}

void LossScaler::fit(const config::PrecisionConfig& keys) {
  if (is_on(keys) && is_dynamic(keys)) {
    scale_ = std::max(scale_, least_scale(keys));
    return;
  }
  scale_ = first_scale(keys);
  num_finite_ = 0;
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

}  // namespace tessera::train

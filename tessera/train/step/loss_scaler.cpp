#include "tessera/train/step/loss_scaler.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"

namespace tessera::train {
namespace {

bool is_dynamic(const config::Recipe& recipe) { return recipe.loss_scale == 0.0; }

double first_scale(const config::Recipe& recipe) {
  if (!LossScaler::is_on(recipe)) return 1.0;
  return is_dynamic(recipe) ? std::ldexp(1.0, static_cast<int>(recipe.initial_scale_power))
                            : recipe.loss_scale;
}

double least_scale(const config::Recipe& recipe) {
  const double first = first_scale(recipe);
  return is_dynamic(recipe) ? std::min(recipe.min_loss_scale, first) : first;
}

}  // namespace

LossScaler::LossScaler(const config::Recipe& recipe) : scale_(first_scale(recipe)) {}

void LossScaler::update(const config::Recipe& recipe, bool is_finite, int64_t step) {
  if (!is_on(recipe)) return;
  if (is_finite) {
    if (!is_dynamic(recipe) || ++num_finite_ < recipe.loss_scale_window) return;
    // Above this bound the scaled loss itself, a float32 number, would come near its end.
    constexpr double kMost = 1e30;
    scale_ = std::min(2.0 * scale_, std::max(scale_, kMost));
    num_finite_ = 0;
    return;
  }
  ++num_skipped_;
  num_finite_ = 0;
  const double least = least_scale(recipe);
  if (scale_ <= least) {
    throw Error(
        ErrorKind::Numerics, "LOSS-SCALE",
        "gradients overflow float16 at step " + std::to_string(step + 1) + " at the minimum loss scale")
        .got(std::to_string(scale_))
        .hint("the weights were not updated; lower learning_rate, or compute in bfloat16 or float32 (dtype)");
  }
  scale_ = std::max(0.5 * scale_, least);
}

void LossScaler::fit(const config::Recipe& recipe) {
  if (is_on(recipe) && is_dynamic(recipe)) {
    scale_ = std::max(scale_, least_scale(recipe));
    return;
  }
  scale_ = first_scale(recipe);
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

#include "tessera/train/step/step_guard.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/log.h"

namespace tessera::train {
namespace {

constexpr double kLeastDeviation = 0.02;  // of the mean

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

}  // namespace

double SpikeWatch::mean() const {
  return std::accumulate(values_.begin(), values_.end(), 0.0) / static_cast<double>(values_.size());
}

bool SpikeWatch::is_spike(double value, double threshold) {
  bool is_above = false;
  if (values_.size() >= kFewest) {
    const double center = mean();
    double squares = 0.0;
    for (const double seen : values_) squares += (seen - center) * (seen - center);
    const double deviation = std::sqrt(squares / static_cast<double>(values_.size()));
    const double bound = center + threshold * std::max(deviation, kLeastDeviation * std::abs(center));
    is_above = value > bound;
    value = std::min(value, bound);
  }
  values_.push_back(value);
  if (values_.size() > kWindow) values_.pop_front();
  return is_above;
}

nlohmann::ordered_json SpikeWatch::to_json() const { return values_; }

SpikeWatch SpikeWatch::from_json(const nlohmann::ordered_json& json) {
  SpikeWatch watch;
  watch.values_ = json.get<std::deque<double>>();
  return watch;
}

bool StepGuard::may_refuse(const config::GuardConfig& keys) {
  return keys.loss_watchdog_threshold > 0.0 || keys.spike_action == config::SpikeAction::Skip ||
         keys.spike_action == config::SpikeAction::Rollback;
}

StepGuard::Verdict StepGuard::judge(const config::GuardConfig& keys, int64_t step, double loss,
                                    double grad_norm) {
  if (keys.loss_watchdog_threshold > 0.0) {
    high_losses_ = loss > keys.loss_watchdog_threshold ? high_losses_ + 1 : 0;
    if (high_losses_ >= keys.loss_watchdog_patience) {
      throw Error(ErrorKind::Numerics, "LOSS-WATCHDOG",
                  "the loss is above loss_watchdog_threshold for " + std::to_string(high_losses_) +
                      " steps in a row, the last one step " + std::to_string(step))
          .got(number(loss))
          .need("at most " + number(keys.loss_watchdog_threshold))
          .hint("resume from an earlier checkpoint with a lower learning_rate");
    }
  }
  if (keys.spike_action == config::SpikeAction::Off) return Verdict::Update;
  const double usual_loss = losses_.mean(), usual_norm = norms_.mean();
  const bool leaps = losses_.is_spike(loss, keys.spike_threshold);
  const bool steepens = norms_.is_spike(grad_norm, keys.spike_threshold);
  if (!leaps && !steepens) return Verdict::Update;
  std::string told = "step " + std::to_string(step) + ": ";
  if (leaps) told += "the loss spikes to " + number(loss) + " from about " + number(usual_loss);
  if (leaps && steepens) told += ", ";
  if (steepens)
    told += "the gradient norm spikes to " + number(grad_norm) + " from about " + number(usual_norm);
  switch (keys.spike_action) {
    case config::SpikeAction::Skip: log::warn(told + "; its update is skipped"); return Verdict::Skip;
    case config::SpikeAction::Rollback: log::warn(told); return Verdict::RollBack;
    default: log::warn(told); return Verdict::Update;
  }
}

nlohmann::ordered_json StepGuard::to_json() const {
  return {{"losses", losses_.to_json()}, {"norms", norms_.to_json()}, {"high_losses", high_losses_}};
}

StepGuard StepGuard::from_json(const nlohmann::ordered_json& json) {
  StepGuard guard;
  guard.losses_ = SpikeWatch::from_json(json.at("losses"));
  guard.norms_ = SpikeWatch::from_json(json.at("norms"));
  guard.high_losses_ = json.at("high_losses");
  return guard;
}

}  // namespace tessera::train

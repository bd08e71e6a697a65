#include "tessera/optim/schedule.h"

#include <algorithm>
#include <cmath>

namespace tessera::optim {
namespace {

double ratio(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(1, whole));
}

// Returns the value of a cosine that begins at 1, after `turns` half waves between 1 and 0.
double cosine(double turns) { return 0.5 * (1.0 + std::cos(M_PI * turns)); }

// Maps a factor between 0 and 1 to the range between `low` and 1.
double between(double low, double factor) { return low + (1.0 - low) * factor; }

// Returns the height of a rise from 0 to 1 at `progress` between 0 and 1.
double rise_at(RampKind kind, double progress) {
  switch (kind) {
    case RampKind::Log:  // deepspeed_at() has its own
    case RampKind::Linear: return progress;
    case RampKind::Cosine: return 1.0 - cosine(progress);
    case RampKind::OneMinusSqrt: return 1.0 - std::sqrt(1.0 - progress);
  }
  return progress;
}

// Returns the height of a fall from 1 to 0 at `progress` between 0 and 1; Cosine makes `cycles` waves.
double fall_at(RampKind kind, double progress, double cycles) {
  switch (kind) {
    case RampKind::Log:
    case RampKind::Linear: return 1.0 - progress;
    case RampKind::Cosine: return cosine(2.0 * cycles * progress);
    case RampKind::OneMinusSqrt: return 1.0 - std::sqrt(progress);
  }
  return 1.0 - progress;
}

}  // namespace

double Schedule::warmup_at(int64_t step) const {
  const double progress = ratio(step, warmup_steps);
  return has_quadratic_warmup && kind == ScheduleKind::Cosine ? progress * progress : progress;
}

double Schedule::cosine_at(int64_t step) const {
  const auto last = constant_ratio > 0.0
                        ? static_cast<int64_t>(static_cast<double>(total_steps) * constant_ratio)
                        : total_steps;
  const double progress =
      std::clamp(ratio(std::min(step, last) - warmup_steps, last - warmup_steps), 0.0, 1.0);
  return between(min_ratio, std::max(0.0, cosine(2.0 * (cycles > 0.0 ? cycles : 0.5) * progress)));
}

double Schedule::stable_decay_at(int64_t step) const {
  if (step < warmup_steps) return between(min_ratio, rise_at(rise, ratio(step, warmup_steps)));
  const int64_t stable =
      stable_steps >= 0 ? stable_steps : std::max<int64_t>(0, total_steps - warmup_steps - decay_steps);
  const int64_t begin = warmup_steps + stable;
  if (step < begin) return 1.0;
  if (step >= begin + decay_steps) return min_ratio;
  const double progress = ratio(step - begin, decay_steps);
  return between(min_ratio, fall_at(fall, progress, cycles > 0.0 ? cycles : 0.5));
}

double Schedule::one_cycle_at(int64_t step) const {
  const double first = 1.0 / div_factor, last = first / final_div_factor;
  const double top = static_cast<double>(warmup_steps) - 1.0,
               end_step = static_cast<double>(total_steps) - 1.0;
  const auto at = static_cast<double>(step);
  if (at <= top || warmup_steps >= total_steps) {
    return first + (1.0 - first) * (1.0 - cosine(std::min(1.0, at / std::max(1.0, top))));
  }
  return last + (1.0 - last) * cosine(std::min(1.0, (at - top) / (end_step - top)));
}

double Schedule::deepspeed_at(int64_t step) const {
  const int64_t last = step - 1, warmup = std::max<int64_t>(2, warmup_steps);
  if (last < 0) return 0.0;
  if (last < warmup) {
    return rise == RampKind::Log
               ? std::log(static_cast<double>(last + 1)) / std::log(static_cast<double>(warmup))
               : ratio(last, warmup);
  }
  if (kind == ScheduleKind::WarmupLr) return 1.0;
  if (kind == ScheduleKind::WarmupDecayLr)
    return std::max(0.0, ratio(total_steps - last, total_steps - warmup));
  // The cosine counts from the update itself, and not from the one before.
  return between(min_ratio, cosine(std::min(1.0, ratio(step - warmup, total_steps - warmup))));
}

double Schedule::range_at(int64_t step) const {
  if (range_end > 0.0) return std::pow(range_end / peak, ratio(step, total_steps - 1));
  const double interval = ratio(step, range_steps);
  return 1.0 + range_rate * (range_has_stairs ? std::floor(interval) : interval);
}

double Schedule::factor_at(int64_t step) const {
  if (kind == ScheduleKind::RangeTest) return range_at(step);
  if (is_of_deepspeed(kind)) return deepspeed_at(step);
  if (kind == ScheduleKind::OneCycle) return one_cycle_at(step);
  if (kind == ScheduleKind::WarmupStableDecay) return stable_decay_at(step);
  if (kind == ScheduleKind::Rex) step += 1;
  if (step < warmup_steps || (kind == ScheduleKind::Rex && step == warmup_steps)) return warmup_at(step);
  const int64_t done = step - warmup_steps, length = total_steps - warmup_steps;
  switch (kind) {
    case ScheduleKind::Constant:
    case ScheduleKind::ReduceOnPlateau:
    case ScheduleKind::ConstantWithWarmup: return 1.0;
    case ScheduleKind::Linear: return between(min_ratio, std::max(0.0, 1.0 - ratio(done, length)));
    case ScheduleKind::Cosine: return cosine_at(step);
    case ScheduleKind::CosineWithRestarts: {
      const double progress = ratio(done, length);
      if (progress >= 1.0) return 0.0;
      return std::max(0.0, cosine(std::fmod((cycles > 0.0 ? cycles : 1.0) * progress, 1.0)));
    }
    case ScheduleKind::Polynomial: {
      const double left = std::max(0.0, 1.0 - ratio(done, length));
      return between(peak > 0.0 ? end / peak : 0.0, std::pow(left, power));
    }
    case ScheduleKind::InverseSqrt: {
      const int64_t scale = timescale > 0 ? timescale : warmup_steps > 0 ? warmup_steps : 10'000;
      return 1.0 / std::sqrt(ratio(done + scale, scale));
    }
    case ScheduleKind::Rex: {
      if (done >= length) return min_ratio;
      const double left = ratio(length - done, length);
      return between(min_ratio, left / (0.1 + 0.9 * left));
    }
    case ScheduleKind::WarmupStableDecay:
    case ScheduleKind::WarmupLr:
    case ScheduleKind::WarmupDecayLr:
    case ScheduleKind::WarmupCosineLr:
    case ScheduleKind::RangeTest:
    case ScheduleKind::OneCycle: break;  // handled above
  }
  return 1.0;
}

double Schedule::restart_at(int64_t step) const {
  if (step < restart_steps - restart_anneal_steps) return 1.0;
  const int64_t place = step % restart_steps;
  double height = 1.0;
  if (place < restart_warmup_steps) {
    height = ratio(place, restart_warmup_steps);
  } else if (place > restart_steps - restart_anneal_steps) {
    height = ratio(restart_steps - place, restart_anneal_steps);
  }
  return between(restart_min_ratio, std::min(1.0, height));
}

double Schedule::at(int64_t step) const {
  if (restart_steps == 0) return peak * factor_at(step);
  // The schedule is one update ahead where it restarts; the restarts of Rex, which is ahead itself, are two.
  const int64_t ahead = step + (kind == ScheduleKind::Rex ? 2 : 1);
  return peak * factor_at(step + 1) * restart_at(ahead);
}

}  // namespace tessera::optim

#include "tessera/train/run/step_forecast.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/comm/bootstrap.h"
#include "tessera/core/log.h"
#include "tessera/core/step_clock.h"
#include "tessera/core/strings.h"
#include "tessera/device/device.h"
#include "tessera/device/host_memory.h"
#include "tessera/models/registry.h"
#include "tessera/planner/search.h"
#include "tessera/train/run/planned_work.h"
#include "tessera/train/run/this_processor.h"
#include "tessera/train/run/update_rate.h"

namespace tessera::train {
namespace {

using planner::Term;

// Steps that differ by less are not warned of: seconds, and the share of the time that was foreseen.
constexpr double kLeastDifference = 0.1, kLeastShare = 0.25;
// Bytes of a copy that is measured. They count in the peak of memory, but before the steps need theirs.
constexpr int64_t kCopyBytes = int64_t{1} << 26;
constexpr double kNumSteps = StepForecast::kLast - StepForecast::kFirst + 1;

constexpr std::array<const char*, kNumStepParts> kPartNames = {"computing", "waiting for other ranks",
                                                               "the optimizer's update", "waiting for data"};
// How to find out more about each part.
constexpr std::array<const char*, kNumStepParts> kHints = {
    "other programs may use this processor or GPU; `tessera doctor` measures what it can do, and a profile "
    "(docs/profiling.md) shows each part of a step",
    "`traffic` in metrics.jsonl has the waiting time by axis; docs/parallelism.md says what each axis sends",
    "the machine may be short of memory bandwidth, or of drive speed for offloaded states",
    "rows are prepared more slowly than they are trained: dataset_prepared_path keeps them prepared"};

StepPart part_of(Term term) {
  switch (term) {
    case Term::Shards:
    case Term::Tensor:
    case Term::Context:
    case Term::Experts:
    case Term::Messages:
    case Term::Bubble: return StepPart::Waiting;
    case Term::Optimizer:
    case Term::Offload: return StepPart::Updating;
    default: return StepPart::Computing;
  }
}

StepPart part_of(StepSection section) {
  switch (section) {
    case StepSection::Wait: return StepPart::Waiting;
    case StepSection::Optimizer: return StepPart::Updating;
    case StepSection::Data: return StepPart::Data;
    default: return StepPart::Computing;
  }
}

double sum_of(const PartSeconds& parts) {
  double sum = 0.0;
  for (const double seconds : parts) sum += seconds;
  return sum;
}

std::string text_of(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}
std::string seconds_text(double seconds) {
  if (seconds < 0.1) return text_of("%.1f ms", 1e3 * seconds);
  return text_of(seconds < 9.995 ? "%.2f s" : "%.1f s", seconds);
}

// Returns the cluster to plan for; nothing if it is not known.
std::optional<planner::Cluster> cluster_of(const config::Recipe& recipe, const parallel::DeviceMesh& mesh,
                                           double peak) {
  comm::Communicator& world = *mesh.world();
  if (!recipe.cluster.empty()) {
    const planner::Cluster cluster = planner::load_cluster(recipe.cluster);
    if (cluster.size() == world.size()) return cluster;
    log::warn("no step is expected: the cluster " + recipe.cluster + " has " +
              std::to_string(cluster.size()) + " devices, and this run " + std::to_string(world.size()) +
              " ranks");
    return std::nullopt;
  }
  if (mesh.device().type() != kHost || comm::launch_info().local_size != world.size()) return std::nullopt;
  // All ranks copy at once, as they do in a step.
  const at::Tensor rate = at::full({1}, copy_rate(kCopyBytes), on_host(at::kDouble));
  world.all_reduce(rate);
  const auto ranks = static_cast<double>(world.size());
  const double tflops = 1e-12 * peak / ranks;
  return this_processor(world.size(), {tflops, tflops, rate.item<double>() / ranks});
}

}  // namespace

planner::StepTraffic sent_by_purpose(const std::map<std::string, AxisTraffic>& by_axis) {
  using planner::Purpose;
  static const std::map<std::string, Purpose> purposes = {{parallel::kAxisDpReplicate, Purpose::Copies},
                                                          {parallel::kAxisDpShard, Purpose::Sharding},
                                                          {parallel::kAxisFsdp, Purpose::Sharding},
                                                          {parallel::kAxisHpz, Purpose::Sharding},
                                                          {parallel::kAxisExpertShard, Purpose::Sharding},
                                                          {parallel::kAxisMachine, Purpose::Sharding},
                                                          {parallel::kAxisMachines, Purpose::Sharding},
                                                          {parallel::kAxisTp, Purpose::Tensor},
                                                          {parallel::kAxisCp, Purpose::Context},
                                                          {"cp_heads", Purpose::Context},
                                                          {"cp_ring", Purpose::Context},
                                                          {parallel::kAxisEp, Purpose::Experts},
                                                          {parallel::kAxisPp, Purpose::Stages}};
  planner::StepTraffic sent;
  for (const auto& [axis, traffic] : by_axis) {
    const auto purpose = purposes.find(axis);
    if (purpose != purposes.end()) sent.of(purpose->second) += static_cast<double>(traffic.bytes_sent);
  }
  return sent;
}

PartSeconds ForeseenStep::parts(double tokens, double label_tokens) const {
  PartSeconds parts{};
  for (size_t i = 0; i < planner::kNumTerms; ++i) {
    const auto term = static_cast<Term>(i);
    const StepPart part = part_of(term);
    double share = 1.0;
    if (part == StepPart::Computing) share = (term == Term::Head ? label_tokens : tokens) / time.tokens;
    parts[static_cast<size_t>(part)] += share * time.of(term);
  }
  return parts;
}

std::optional<ForeseenStep> foresee_step(const config::Recipe& recipe, const models::ModelConfig& config,
                                         const parallel::DeviceMesh& mesh, double peak) {
  const auto cluster = cluster_of(recipe, mesh, peak);
  const int64_t ranks = mesh.world()->size();
  if (mesh.world()->rank() > 0 || !cluster || !(cluster->device.memory_gb_s > 0.0)) return std::nullopt;
  try {
    const auto model = models::build_model(config, at::kFloat);
    const planner::ModelWork work = work_of(*model, config);
    planner::Job job = job_of(recipe, ranks);
    count_states(recipe, *model, job);
    if (mesh.device().type() == kHost) job.update_s = seconds_of_update(recipe, work);
    const planner::Choice choice = choice_of(recipe, ranks);
    if (!planner::why_not(cluster->device, choice.precision).empty()) return std::nullopt;
    const planner::StepTime time = planner::step_time(work, *cluster, job, choice);
    if (!std::isfinite(time.total())) {
      log::info(
          "no step is expected: the rate of the drive that holds states is not known; the key `cluster` "
          "can tell it");
      return std::nullopt;
    }
    return ForeseenStep{time, planner::step_traffic(planner::step_parts(work, *cluster, job, choice), choice,
                                                    static_cast<double>(work.layers))};
  } catch (const std::exception&) {
    return std::nullopt;  // nothing but its own steps can measure such a run
  }
}

StepForecast::StepForecast(const ForeseenStep& foreseen, std::optional<int64_t> expected_bytes)
    : foreseen_(foreseen), expected_bytes_(expected_bytes) {
  const PartSeconds parts = foreseen_.parts(foreseen_.time.tokens, foreseen_.time.tokens);
  std::string of_parts;
  for (size_t i = 0; i < kNumStepParts; ++i) {
    if (parts[i] < 0.01 * sum_of(parts)) continue;
    of_parts += (of_parts.empty() ? "" : ", ") + (kPartNames[i] + (" " + seconds_text(parts[i])));
  }
  log::info("expected: " + seconds_text(sum_of(parts)) + " a step with full documents (" + of_parts + "), " +
            group_digits(std::llround(foreseen_.time.tokens_per_s())) + " tokens/s");
}

void StepForecast::on_step(const TrainState&, StepMetrics& metrics) {
  ++num_steps_;
  if (num_steps_ < kFirst || num_steps_ > kLast) return;
  step_seconds_ += metrics.step_s;
  for (size_t i = 0; i < kNumStepSections; ++i) {
    seconds_[static_cast<size_t>(part_of(static_cast<StepSection>(i)))] += metrics.own_times[i];
  }
  const PartSeconds parts =
      foreseen_.parts(static_cast<double>(metrics.tokens), static_cast<double>(metrics.label_tokens));
  for (size_t i = 0; i < kNumStepParts; ++i) foreseen_seconds_[i] += parts[i];
  const planner::StepTraffic sent = sent_by_purpose(metrics.traffic);
  for (size_t i = 0; i < planner::kNumPurposes; ++i) sent_.bytes[i] += sent.bytes[i];
  peak_bytes_ = std::max(metrics.peak_rss, metrics.peak_device);
  if (num_steps_ == kLast) compare();
}

void StepForecast::compare() const {
  const double measured = step_seconds_ / kNumSteps, foreseen = sum_of(foreseen_seconds_) / kNumSteps;
  std::string text = "steps " + std::to_string(kFirst) + " to " + std::to_string(kLast) +
                     " of this run beside what was expected: " + seconds_text(measured) + " a step, " +
                     seconds_text(foreseen) + " expected";
  if (expected_bytes_) {
    text += "; " + format_bytes(peak_bytes_) + " of memory so far, " + format_bytes(*expected_bytes_) +
            " expected";
  }
  log::info(text);
  compare_traffic();
  const double difference = measured - foreseen;
  if (std::abs(difference) < std::max(kLeastDifference, kLeastShare * foreseen)) return;
  size_t worst = 0;
  const auto excess = [&](size_t part) {
    return std::copysign(1.0, difference) * (seconds_[part] - foreseen_seconds_[part]);
  };
  for (size_t i = 1; i < kNumStepParts; ++i) worst = excess(i) > excess(worst) ? i : worst;
  text = "a step takes " + seconds_text(measured) + ", " +
         text_of("%.0f %%", 100.0 * std::abs(difference) / foreseen) + (difference > 0 ? " more" : " less") +
         " than was expected; most of the difference is " + kPartNames[worst] + ": " +
         seconds_text(seconds_[worst] / kNumSteps) + ", where " +
         seconds_text(foreseen_seconds_[worst] / kNumSteps) + " was expected";
  // A run that is faster than foreseen needs no help.
  if (difference < 0) return log::info(text);
  log::warn(text + ". " + kHints[worst]);
}

void StepForecast::compare_traffic() const {
  std::string text;
  for (size_t i = 0; i < planner::kNumPurposes; ++i) {
    const int64_t sent = std::llround(sent_.bytes[i] / kNumSteps),
                  foreseen = std::llround(foreseen_.traffic.bytes[i]);
    if (sent == 0 && foreseen == 0) continue;
    text += (text.empty() ? "" : "; ") + std::string(purpose_name(static_cast<planner::Purpose>(i))) + " " +
            format_bytes(sent) + ", " + format_bytes(foreseen) + " expected";
  }
  if (!text.empty()) log::info("bytes that the first rank sends in a step: " + text);
}

}  // namespace tessera::train

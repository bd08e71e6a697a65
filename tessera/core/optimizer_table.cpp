#include "tessera/core/optimizer_table.h"

#include <limits>

namespace tessera {
namespace {

using O = OptimizerOptions;

constexpr double kBelowOne = 1.0 - std::numeric_limits<double>::epsilon() / 2;
constexpr double kMany = 1e12;

constexpr OptimizerOption beta1(double value) { return {"adam_beta1", &O::beta1, value, 0, kBelowOne}; }
constexpr OptimizerOption beta2(double value) { return {"adam_beta2", &O::beta2, value, 0, kBelowOne}; }
constexpr OptimizerOption epsilon(double value) { return {"adam_epsilon", &O::epsilon, value, 0, 1}; }
constexpr OptimizerOption momentum(double value) { return {"momentum", &O::momentum, value, 0, kBelowOne}; }
constexpr OptimizerOption nesterov(double value) { return {"nesterov", &O::nesterov, value, 0, 1, true}; }

constexpr OptimizerOption kAdam[] = {beta1(0.9), beta2(0.999), epsilon(1e-8)};
constexpr OptimizerOption kSgd[] = {momentum(0.0), {"dampening", &O::dampening, 0, 0, 1}, nesterov(0)};
constexpr OptimizerOption kLion[] = {beta1(0.9), beta2(0.999)};
constexpr OptimizerOption kAdagrad[] = {{"lr_decay", &O::lr_decay, 0, 0, 1e3}, epsilon(1e-10)};
constexpr OptimizerOption kRmsProp[] = {{"alpha", &O::alpha, 0.99, 0, 1},
                                        momentum(0.0),
                                        {"centered", &O::centered, 0, 0, 1, true},
                                        epsilon(1e-8)};
constexpr OptimizerOption kAdEMAMix[] = {beta1(0.9),
                                         beta2(0.999),
                                         {"adam_beta3", &O::beta3, 0.9999, 0, kBelowOne},
                                         {"alpha", &O::alpha, 5.0, 0, 1e6},
                                         {"t_alpha", &O::t_alpha, 0, 0, kMany, false, true},
                                         {"t_beta3", &O::t_beta3, 0, 0, kMany, false, true},
                                         epsilon(1e-8)};
// Its momentum leads back to the average, so beta1 is above 0.
constexpr OptimizerOption kScheduleFree[] = {{"adam_beta1", &O::beta1, 0.9, 1e-6, kBelowOne},
                                             beta2(0.999),
                                             epsilon(1e-8),
                                             {"r", &O::r, 0, 0, 1e3},
                                             {"weight_lr_power", &O::weight_lr_power, 2, 0, 1e3}};

constexpr std::string_view kOfLion = "0.9 and 0.99";

constexpr OptimizerFacts kTable[] = {
    {OptimizerKind::AdamW, "adamw_torch_fused", kAdam, true, true},
    {OptimizerKind::Sgd, "sgd", kSgd},
    {OptimizerKind::Lion, "lion", kLion, true, false, kOfLion},
    {OptimizerKind::Adagrad, "adagrad", kAdagrad},
    {OptimizerKind::RmsProp, "rmsprop", kRmsProp},
    {OptimizerKind::AdEMAMix, "ademamix", kAdEMAMix},
    {OptimizerKind::ScheduleFreeAdamW, "schedule_free_adamw", kScheduleFree},
};

}  // namespace

std::span<const OptimizerFacts> optimizer_table() { return kTable; }

const OptimizerFacts& facts_of(OptimizerKind kind) { return kTable[static_cast<size_t>(kind)]; }

OptimizerOptions default_options(OptimizerKind kind) {
  OptimizerOptions options;
  for (const OptimizerOption& option : facts_of(kind).options) options.*option.field = option.value;
  return options;
}

}  // namespace tessera

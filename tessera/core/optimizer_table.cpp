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

constexpr OptimizerOption ns_steps() { return {"ns_steps", &O::ns_steps, 5, 1, 99, false, true}; }

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
constexpr OptimizerOption kLamb[] = {beta1(0.9),
                                     beta2(0.999),
                                     epsilon(1e-8),
                                     {"min_coeff", &O::min_coeff, 0.01, 0, 1e6},
                                     {"max_coeff", &O::max_coeff, 10.0, 0, 1e6}};
constexpr OptimizerOption kAdafactor[] = {{"epsilon", &O::epsilon, 1e-30, 0, 1},
                                          {"clip_threshold", &O::clip_threshold, 1.0, 1e-6, 1e6},
                                          {"decay_rate", &O::decay_rate, -0.8, -1e3, 0}};
constexpr OptimizerOption kCame[] = {beta1(0.9),
                                     beta2(0.999),
                                     {"adam_beta3", &O::beta3, 0.9999, 0, kBelowOne},
                                     {"adam_epsilon", &O::epsilon, 1e-30, 0, 1},
                                     {"adam_epsilon2", &O::epsilon2, 1e-16, 0, 1},
                                     {"clip_threshold", &O::clip_threshold, 1.0, 1e-6, 1e6}};
// The betas are those of AdamW, for the parameters that Muon leaves to it.
constexpr OptimizerOption kMuon[] = {momentum(0.95), nesterov(1),  ns_steps(),
                                     beta1(0.9),     beta2(0.999), epsilon(1e-8)};
constexpr OptimizerOption kMuonJordan[] = {momentum(0.95), nesterov(1), ns_steps(),
                                           beta1(0.9),     beta2(0.95), epsilon(1e-10)};
constexpr OptimizerOption kMuonTorch[] = {
    momentum(0.95), nesterov(1),  ns_steps(),   {"match_rms_adamw", &O::match_rms_adamw, 0, 0, 1, true},
    beta1(0.9),     beta2(0.999), epsilon(1e-8)};

constexpr std::string_view kScaleTypes[] = {"channel", "tensor"}, kProjections[] = {"random"},
                           kProjectionTypes[] = {"std"};

constexpr OptimizerOption rank(double value) { return {"rank", &O::rank, value, 1, 1e6, false, true}; }
constexpr OptimizerOption gap() { return {"update_proj_gap", &O::update_proj_gap, 200, 1, 1e9, false, true}; }
constexpr OptimizerOption scale(double value) { return {"scale", &O::scale, value, 0, 1e6}; }
constexpr OptimizerOption proj_type() {
  return {"proj_type", &O::proj_type, 0, 0, 0, false, false, kProjectionTypes};
}
constexpr OptimizerOption proj() { return {"proj", &O::proj, 0, 0, 0, false, false, kProjections}; }
constexpr OptimizerOption scale_type(double value) {
  return {"scale_type", &O::scale_type, value, 0, 1, false, false, kScaleTypes};
}

constexpr OptimizerOption kGaLore[] = {beta1(0.9), beta2(0.999), epsilon(1e-6), rank(128),
                                       gap(),      scale(0.25),  proj_type()};
constexpr OptimizerOption kApollo[] = {beta1(0.9), beta2(0.999), epsilon(1e-8), rank(128),    gap(),
                                       scale(1),   proj(),       proj_type(),   scale_type(0)};
constexpr OptimizerOption kApolloMini[] = {beta1(0.9), beta2(0.999), epsilon(1e-8), rank(1),      gap(),
                                           scale(128), proj(),       proj_type(),   scale_type(1)};

constexpr std::string_view kOfLion = "0.9 and 0.99";

constexpr OptimizerFacts kTable[] = {
    {OptimizerKind::AdamW, "adamw_torch_fused", kAdam, true, true},
    {OptimizerKind::Sgd, "sgd", kSgd},
    {OptimizerKind::Lion, "lion", kLion, true, false, kOfLion},
    {OptimizerKind::Adagrad, "adagrad", kAdagrad},
    {OptimizerKind::RmsProp, "rmsprop", kRmsProp},
    {OptimizerKind::AdEMAMix, "ademamix", kAdEMAMix},
    {OptimizerKind::ScheduleFreeAdamW, "schedule_free_adamw", kScheduleFree},
    {OptimizerKind::AdamW8bit, "adamw_8bit", kAdam},
    {OptimizerKind::StableAdamW, "stable_adamw", kAdam, true, false, "0.9 and 0.99"},
    {OptimizerKind::Lamb, "lamb", kLamb},
    {OptimizerKind::Adafactor, "adafactor", kAdafactor},
    {OptimizerKind::Came, "came_pytorch", kCame},
    {OptimizerKind::Muon, "muon", kMuon},
    {OptimizerKind::MuonJordan, "muon_keller_jordan", kMuonJordan},
    {OptimizerKind::MuonTorch, "muon_torch", kMuonTorch},
    {OptimizerKind::AdamMini, "adam_mini", kAdam},
    {OptimizerKind::GaLore, "galore_adamw", kGaLore, true, false, "", true},
    {OptimizerKind::Apollo, "apollo_adamw", kApollo, true, false, "", true},
    {OptimizerKind::ApolloMini, "apollo_mini", kApolloMini, true, false, "", true},
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

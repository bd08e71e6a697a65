// The names that the keys `optimizer` and `optimizer_args` take.
#pragma once

#include "tessera/config/schema.h"

namespace tessera::config {

constexpr int kind_of(OptimizerKind kind) { return static_cast<int>(kind); }

inline constexpr std::string_view k8Bit =
    "8-bit optimizer states are not supported yet; states have the dtype optimizer_state_dtype";
inline constexpr std::string_view kOtherOptimizer =
    "not supported yet; docs/optimizers.md lists those that are";
inline constexpr std::string_view kLayerwise =
    "all layers are updated behind the backward; update_in_backward: true updates each within it";
inline constexpr Choice kOptimizers[] = {
    {"adamw_torch_fused", kind_of(OptimizerKind::AdamW)},
    {"adamw_torch", kind_of(OptimizerKind::AdamW)},
    {"adamw", kind_of(OptimizerKind::AdamW)},
    {"adamw_hf", kind_of(OptimizerKind::AdamW)},
    {"adamw_apex_fused", kind_of(OptimizerKind::AdamW)},
    {"paged_adamw_32bit", kind_of(OptimizerKind::AdamW)},
    {"adamw_8bit", kind_of(OptimizerKind::AdamW8bit)},
    {"adamw_bnb_8bit", kind_of(OptimizerKind::AdamW8bit)},
    {"paged_adamw_8bit", kind_of(OptimizerKind::AdamW8bit), "states are not paged"},
    {"adamw_torch_8bit", kind_of(OptimizerKind::AdamW8bit),
     "the rule is that of bitsandbytes, which keeps embeddings in 32 bits and lets weights decay after the "
     "step"},
    {"adamw_torch_4bit", kind_of(OptimizerKind::AdamW),
     "4-bit optimizer states are not supported yet; states have the dtype optimizer_state_dtype"},
    {"adamw_torch_xla", kind_of(OptimizerKind::AdamW)},
    {"adamw_torch_npu_fused", kind_of(OptimizerKind::AdamW)},
    {"flash_adamw", kind_of(OptimizerKind::AdamW), k8Bit},
    {"sgd", kind_of(OptimizerKind::Sgd)},
    {"lion", kind_of(OptimizerKind::Lion)},
    {"lion_32bit", kind_of(OptimizerKind::Lion)},
    {"lion_pytorch", kind_of(OptimizerKind::Lion)},
    {"paged_lion_32bit", kind_of(OptimizerKind::Lion)},
    {"lion_8bit", kNotBuilt, "states of 8 bits are for adamw_8bit alone; write lion_32bit"},
    {"paged_lion_8bit", kNotBuilt, "states of 8 bits are for adamw_8bit alone; write lion_32bit"},
    {"adagrad", kind_of(OptimizerKind::Adagrad)},
    {"rmsprop", kind_of(OptimizerKind::RmsProp)},
    {"rmsprop_bnb*", kNotBuilt, "its rule is another one; write rmsprop, which is PyTorch's"},
    {"ademamix", kind_of(OptimizerKind::AdEMAMix)},
    {"paged_ademamix_32bit", kind_of(OptimizerKind::AdEMAMix)},
    {"ademamix_8bit", kNotBuilt, "states of 8 bits are for adamw_8bit alone; write ademamix"},
    {"paged_ademamix_8bit", kNotBuilt, "states of 8 bits are for adamw_8bit alone; write ademamix"},
    {"schedule_free_adamw", kind_of(OptimizerKind::ScheduleFreeAdamW)},
    {"stable_adamw", kind_of(OptimizerKind::StableAdamW)},
    {"lamb", kind_of(OptimizerKind::Lamb)},
    {"adafactor", kind_of(OptimizerKind::Adafactor)},
    {"came_pytorch", kind_of(OptimizerKind::Came)},
    {"muon", kind_of(OptimizerKind::Muon)},
    {"muon_keller_jordan", kind_of(OptimizerKind::MuonJordan)},
    {"muon_torch", kind_of(OptimizerKind::MuonTorch)},
    {"adam_mini", kind_of(OptimizerKind::AdamMini)},
    {"galore_adamw", kind_of(OptimizerKind::GaLore)},
    {"galore_adamw_layerwise", kind_of(OptimizerKind::GaLore), kLayerwise},
    {"galore_adamw_8bit", kNotBuilt, "states of 8 bits are for adamw_8bit alone; write galore_adamw"},
    {"galore_adamw_8bit_layerwise", kNotBuilt,
     "states of 8 bits are for adamw_8bit alone; write galore_adamw"},
    {"galore_adafactor", kNotBuilt, "projected gradients are for AdamW alone; write galore_adamw"},
    {"galore_adafactor_layerwise", kNotBuilt, "projected gradients are for AdamW alone; write galore_adamw"},
    {"apollo_adamw", kind_of(OptimizerKind::Apollo)},
    {"apollo_adamw_layerwise", kind_of(OptimizerKind::Apollo), kLayerwise},
    {"apollo_mini", kind_of(OptimizerKind::ApolloMini)},
    {"flash_sgd", kNotBuilt, "not supported yet; write optimizer: sgd"},
    {"adalomo", kNotBuilt, kOtherOptimizer},
    {"adamw_anyprecision", kNotBuilt,
     "not supported; write adamw_torch_fused, and optimizer_state_dtype: bfloat16 for states in bfloat16"},
    {"adopt_adamw", kNotBuilt, kOtherOptimizer},
    {"ao_adamw_*", kNotBuilt, kOtherOptimizer},
    {"dion", kNotBuilt, kOtherOptimizer},
    {"flash_*", kNotBuilt, kOtherOptimizer},
    {"grokadamw", kNotBuilt, kOtherOptimizer},
    {"lomo", kNotBuilt, kOtherOptimizer},
    {"optimi_adamw", kNotBuilt, kOtherOptimizer},
    {"q_galore_adamw8bit", kNotBuilt, kOtherOptimizer},
    {"schedule_free_*", kNotBuilt, kOtherOptimizer},
    {"sinkgd", kNotBuilt, kOtherOptimizer},
};
// The options of all optimizers, each once, that have no key of their own.
inline constexpr Choice kOptimizerArgs[] = {
    {"momentum"},        {"dampening"},      {"nesterov"},        {"alpha"},     {"centered"},  {"lr_decay"},
    {"adam_beta3"},      {"epsilon"},        {"adam_epsilon2"},   {"t_alpha"},   {"t_beta3"},   {"r"},
    {"weight_lr_power"}, {"clip_threshold"}, {"decay_rate"},      {"min_coeff"}, {"max_coeff"}, {"ns_steps"},
    {"match_rms_adamw"}, {"rank"},           {"update_proj_gap"}, {"scale"},     {"proj"},      {"proj_type"},
    {"scale_type"},
};

}  // namespace tessera::config

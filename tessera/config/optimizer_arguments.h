// The keys of optim_args, as Transformers and Axolotl have them.
#pragma once

#include "tessera/config/foreign_keys.h"

namespace tessera::config {

inline constexpr std::string_view kOption = "sets this option of the optimizer in `optimizer_args`";
inline constexpr ForeignKey kOptimizerArguments[] = {
    {"lr", Rule::Rename, "learning_rate"},
    {"beta1", Rule::Rename, "adam_beta1"},
    {"beta2", Rule::Rename, "adam_beta2"},
    {"betas", Rule::Special, "betas",
     "means `adam_beta1`, `adam_beta2` and, with three numbers, `optimizer_args.adam_beta3`"},
    {"adam_beta1", Rule::Rename, "adam_beta1"},
    {"adam_beta2", Rule::Rename, "adam_beta2"},
    {"eps", Rule::Rename, "adam_epsilon"},
    {"epsilon", Rule::Rename, "adam_epsilon"},
    {"adam_epsilon", Rule::Rename, "adam_epsilon"},
    {"weight_decay", Rule::Rename, "weight_decay"},
    {"amsgrad", Rule::Refuse, "AMSGrad is not supported yet"},
    {"momentum", Rule::Special, "optimizer_args.momentum", kOption},
    {"nesterov", Rule::Special, "optimizer_args.nesterov", kOption},
    {"dampening", Rule::Special, "optimizer_args.dampening", kOption},
    {"alpha", Rule::Special, "optimizer_args.alpha", kOption},
    {"centered", Rule::Special, "optimizer_args.centered", kOption},
    {"lr_decay", Rule::Special, "optimizer_args.lr_decay", kOption},
    {"beta3", Rule::Special, "optimizer_args.adam_beta3", kOption},
    {"adam_beta3", Rule::Special, "optimizer_args.adam_beta3", kOption},
    {"t_alpha", Rule::Special, "optimizer_args.t_alpha", kOption},
    {"t_beta3", Rule::Special, "optimizer_args.t_beta3", kOption},
    {"r", Rule::Special, "optimizer_args.r", kOption},
    {"weight_lr_power", Rule::Special, "optimizer_args.weight_lr_power", kOption},
    {"clip_threshold", Rule::Special, "optimizer_args.clip_threshold", kOption},
    {"decay_rate", Rule::Special, "optimizer_args.decay_rate", kOption},
    {"adam_epsilon2", Rule::Special, "optimizer_args.adam_epsilon2", kOption},
    {"min_coeff", Rule::Special, "optimizer_args.min_coeff", kOption},
    {"max_coeff", Rule::Special, "optimizer_args.max_coeff", kOption},
    {"ns_steps", Rule::Special, "optimizer_args.ns_steps", kOption},
    {"rank", Rule::Special, "optimizer_args.rank", kOption},
    {"update_proj_gap", Rule::Special, "optimizer_args.update_proj_gap", kOption},
    {"scale", Rule::Special, "optimizer_args.scale", kOption},
    {"proj", Rule::Special, "optimizer_args.proj", kOption},
    {"proj_type", Rule::Special, "optimizer_args.proj_type", kOption},
    {"scale_type", Rule::Special, "optimizer_args.scale_type", kOption},
    {"scale_parameter", Rule::Refuse, "the learning rate is that of the schedule"},
    {"relative_step", Rule::Refuse, "the learning rate is that of the schedule"},
    {"warmup_init", Rule::Refuse, "the learning rate is that of the schedule"},
    {"decouple_lr", Rule::Refuse, "weight decay is multiplied by the learning rate"},
    {"kahan_sum", Rule::Quiet, "weights are in float32"},
    {"maximize", Rule::Refuse, "a lower loss is better"},
    {"fused", Rule::Quiet, kHow},
    {"foreach", Rule::Quiet, kHow},
    {"capturable", Rule::Quiet, kHow},
    {"differentiable", Rule::Quiet, kHow},
};

}  // namespace tessera::config

#include "tessera/config/schema_tables.h"

namespace tessera::config {
namespace {

constexpr Choice kAdapters[] = {
    {"lora", as_int(AdapterKind::Lora)},
    {"none", as_int(AdapterKind::None)},
    {"qlora", as_int(AdapterKind::Lora)},  // settle_keys() adds load_in_4bit
    {"ia3", as_int(AdapterKind::Ia3)},
    {"ln_tuning", as_int(AdapterKind::LnTuning)},
    {"vera", as_int(AdapterKind::Vera)},
    {"prompt_tuning", as_int(AdapterKind::PromptTuning)},
    {"llama-adapter", kNotBuilt, "not supported yet"},
    {"oft", kNotBuilt, "not supported yet"},
    {"mora", kNotBuilt, "MoRA is not supported yet"},
    {"loha", kNotBuilt, "not supported yet"},
    {"lokr", kNotBuilt, "not supported yet"},
};
constexpr Choice kPromptInits[] = {
    {"random"},
    {"text"},
    {"sample_vocab", kNotBuilt, "not supported yet; write random or text"},
};
constexpr std::string_view kOtherStart = "not supported yet; write pissa, olora, gaussian or true";
constexpr Choice kLoraStarts[] = {
    {"true"},
    {"false"},
    {"gaussian"},
    {"pissa"},
    {"pissa_niter_*"},
    {"olora"},
    {"eva", kNotBuilt, kOtherStart},
    {"corda", kNotBuilt, kOtherStart},
    {"loftq"},
    {"lora_ga", kNotBuilt, kOtherStart},
    {"mica", kNotBuilt, kOtherStart},
    {"orthogonal", kNotBuilt, kOtherStart},
};
constexpr Choice kFourBitTypes[] = {{"nf4", as_int(FourBitType::Nf4)}, {"fp4", as_int(FourBitType::Fp4)}};

const Key<Recipe> kKeys[] = {
    // Adapter
    {"adapter", enum_field<&Recipe::adapter>, 0, 0, kAdapters},
    {"lora_model_dir", &Recipe::lora_model_dir},
    {"relora", &Recipe::relora},
    {"relora_prune_ratio", &Recipe::relora_prune_ratio, 0, 1},
    {"lora_r", &Recipe::lora_r, 1, 65536},
    {"lora_alpha", &Recipe::lora_alpha, kTiny, 1e6},
    {"lora_dropout", &Recipe::lora_dropout, 0, kBelowOne},
    {"lora_target_modules", &Recipe::lora_target_modules},
    {"lora_target_regex", &Recipe::lora_target_regex},
    {"lora_target_linear", &Recipe::lora_target_linear},
    {"lora_target_parameters", &Recipe::lora_target_parameters},
    {"lora_exclude_modules", &Recipe::lora_exclude_modules},
    {"lora_exclude_regex", &Recipe::lora_exclude_regex},
    {"peft_layers_to_transform", &Recipe::peft_layers_to_transform, 0, 1 << 20},
    {"peft_layers_pattern", &Recipe::peft_layers_pattern},
    {"lora_rank_pattern", &Recipe::lora_rank_pattern, 1, 65536},
    {"lora_alpha_pattern", &Recipe::lora_alpha_pattern, kTiny, 1e6},
    {"lora_modules_to_save", &Recipe::lora_modules_to_save},
    {"peft_use_rslora", &Recipe::peft_use_rslora},
    {"peft_use_dora", &Recipe::peft_use_dora},
    {"lora_bias", &Recipe::lora_bias},
    {"peft_init_lora_weights", &Recipe::peft_init_lora_weights, 0, 0, kLoraStarts},
    {"peft_trainable_token_indices", &Recipe::peft_trainable_token_indices, 0, 1 << 30},
    {"ia3_feedforward_modules", &Recipe::ia3_feedforward_modules},
    {"vera_r", &Recipe::vera_r, 1, 65536},
    {"vera_d_initial", &Recipe::vera_d_initial, -1e6, 1e6},
    {"vera_projection_prng_key", &Recipe::vera_projection_prng_key, 0, 1e15},
    {"vera_save_projection", &Recipe::vera_save_projection},
    {"num_virtual_tokens", &Recipe::num_virtual_tokens, 1, 65536},
    {"prompt_tuning_init", &Recipe::prompt_tuning_init, 0, 0, kPromptInits},
    {"prompt_tuning_init_text", &Recipe::prompt_tuning_init_text},
    // Quantised base
    {"load_in_4bit", &Recipe::load_in_4bit},
    {"load_in_8bit", &Recipe::load_in_8bit},
    {"bnb_4bit_quant_type", enum_field<&Recipe::bnb_4bit_quant_type>, 0, 0, kFourBitTypes},
    {"bnb_4bit_use_double_quant", &Recipe::bnb_4bit_use_double_quant},
    {"llm_int8_skip_modules", &Recipe::llm_int8_skip_modules},
    {"quantize_moe_experts", &Recipe::quantize_moe_experts},
};

}  // namespace

std::span<const Key<Recipe>> adapter_keys() { return kKeys; }

}  // namespace tessera::config

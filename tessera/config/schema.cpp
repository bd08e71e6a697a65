#include "tessera/config/schema.h"

#include "tessera/config/optimizer_choices.h"

namespace tessera::config {
namespace {

// Reads and writes an enum field of the recipe, those of its bases included.
template <auto Member>
struct EnumAccess {
  static int get(const Recipe& recipe) { return static_cast<int>(recipe.*Member); }
  static void set(Recipe& recipe, int value) {
    auto& field = recipe.*Member;
    field = static_cast<std::remove_reference_t<decltype(field)>>(value);
  }
  static constexpr EnumField<Recipe> field{&get, &set};
};

template <auto Member>
constexpr auto enum_field = EnumAccess<Member>::field;

constexpr double kTiny = std::numeric_limits<double>::min();  // stands for "above zero"
constexpr double kBelowOne = 1.0 - std::numeric_limits<double>::epsilon() / 2;
constexpr double kMaxSeed = 9007199254740992.0;  // 2^53; every YAML reader reads such integers exactly
constexpr double kMaxSteps = 1e12;
constexpr double kMaxSequence = 16777216.0;  // 2^24 tokens
constexpr double kMaxRanks = 1e6;
constexpr double kMaxPipeline = 4096;

constexpr int as_int(auto value) { return static_cast<int>(value); }

constexpr Choice kStateTypes[] = {
    {"float32", as_int(StateType::OfWeights)},
    {"fp32", as_int(StateType::OfWeights)},
    {"bfloat16", as_int(StateType::BFloat16)},
    {"bf16", as_int(StateType::BFloat16)},
    {"float16", kNotBuilt, "its range is too small for optimizer states; write bfloat16"},
    {"fp16", kNotBuilt, "its range is too small for optimizer states; write bfloat16"},
    {"fp8", kNotBuilt, "not supported yet; write bfloat16"},
};
constexpr Choice kSaveTypes[] = {
    {"auto", as_int(SaveType::OfBase)},   {"float32", as_int(SaveType::Float32)},
    {"fp32", as_int(SaveType::Float32)},  {"bfloat16", as_int(SaveType::BFloat16)},
    {"bf16", as_int(SaveType::BFloat16)}, {"float16", as_int(SaveType::Float16)},
    {"fp16", as_int(SaveType::Float16)},
};
constexpr std::string_view kAtTheEnd = "the result alone is uploaded, at the end of the run";
constexpr Choice kHubStrategies[] = {
    {"end", as_int(HubStrategy::End)},
    {"every_save", as_int(HubStrategy::End), kAtTheEnd},
    {"checkpoint", as_int(HubStrategy::End), kAtTheEnd},
    {"all_checkpoints", as_int(HubStrategy::End), kAtTheEnd},
};
constexpr Choice kLrScalings[] = {
    {"none", as_int(LrScaling::None)},
    {"linear", as_int(LrScaling::Linear)},
    {"sqrt", as_int(LrScaling::Sqrt)},
};
constexpr Choice kSchedulers[] = {
    {"cosine", as_int(ScheduleKind::Cosine)},
    {"linear", as_int(ScheduleKind::Linear)},
    {"constant", as_int(ScheduleKind::Constant)},
    {"constant_with_warmup", as_int(ScheduleKind::ConstantWithWarmup)},
    {"cosine_with_restarts", as_int(ScheduleKind::CosineWithRestarts)},
    {"polynomial", as_int(ScheduleKind::Polynomial)},
    {"inverse_sqrt", as_int(ScheduleKind::InverseSqrt)},
    {"warmup_stable_decay", as_int(ScheduleKind::WarmupStableDecay)},
    {"wsd", as_int(ScheduleKind::WarmupStableDecay)},
    {"one_cycle", as_int(ScheduleKind::OneCycle),
     "only the learning rate is cycled; adam_beta1 stays constant"},
    {"rex", as_int(ScheduleKind::Rex)},
    {"warmup_lr", as_int(ScheduleKind::WarmupLr)},
    {"warmup_decay_lr", as_int(ScheduleKind::WarmupDecayLr)},
    {"warmup_cosine_lr", as_int(ScheduleKind::WarmupCosineLr)},
    {"cosine_with_min_lr", as_int(ScheduleKind::Cosine)},
    {"cosine_warmup_with_min_lr", kNotBuilt, "write lr_scheduler: cosine and cosine_min_lr_ratio"},
    {"reduce_lr_on_plateau", as_int(ScheduleKind::ReduceOnPlateau)},
    {"lr_range_test", as_int(ScheduleKind::RangeTest)},
    {"greedy", kNotBuilt,
     "not supported yet; write reduce_lr_on_plateau, which only lowers the learning rate"},
};
constexpr Choice kPlateauModes[] = {
    {"rel", as_int(PlateauMode::Relative)},
    {"abs", as_int(PlateauMode::Absolute)},
};
constexpr Choice kRamps[] = {
    {"linear", as_int(RampKind::Linear)},
    {"cosine", as_int(RampKind::Cosine)},
    {"1-sqrt", as_int(RampKind::OneMinusSqrt)},
};
constexpr Choice kWarmupRamps[] = {
    {"linear", as_int(RampKind::Linear)},
    {"cosine", as_int(RampKind::Cosine)},
    {"1-sqrt", as_int(RampKind::OneMinusSqrt)},
    {"log", as_int(RampKind::Log)},
};
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
constexpr Choice kDtypes[] = {
    {"float32", as_int(ComputeType::Float32)},
    {"fp32", as_int(ComputeType::Float32)},
    {"float64", as_int(ComputeType::Float64)},
    {"fp64", as_int(ComputeType::Float64)},
    {"bfloat16", as_int(ComputeType::BFloat16)},
    {"bf16", as_int(ComputeType::BFloat16)},
    {"auto", as_int(ComputeType::Auto)},
    {"float16", as_int(ComputeType::Float16)},
    {"fp16", as_int(ComputeType::Float16)},
    // set_native() of translate.cpp adds fp8: true.
    {"fp8", as_int(ComputeType::BFloat16)},
};
constexpr Choice kCheckpointing[] = {
    {"false", as_int(Checkpointing::Off)},
    {"true", as_int(Checkpointing::Block)},
    {"mlp", as_int(Checkpointing::Mlp)},
    // set_native() of translate.cpp adds activation_offloading: true for these two.
    {"offload", as_int(Checkpointing::Block)},
    {"unsloth", as_int(Checkpointing::Block)},
    {"offload_disk", kNotBuilt, "offloading to a drive is not supported yet; write true"},
};
constexpr Choice kActivationOffloading[] = {
    {"false", as_int(Offloading::Off)},
    {"true", as_int(Offloading::Host)},
    {"legacy", as_int(Offloading::Host)},
    {"hidden_states", as_int(Offloading::Host)},
    {"disk", kNotBuilt, "offloading to a drive is not supported yet; write true"},
};
constexpr Choice kCadences[] = {
    {"epoch", as_int(Cadence::Epoch)},
    {"steps", as_int(Cadence::Steps)},
    {"no", as_int(Cadence::No)},
    {"false", as_int(Cadence::No)},
};
constexpr Choice kSaveCadences[] = {
    {"epoch", as_int(Cadence::Epoch)}, {"steps", as_int(Cadence::Steps)}, {"no", as_int(Cadence::No)},
    {"false", as_int(Cadence::No)},    {"best", as_int(Cadence::Best)},
};
constexpr Choice kSaveErrorActions[] = {
    {"stop", as_int(SaveErrorAction::Stop)},
    {"continue", as_int(SaveErrorAction::Continue)},
};
constexpr Choice kSpikeActions[] = {
    {"warn", as_int(SpikeAction::Warn)},         {"skip", as_int(SpikeAction::Skip)},
    {"rollback", as_int(SpikeAction::Rollback)}, {"off", as_int(SpikeAction::Off)},
    {"false", as_int(SpikeAction::Off)},
};
constexpr Choice kContextParallelMethods[] = {
    {"auto", as_int(ContextParallelMethod::Auto)},
    {"ring", as_int(ContextParallelMethod::Ring)},
    {"ulysses", as_int(ContextParallelMethod::Ulysses)},
    {"usp", as_int(ContextParallelMethod::Usp)},
};
constexpr Choice kZeroStages[] = {
    {"3", as_int(ZeroStage::Zero3)},
    {"2", as_int(ZeroStage::Zero2)},
    {"1", as_int(ZeroStage::Zero1)},
    {"0", as_int(ZeroStage::Ddp)},
};
constexpr Choice kOptimizerOffloadDevices[] = {
    {"none", as_int(OffloadDevice::None)},
    {"cpu", as_int(OffloadDevice::Cpu)},
    {"nvme", as_int(OffloadDevice::Nvme)},
};
constexpr Choice kParamOffloadDevices[] = {
    {"none", as_int(OffloadDevice::None)},
    {"cpu", as_int(OffloadDevice::Cpu)},
    {"nvme", kNotBuilt, "offloading to a drive is not supported yet; write cpu"},
};
constexpr Choice kDevices[] = {
    {"auto"},
    {"cpu"},
    {"cuda"},
    {"cuda:*"},
    {"mps", kNotBuilt, "not supported"},
    {"xpu*", kNotBuilt, "not supported"},
    {"npu*", kNotBuilt, "not supported"},
};
constexpr Choice kSplitBases[] = {
    {"work", as_int(SplitBasis::Work)},
    {"time", as_int(SplitBasis::Time)},
};

constexpr Choice kPipelineSchedules[] = {
    {"1f1b", as_int(PipelineKind::OneFOneB)},
    {"gpipe", as_int(PipelineKind::GPipe)},
    {"interleaved", as_int(PipelineKind::Interleaved)},
    {"zero_bubble", as_int(PipelineKind::ZeroBubble)},
};
constexpr Choice kExcessLength[] = {
    {"drop", as_int(ExcessLength::Drop)},
    {"truncate", as_int(ExcessLength::Truncate)},
    {"raise", as_int(ExcessLength::Raise)},
};
constexpr Choice kAnswerBorders[] = {{"whole"}, {"split"}};
constexpr Choice kOnBadLine[] = {{"raise"}, {"skip"}};
constexpr Choice kTrainOn[] = {{"turn"}, {"all"}, {"last"}, {"none"}, {""}};
constexpr Choice kMixStrategies[] = {{"concat"}, {"interleave_under"}, {"interleave_over"}};
constexpr Choice kDsTypes[] = {{"json"}, {"text"}, {"csv"}, {"parquet"}, {"arrow"}};
constexpr std::string_view kUseChatTemplate = "not supported; write type: chat_template";
constexpr Choice kDatasetTypes[] = {
    {"alpaca"},
    {"chat_template"},
    {"sharegpt"},
    {"completion"},
    {"input_output"},
    {"pretrain"},
    {"user_defined"},
    {"llama_factory"},
    {"prompt_completion"},
    {"", 0},
    {"alpaca:chatml"},
    {"alpaca:phi"},
    {"alpaca_chat"},
    {"alpaca_chat.load_concise"},
    {"alpaca_chat.load_qa"},
    {"alpaca_chat.load_camel_ai"},
    {"alpaca_chat.load_no_prompt"},
    {"alpaca_instruct.load_no_prompt"},
    {"alpaca_w_system"},
    {"alpaca_w_system.load_instruct"},
    {"alpaca_w_system.load_chat"},
    {"alpaca_w_system.load_open_orca"},
    {"alpaca_w_system.load_open_orca_chatml"},
    {"gpteacher"},
    {"gpteacher:*"},
    {"oasst"},
    {"oasst:*"},
    {"jeopardy"},
    {"jeopardy:*"},
    {"reflection"},
    {"reflection:*"},
    {"explainchoice"},
    {"explainchoice:*"},
    {"concisechoice"},
    {"concisechoice:*"},
    {"summarizetldr"},
    {"summarizetldr:*"},
    {"context_qa"},
    {"context_qa.load_v2"},
    {"context_qa.load_404"},
    {"creative_acr.load_answer"},
    {"creative_acr.load_critique"},
    {"creative_acr.load_revise"},
    {"metharme"},
    {"orcamini"},
    {"pygmalion"},
    {"stepwise_supervised"},
    // Types of preference data; `rl` names the objective they are for.
    {"chatml.argilla"},
    {"chatml.argilla_chat"},
    {"chatml.icr"},
    {"chatml.intel"},
    {"chatml.prompt_pairs"},
    {"chatml.ultra"},
    {"chatml"},
    {"llama3.argilla"},
    {"llama3.argilla_chat"},
    {"llama3.icr"},
    {"llama3.intel"},
    {"llama3.prompt_pairs"},
    {"llama3.ultra"},
    {"llama3"},
    {"zephyr.nectar"},
    {"passthrough"},
    {"chat_template.argilla"},
    {"chat_template.argilla_chat"},
    {"bradley_terry.chat_template"},
    {"alpaca:*", kNotBuilt, "unknown style; use instruct, chat, chatml or phi"},
    {"chat_template.*", kNotBuilt,
     "not supported; use chat_template, or chat_template.argilla_chat for preferences"},
    {"creative_acr*", kNotBuilt, "write creative_acr.load_answer, .load_critique or .load_revise"},
    {"llama2_chat*", kNotBuilt,
     "its masks fit only one tokenizer; write type: sharegpt, which accepts the same rows"},
    {"_synthetic", kNotBuilt, "synthetic data are not supported; tessera bench train uses random tokens"},
    {"bradley_terry*", kNotBuilt, "write bradley_terry.chat_template"},
    {"ebft_*", kNotBuilt, "energy-based training is not supported yet"},
    {"sharegpt.*", kNotBuilt, kUseChatTemplate},
    {"messages*", kNotBuilt, kUseChatTemplate},
    // A dotted name is a Python module of the user's own.
    {"*.*", kNotBuilt,
     "custom formats (Python modules) cannot be loaded; convert the rows to chat_template or input_output, "
     "or describe them with a map"},
};
constexpr Choice kObjectives[] = {
    {""},
    {"dpo"},
    {"ipo"},
    {"orpo"},
    {"kto"},
    {"simpo"},
    {"grpo", kNotBuilt, "training with rewards is not supported yet"},
    {"gdpo", kNotBuilt, "training with rewards is not supported yet"},
    {"ebft", kNotBuilt, "energy-based training is not supported yet"},
};
constexpr std::string_view kBringTemplate =
    "not supported; use tokenizer_default, or jinja with chat_template_jinja";
constexpr Choice kChatTemplates[] = {
    {"tokenizer_default"},
    {"chatml"},
    {"llama3"},
    {"mistral"},
    {"alpaca"},
    {"jinja"},
    {""},
    {"aya"},
    {"cohere"},
    {"deepseek_v2"},
    {"deepseek_v3"},
    {"exaone"},
    {"exaone4"},
    {"falcon_h1"},
    {"gemma"},
    {"gemma3"},
    {"gemma3n"},
    {"gemma4"},
    {"gemma4_unified"},
    {"jamba"},
    {"llama4"},
    {"metharme"},
    {"mistral_v1"},
    {"mistral_v2v3"},
    {"mistral_v3_tekken"},
    {"mistral_v7_tekken"},
    {"nemotron_h"},
    {"phi_3"},
    {"phi_35"},
    {"phi_4"},
    {"qwen2_vl"},
    {"qwen3"},
    {"qwen3_5"},
    {"qwen_25"},
    {"command_a", kNotBuilt, kBringTemplate},
    {"command_a_rag", kNotBuilt, kBringTemplate},
    {"command_a_tool_use", kNotBuilt, kBringTemplate},
    {"inst", kNotBuilt, kBringTemplate},
    {"llama3_2_vision", kNotBuilt, kBringTemplate},
    {"llava", kNotBuilt, kBringTemplate},
    {"pixtral", kNotBuilt, kBringTemplate},
    {"tokenizer_default_fallback_*"},
    {"tokenizer_default.*"},
};
constexpr Choice kTasks[] = {
    {"causal_lm", as_int(Task::CausalLm)},
    {"classification", as_int(Task::Classification)},
    {"sequence_classification", as_int(Task::Classification)},
    {"seq2seq", as_int(Task::Seq2Seq)},
    {"seq2seq_lm", as_int(Task::Seq2Seq)},
    {"token_classification", kNotBuilt, "labels of single tokens are not supported yet"},
    {"masked_lm", as_int(Task::MaskedLm)},
};
constexpr Choice kProblemTypes[] = {
    {"single_label_classification"}, {"multi_label_classification"}, {"regression"}, {""}};
constexpr Choice kSpecialTokens[] = {
    {"pad_token"},
    {"bos_token"},
    {"eos_token"},
    {"unk_token"},
};

const Key<Recipe> kRecipeKeys[] = {
    // Model
    {"base_model", &Recipe::base_model},
    {"tokenizer_config", &Recipe::tokenizer_config},
    {"chat_template", &Recipe::chat_template, 0, 0, kChatTemplates},
    {"chat_template_jinja", &Recipe::chat_template_jinja},
    {"chat_template_kwargs", &Recipe::chat_template_kwargs},
    {"eot_tokens", &Recipe::eot_tokens},
    {"special_tokens", &Recipe::special_tokens, 0, 0, kSpecialTokens},
    {"added_tokens_overrides", &Recipe::added_tokens_overrides},
    {"additional_special_tokens", &Recipe::additional_special_tokens},
    {"tokens", &Recipe::tokens},
    {"resize_token_embeddings_to_32x", &Recipe::resize_token_embeddings_to_32x},
    {"mean_resizing_embeddings", &Recipe::mean_resizing_embeddings},
    {"shrink_embeddings", &Recipe::shrink_embeddings},
    {"revision_of_model", &Recipe::revision_of_model},
    {"random_init", &Recipe::random_init},
    {"model_config", &Recipe::model_config},
    {"task", enum_field<&Recipe::task>, 0, 0, kTasks},
    {"num_labels", &Recipe::num_labels, 0, 1 << 20},
    {"label_names", &Recipe::label_names},
    {"problem_type", &Recipe::problem_type, 0, 0, kProblemTypes},
    {"mlm_probability", &Recipe::mlm_probability, kTiny, 1},
    {"mask_replace_prob", &Recipe::mask_replace_prob, 0, 1},
    {"random_replace_prob", &Recipe::random_replace_prob, 0, 1},
    {"whole_word_mask", &Recipe::whole_word_mask},
    // Data
    {"datasets", &Recipe::datasets},
    {"test_datasets", &Recipe::test_datasets},
    {"rl", &Recipe::rl, 0, 0, kObjectives},
    {"val_set_size", &Recipe::val_set_size, 0, 1e12},
    {"streaming", &Recipe::streaming},
    {"streaming_multipack_buffer_size", &Recipe::streaming_multipack_buffer_size, 1, 1e9},
    {"pretrain_multipack_attn", &Recipe::pretrain_multipack_attn},
    {"sequence_len", &Recipe::sequence_len, 1, kMaxSequence},
    {"eval_sequence_len", &Recipe::eval_sequence_len, 0, kMaxSequence},
    {"excess_length_strategy", enum_field<&Recipe::excess_length_strategy>, 0, 0, kExcessLength},
    {"min_sample_len", &Recipe::min_sample_len, 0, kMaxSequence},
    {"sample_packing", &Recipe::sample_packing},
    {"eval_sample_packing", &Recipe::eval_sample_packing},
    {"sample_packing_sequentially", &Recipe::sample_packing_sequentially},
    {"group_by_length", &Recipe::group_by_length},
    {"train_on_inputs", &Recipe::train_on_inputs},
    {"answer_border", &Recipe::answer_border, 0, 0, kAnswerBorders},
    {"shuffle_merged_datasets", &Recipe::shuffle_merged_datasets},
    {"mix_strategy", &Recipe::mix_strategy, 0, 0, kMixStrategies},
    {"mix_temperature", &Recipe::mix_temperature, 0, 1e6},
    {"dataset_exact_deduplication", &Recipe::dataset_exact_deduplication},
    {"dataset_near_deduplication", &Recipe::dataset_near_deduplication, 0, 1},
    {"dataset_prepared_path", &Recipe::dataset_prepared_path},
    {"on_bad_line", &Recipe::on_bad_line, 0, 0, kOnBadLine},
    {"max_bad_lines", &Recipe::max_bad_lines, 0, 1e12},
    // Training
    {"micro_batch_size", &Recipe::micro_batch_size, 1, 65536},
    {"gradient_accumulation_steps", &Recipe::gradient_accumulation_steps, 1, 1e6},
    {"global_batch_size", &Recipe::global_batch_size, 0, 1e12},
    {"num_epochs", &Recipe::num_epochs, kTiny, 1e6},
    {"max_steps", &Recipe::max_steps, 0, kMaxSteps},
    {"learning_rate", &Recipe::learning_rate, 0, 1e3},
    {"lr_scaling", enum_field<&Recipe::lr_scaling>, 0, 0, kLrScalings},
    {"base_batch_size", &Recipe::base_batch_size, 0, 1e12},
    {"optimizer", enum_field<&Recipe::optimizer>, 0, 0, kOptimizers},
    {"optimizer_args", &Recipe::optimizer_args, 0, 0, kOptimizerArgs},
    {"optim_target_modules", &Recipe::optim_target_modules},
    {"optimizer_state_dtype", enum_field<&Recipe::optimizer_state_dtype>, 0, 0, kStateTypes},
    {"lr_scheduler", enum_field<&Recipe::lr_scheduler>, 0, 0, kSchedulers},
    {"cosine_min_lr_ratio", &Recipe::cosine_min_lr_ratio, 0, 1},
    {"cosine_constant_lr_ratio", &Recipe::cosine_constant_lr_ratio, 0, 1},
    {"lr_quadratic_warmup", &Recipe::lr_quadratic_warmup},
    {"lr_cycles", &Recipe::lr_cycles, 0, 1e6},
    {"lr_end", &Recipe::lr_end, 0, 1e3},
    {"lr_power", &Recipe::lr_power, 0, 1e3},
    {"lr_timescale", &Recipe::lr_timescale, 0, kMaxSteps},
    {"lr_decay_steps", &Recipe::lr_decay_steps, 0, kMaxSteps},
    {"lr_stable_steps", &Recipe::lr_stable_steps, 0, kMaxSteps},
    {"lr_warmup_type", enum_field<&Recipe::lr_warmup_type>, 0, 0, kWarmupRamps},
    {"lr_decay_type", enum_field<&Recipe::lr_decay_type>, 0, 0, kRamps},
    {"lr_div_factor", &Recipe::lr_div_factor, 1, 1e12},
    {"lr_final_div_factor", &Recipe::lr_final_div_factor, 1, 1e12},
    {"lr_range_test_step_size", &Recipe::lr_range_test_step_size, 1, kMaxSteps},
    {"lr_range_test_step_rate", &Recipe::lr_range_test_step_rate, 0, 1e9},
    {"lr_range_test_staircase", &Recipe::lr_range_test_staircase},
    {"lr_range_test_max_lr", &Recipe::lr_range_test_max_lr, 0, 1e3},
    {"lr_min", &Recipe::lr_min, 0, 1e3},
    {"lr_plateau_factor", &Recipe::lr_plateau_factor, 0, kBelowOne},
    {"lr_plateau_patience", &Recipe::lr_plateau_patience, 0, kMaxSteps},
    {"lr_plateau_threshold", &Recipe::lr_plateau_threshold, 0, 1e12},
    {"lr_plateau_threshold_mode", enum_field<&Recipe::lr_plateau_threshold_mode>, 0, 0, kPlateauModes},
    {"lr_plateau_cooldown", &Recipe::lr_plateau_cooldown, 0, kMaxSteps},
    {"jagged_restart_steps", &Recipe::jagged_restart_steps, 0, kMaxSteps},
    {"jagged_restart_warmup_steps", &Recipe::jagged_restart_warmup_steps, 1, kMaxSteps},
    {"jagged_restart_anneal_steps", &Recipe::jagged_restart_anneal_steps, 1, kMaxSteps},
    {"embedding_lr", &Recipe::embedding_lr, 0, 1e3},
    {"embedding_lr_scale", &Recipe::embedding_lr_scale, 0, 1e6},
    {"lr_groups", &Recipe::lr_groups},
    {"loraplus_lr_ratio", &Recipe::loraplus_lr_ratio, 0, 1e6},
    {"neftune_noise_alpha", &Recipe::neftune_noise_alpha, 0, 1e6},
    {"label_smoothing_factor", &Recipe::label_smoothing_factor, 0, kBelowOne},
    {"z_loss_coef", &Recipe::z_loss_coef, 0, 1e3},
    {"warmup_ratio", &Recipe::warmup_ratio, 0, 1},
    {"warmup_steps", &Recipe::warmup_steps, 0, kMaxSteps},
    {"weight_decay", &Recipe::weight_decay, 0, 1e3},
    {"decay_norm_and_bias", &Recipe::decay_norm_and_bias},
    {"max_grad_norm", &Recipe::max_grad_norm, 0, 1e12},
    {"update_in_backward", &Recipe::update_in_backward},
    {"gradient_noise_steps", &Recipe::gradient_noise_steps, 0, kMaxSteps},
    {"adam_beta1", &Recipe::adam_beta1, 0, kBelowOne},
    {"adam_beta2", &Recipe::adam_beta2, 0, kBelowOne},
    {"adam_epsilon", &Recipe::adam_epsilon, 0, 1},
    {"dtype", enum_field<&Recipe::dtype>, 0, 0, kDtypes},
    {"pure_bf16", &Recipe::pure_bf16},
    {"fp8", &Recipe::fp8},
    {"loss_scale", &Recipe::loss_scale, 0, 1e38},
    {"initial_scale_power", &Recipe::initial_scale_power, 0, 64},
    {"loss_scale_window", &Recipe::loss_scale_window, 1, kMaxSteps},
    {"min_loss_scale", &Recipe::min_loss_scale, kTiny, 1e38},
    {"gradient_checkpointing", enum_field<&Recipe::gradient_checkpointing>, 0, 0, kCheckpointing},
    {"gradient_checkpointing_every", &Recipe::gradient_checkpointing_every, 1, 1e6},
    {"activation_offloading", enum_field<&Recipe::activation_offloading>, 0, 0, kActivationOffloading},
    {"unfrozen_parameters", &Recipe::unfrozen_parameters},
    {"seed", &Recipe::seed, 0, kMaxSeed},
    {"deterministic", &Recipe::deterministic},
    {"router_aux_loss_coef", &Recipe::router_aux_loss_coef, 0, 1e6},
    {"router_z_loss_coef", &Recipe::router_z_loss_coef, 0, 1e6},
    // Output
    {"output_dir", &Recipe::output_dir},
    {"logging_steps", &Recipe::logging_steps, kTiny, kMaxSteps},
    {"eval_strategy", enum_field<&Recipe::eval_strategy>, 0, 0, kCadences},
    {"eval_steps", &Recipe::eval_steps, 0, kMaxSteps},
    {"evals_per_epoch", &Recipe::evals_per_epoch, 0, 1e6},
    {"early_stopping_patience", &Recipe::early_stopping_patience, 0, kMaxSteps},
    {"early_stopping_threshold", &Recipe::early_stopping_threshold, 0, 1e12},
    {"load_best_model_at_end", &Recipe::load_best_model_at_end},
    {"metric_for_best_model", &Recipe::metric_for_best_model},
    {"eval_tasks", &Recipe::eval_tasks},
    {"eval_tasks_data", &Recipe::eval_tasks_data},
    {"eval_tasks_limit", &Recipe::eval_tasks_limit, 0, 1e12},
    {"eval_tasks_num_fewshot", &Recipe::eval_tasks_num_fewshot, 0, 1000},
    {"eval_tasks_apply_chat_template", &Recipe::eval_tasks_apply_chat_template},
    {"save_final", &Recipe::save_final},
    {"save_dtype", enum_field<&Recipe::save_dtype>, 0, 0, kSaveTypes},
    {"save_strategy", enum_field<&Recipe::save_strategy>, 0, 0, kSaveCadences},
    {"save_steps", &Recipe::save_steps, 0, kMaxSteps},
    {"saves_per_epoch", &Recipe::saves_per_epoch, 0, 1e6},
    {"save_minutes", &Recipe::save_minutes, 0, 1e6},
    {"save_total_limit", &Recipe::save_total_limit, 1, 1e6},
    {"resume_from_checkpoint", &Recipe::resume_from_checkpoint},
    {"auto_resume_from_checkpoints", &Recipe::auto_resume_from_checkpoints},
    {"async_save", &Recipe::async_save},
    {"on_save_error", enum_field<&Recipe::on_save_error>, 0, 0, kSaveErrorActions},
    {"save_only_model", &Recipe::save_only_model},
    {"allow_data_change", &Recipe::allow_data_change},
    {"overwrite_output_dir", &Recipe::overwrite_output_dir},
    // Trackers
    {"use_wandb", &Recipe::use_wandb},
    {"wandb_project", &Recipe::wandb_project},
    {"wandb_entity", &Recipe::wandb_entity},
    {"wandb_name", &Recipe::wandb_name},
    {"wandb_run_id", &Recipe::wandb_run_id},
    {"wandb_mode", &Recipe::wandb_mode},
    {"prometheus_file", &Recipe::prometheus_file},
    {"use_mlflow", &Recipe::use_mlflow},
    {"mlflow_tracking_uri", &Recipe::mlflow_tracking_uri},
    {"mlflow_experiment_name", &Recipe::mlflow_experiment_name},
    {"mlflow_run_name", &Recipe::mlflow_run_name},
    {"use_otel_metrics", &Recipe::use_otel_metrics},
    {"cluster", &Recipe::cluster},
    // Upload
    {"hub_model_id", &Recipe::hub_model_id},
    {"push_to_hub", &Recipe::push_to_hub},
    {"hub_private_repo", &Recipe::hub_private_repo},
    {"hub_revision", &Recipe::hub_revision},
    {"hub_strategy", enum_field<&Recipe::hub_strategy>, 0, 0, kHubStrategies},
    // Guards
    {"loss_watchdog_threshold", &Recipe::loss_watchdog_threshold, 0, 1e12},
    {"loss_watchdog_patience", &Recipe::loss_watchdog_patience, 1, kMaxSteps},
    {"spike_action", enum_field<&Recipe::spike_action>, 0, 0, kSpikeActions},
    {"spike_threshold", &Recipe::spike_threshold, 1, 1e6},
    {"replica_check_steps", &Recipe::replica_check_steps, 0, kMaxSteps},
    {"strict_finite", &Recipe::strict_finite},
    // Adapter
    {"adapter", enum_field<&Recipe::adapter>, 0, 0, kAdapters},
    {"lora_model_dir", &Recipe::lora_model_dir},
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
    // Parallelism
    {"device", &Recipe::device, 0, 0, kDevices},
    {"dp_replicate_size", &Recipe::dp_replicate_size, 1, kMaxRanks},
    {"dp_shard_size", &Recipe::dp_shard_size, -1, kMaxRanks},
    {"tensor_parallel_size", &Recipe::tensor_parallel_size, 1, kMaxRanks},
    {"async_tensor_parallel", &Recipe::async_tensor_parallel},
    {"context_parallel_size", &Recipe::context_parallel_size, 1, kMaxRanks},
    {"context_parallel_method", enum_field<&Recipe::context_parallel_method>, 0, 0, kContextParallelMethods},
    {"pipeline_parallel_size", &Recipe::pipeline_parallel_size, 1, kMaxPipeline},
    {"pipeline_schedule", enum_field<&Recipe::pipeline_schedule>, 0, 0, kPipelineSchedules},
    {"pipeline_stages_per_rank", &Recipe::pipeline_stages_per_rank, 0, kMaxPipeline},
    {"pipeline_split", &Recipe::pipeline_split, 1, kMaxPipeline},
    {"pipeline_split_by", enum_field<&Recipe::pipeline_split_by>, 0, 0, kSplitBases},
    {"pipeline_microbatches", &Recipe::pipeline_microbatches, 0, 1e6},
    {"expert_parallel_size", &Recipe::expert_parallel_size, 1, kMaxRanks},
    {"zero_stage", enum_field<&Recipe::zero_stage>, 0, 0, kZeroStages},
    {"offload_optimizer_device", enum_field<&Recipe::offload_optimizer_device>, 0, 0,
     kOptimizerOffloadDevices},
    {"offload_optimizer_nvme_path", &Recipe::offload_optimizer_nvme_path},
    {"offload_optimizer_buffer_count", &Recipe::offload_optimizer_buffer_count, 1, 4096},
    {"aio_block_size", &Recipe::aio_block_size, 1, 1 << 30},
    {"aio_queue_depth", &Recipe::aio_queue_depth, 1, 1024},
    {"offload_param_device", enum_field<&Recipe::offload_param_device>, 0, 0, kParamOffloadDevices},
    {"zero_hpz_partition_size", &Recipe::zero_hpz_partition_size, 1, kMaxRanks},
    {"zero_quantized_weights", &Recipe::zero_quantized_weights},
    {"zero_quantized_gradients", &Recipe::zero_quantized_gradients},
    {"ddp_timeout", &Recipe::collective_timeout_s, kTiny, 1e9},
};

const Key<DatasetConfig> kDatasetKeys[] = {
    {"path", &DatasetConfig::path},
    {"type", &DatasetConfig::type, 0, 0, kDatasetTypes},
    {"ds_type", &DatasetConfig::ds_type, 0, 0, kDsTypes},
    {"name", &DatasetConfig::name},
    {"revision", &DatasetConfig::revision},
    {"data_files", &DatasetConfig::data_files},
    {"split", &DatasetConfig::split},
    {"field", &DatasetConfig::field},
    {"field_messages", &DatasetConfig::field_messages},
    {"field_system", &DatasetConfig::field_system},
    {"field_instruction", &DatasetConfig::field_instruction},
    {"field_input", &DatasetConfig::field_input},
    {"field_output", &DatasetConfig::field_output},
    {"chat_template", &DatasetConfig::chat_template, 0, 0, kChatTemplates},
    {"chat_template_jinja", &DatasetConfig::chat_template_jinja},
    {"message_property_mappings", &DatasetConfig::message_property_mappings},
    {"roles", &DatasetConfig::roles},
    {"roles_to_train", &DatasetConfig::roles_to_train},
    {"message_field_training", &DatasetConfig::message_field_training},
    {"train_on_eos", &DatasetConfig::train_on_eos, 0, 0, kTrainOn},
    {"train_on_eot", &DatasetConfig::train_on_eot, 0, 0, kTrainOn},
    {"message_field_training_detail", &DatasetConfig::message_field_training_detail},
    {"drop_system_message", &DatasetConfig::drop_system_message},
    {"field_tools", &DatasetConfig::field_tools},
    {"field_history", &DatasetConfig::field_history},
    {"field_thinking", &DatasetConfig::field_thinking},
    {"template_thinking_key", &DatasetConfig::template_thinking_key},
    {"split_thinking", &DatasetConfig::split_thinking},
    {"system_prompt", &DatasetConfig::system_prompt},
    {"system_format", &DatasetConfig::system_format},
    {"format", &DatasetConfig::format},
    {"no_input_format", &DatasetConfig::no_input_format},
    {"field_prompt", &DatasetConfig::field_prompt},
    {"field_chosen", &DatasetConfig::field_chosen},
    {"field_rejected", &DatasetConfig::field_rejected},
    {"field_completion", &DatasetConfig::field_completion},
    {"field_label", &DatasetConfig::field_label},
    {"field_text_pair", &DatasetConfig::field_text_pair},
    {"field_target", &DatasetConfig::field_target},
    {"prompt_format", &DatasetConfig::prompt_format},
    {"chosen_format", &DatasetConfig::chosen_format},
    {"rejected_format", &DatasetConfig::rejected_format},
    {"completion_format", &DatasetConfig::completion_format},
    {"step_separator", &DatasetConfig::step_separator},
    {"weight", &DatasetConfig::weight, 0.0, 1e9},
    {"weight_from_step", &DatasetConfig::weight_from_step},
    {"skip", &DatasetConfig::skip, 0, 1e15},
    {"shards", &DatasetConfig::shards, 1, 1e9},
    {"shards_idx", &DatasetConfig::shards_idx, 0, 1e9},
};

const Key<LrGroup> kLrGroupKeys[] = {
    {"name", &LrGroup::name},
    {"modules", &LrGroup::modules},
    {"lr", &LrGroup::lr, 0, 1e3},
};

constexpr std::string_view kRequired[] = {"base_model", "datasets", "learning_rate"};

}  // namespace

std::span<const Key<Recipe>> recipe_keys() { return kRecipeKeys; }
std::span<const Key<DatasetConfig>> dataset_keys() { return kDatasetKeys; }
std::span<const Key<LrGroup>> lr_group_keys() { return kLrGroupKeys; }
std::span<const std::string_view> required_recipe_keys() { return kRequired; }

}  // namespace tessera::config

#include "tessera/train/setup/setup.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <utility>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "tessera/comm/bootstrap.h"
#include "tessera/config/parallelism.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/device/device.h"
#include "tessera/device/device_event.h"
#include "tessera/device/torch_dtype.h"
#include "tessera/io/model_files.h"
#include "tessera/models/common/load.h"
#include "tessera/models/common/parallelize.h"
#include "tessera/models/common/quantize_layers.h"
#include "tessera/models/parallelize_plan.h"
#include "tessera/models/registry.h"
#include "tessera/nn/e4m3_layers.h"
#include "tessera/parallel/activation_offload.h"
#include "tessera/parallel/expert_parallel/expert_parallel.h"
#include "tessera/parallel/tensor_parallel/tensor_parallel.h"
#include "tessera/peft/adapter_files.h"
#include "tessera/peft/adapter_start.h"
#include "tessera/peft/carried_parameters.h"
#include "tessera/train/setup/freeze.h"
#include "tessera/train/setup/optimizer_targets.h"
#include "tessera/train/setup/parameter_rates.h"
#include "tessera/train/setup/recipe_tokenizer.h"

namespace tessera::train {
namespace {

// Translates the recipe's ZeRO stage, dtypes and offloading into options of fully_shard().
parallel::ShardOptions shard_options(const config::Recipe& recipe) {
  parallel::ShardOptions options;
  options.reshard_after_forward = recipe.zero_stage == config::ZeroStage::Zero3;
  // The micro-batches of a pipeline are in flight together, so their gradients are reduced once, at the end
  // of the step.
  options.reduce_every_backward =
      recipe.pipeline_parallel_size == 1 &&
      (recipe.zero_stage == config::ZeroStage::Zero2 || recipe.zero_stage == config::ZeroStage::Zero3);
  // Gradients are summed over the ranks, not averaged: the loss is already divided by the label tokens of the
  // whole step.
  options.average_gradients = false;
  // Every rank fills its own tiles from the files (set_up_model()).
  options.broadcast_initial_values = false;
  options.offload_parameters = recipe.offload_param_device == config::OffloadDevice::Cpu;
  options.reports_gradients = recipe.update_in_backward;
  options.mixed_precision.codes_parameters = recipe.zero_quantized_weights;
  options.mixed_precision.codes_gradients = recipe.zero_quantized_gradients;
  const RunTypes types = run_types(recipe);
  // Gradients may stay in bfloat16 where a step has one backward, which leaves nothing to add up. For
  // adapters this would save little, as their gradients are small. Float16 would round the gradients of the
  // scaled loss too soon: the scale is taken off only at the update.
  options.mixed_precision.keeps_narrow_gradients =
      types.compute == at::kBFloat16 && recipe.gradient_accumulation_steps == 1 &&
      recipe.pipeline_microbatches <= 1 && recipe.adapter == config::AdapterKind::None;
  if (types.compute == at::kBFloat16) options.mixed_precision.reduce_dtype = at::kFloat;
  if (types.compute != types.stored) {
    options.mixed_precision.param_dtype = types.compute;
    options.mixed_precision.reduce_dtype = types.stored;
    // The models keep the dtypes between their blocks themselves.
    options.mixed_precision.cast_forward_inputs = false;
  }
  return options;
}

// Says that the recipe's offload keys have no effect, for a run that computes on the host.
void tell_offloading_is_idle(const config::Recipe& recipe) {
  std::vector<std::string> keys;
  if (recipe.activation_offloading != config::Offloading::Off) keys.push_back("activation_offloading");
  if (recipe.offload_optimizer_device == config::OffloadDevice::Cpu)
    keys.push_back("offload_optimizer_device");
  if (recipe.offload_param_device != config::OffloadDevice::None) keys.push_back("offload_param_device");
  if (keys.empty()) return;
  log::info(join(keys, ", ") + (keys.size() == 1 ? " has" : " have") +
            " no effect: the run computes on the CPU");
}

std::vector<std::string> shared_modules(const models::CausalLM& model) {
  // A module whose weight another name reads too cannot be trained apart from that.
  std::vector<std::string> modules;
  for (const auto& [alias, owner] : model.tied_modules()) modules.insert(modules.end(), {alias, owner});
  return modules;
}

}  // namespace

ParallelDims parallel_dims(const config::Recipe& recipe, int64_t world_size) {
  ParallelDims dims = config::validate_parallelism(recipe, world_size);
  if (recipe.zero_quantized_gradients) dims.machine = 0;
  if (recipe.zero_stage == config::ZeroStage::Ddp) {
    dims.dp_replicate *= dims.dp_shard;
    dims.dp_shard = 1;
  }
  return dims;
}

at::Device device_of(const config::Recipe& recipe) {
  try {
    return resolve_device(recipe.device, comm::launch_info().local_rank);
  } catch (Error& error) {
    if (recipe.key_places.contains("device")) error.at(recipe.place_of({"device"}));
    throw;
  }
}

RunTypes run_types(const config::Recipe& recipe) {
  switch (recipe.dtype) {
    case config::ComputeType::Float64: return {at::kDouble, at::kDouble};
    case config::ComputeType::BFloat16: return {recipe.pure_bf16 ? at::kBFloat16 : at::kFloat, at::kBFloat16};
    case config::ComputeType::Float16: return {at::kFloat, at::kHalf};
    default: return {at::kFloat, at::kFloat};
  }
}

namespace {

// Calls f(key, option) for each LoRA key and the option that it stands for.
template <class Keys, class Options, class F>
void for_each_lora_key(Keys& keys, Options& options, const F& f) {
  f(keys.lora_r, options.rank);
  f(keys.lora_alpha, options.alpha);
  f(keys.lora_dropout, options.dropout);
  f(keys.peft_use_rslora, options.use_rslora);
  f(keys.peft_use_dora, options.use_dora);
  f(keys.lora_bias, options.has_bias);
  f(keys.peft_init_lora_weights, options.start);
  f(keys.peft_trainable_token_indices, options.trainable_token_indices);
  f(keys.ia3_feedforward_modules, options.feedforward_modules);
  f(keys.vera_r, options.vera.rank);
  f(keys.vera_d_initial, options.vera.d_initial);
  f(keys.vera_projection_prng_key, options.vera.projection_prng_key);
  f(keys.vera_save_projection, options.vera.save_projection);
  f(keys.num_virtual_tokens, options.prompt.num_virtual_tokens);
  f(keys.prompt_tuning_init_text, options.prompt.init_text);
  f(keys.lora_target_linear, options.all_linear);
  f(keys.lora_target_regex, options.target_regex);
  f(keys.lora_target_modules, options.target_modules);
  f(keys.lora_target_parameters, options.target_parameters);
  f(keys.lora_exclude_regex, options.exclude_regex);
  f(keys.lora_exclude_modules, options.exclude_modules);
  f(keys.peft_layers_to_transform, options.layers_to_transform);
  f(keys.peft_layers_pattern, options.layers_pattern);
  f(keys.lora_rank_pattern, options.rank_pattern);
  f(keys.lora_alpha_pattern, options.alpha_pattern);
  f(keys.lora_modules_to_save, options.modules_to_save);
}

}  // namespace

peft::LoraOptions lora_options(const config::LoraConfig& keys) {
  peft::LoraOptions options;
  for_each_lora_key(keys, options, [](const auto& key, auto& option) { option = key; });
  // Torch's name for a module whose activations are recomputed, which recipes for FSDP have in their names.
  constexpr std::string_view kWrapper = "._checkpoint_wrapped_module";
  for (std::string& name : options.target_parameters) {
    if (const size_t at = name.find(kWrapper); at != std::string::npos) name.erase(at, kWrapper.size());
  }
  return options;
}

peft::LoraOptions adapter_options(const config::Recipe& recipe) {
  peft::LoraOptions options = lora_options(recipe);
  options.is_of_classifier = recipe.task == config::Task::Classification;
  options.is_seq2seq = recipe.task == config::Task::Seq2Seq;
  options.is_masked_lm = recipe.task == config::Task::MaskedLm;
  if (recipe.adapter == config::AdapterKind::Ia3) options.method = peft::AdapterMethod::Ia3;
  if (recipe.adapter == config::AdapterKind::LnTuning) options.method = peft::AdapterMethod::Norms;
  if (recipe.adapter == config::AdapterKind::Vera) options.method = peft::AdapterMethod::Vera;
  if (recipe.adapter == config::AdapterKind::PromptTuning) options.method = peft::AdapterMethod::Prompt;
  if (recipe.prompt_tuning_init != "text") options.prompt.init_text.clear();
  if (options.method == peft::AdapterMethod::Norms) options.all_linear = false;
  if (options.method != peft::AdapterMethod::Lora) {
    // Keys without effect, of which the recipe's check has warned.
    const peft::LoraOptions defaults;
    options.use_dora = defaults.use_dora;
    options.has_bias = defaults.has_bias;
    options.start = defaults.start;
    options.trainable_token_indices.clear();
    options.target_parameters.clear();
  }
  return options;
}

config::Recipe with_lora_options(config::Recipe recipe, const peft::LoraOptions& options) {
  for_each_lora_key(recipe, options, [](auto& key, const auto& option) { key = option; });
  return recipe;
}

namespace {

// Returns the value of `work()`. An error of it names the line of the first of these keys that is given.
template <class Work>
decltype(auto) at_place_of(const config::Recipe& recipe, std::initializer_list<std::string_view> keys,
                           Work&& work) {
  try {
    return work();
  } catch (Error& error) {
    throw error.at(recipe.place_of(keys));
  }
}

// Runs `work`, which resolves the recipe's targets. Its Error(Config) is added to `problems` with the line of
// the key that it speaks of.
void attempt_targets(const config::Recipe& recipe, config::Problems& problems,
                     const std::function<void()>& work) {
  try {
    work();
  } catch (Error& error) {
    if (error.kind() != ErrorKind::Config) throw;
    const SourcePlace place =
        error.key().empty()
            ? recipe.place_of({"lora_target_modules", "lora_target_regex", "lora_target_linear", "adapter"})
            : recipe.place_of({error.key()});
    problems.add("adapter", place, error.at(place));
  }
}

bool same_names(std::vector<std::string> a, std::vector<std::string> b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  return a == b;
}

std::string describe_layers(const std::vector<std::string>& names) {
  return names.empty() ? "nothing"
                       : join(peft::kinds_of(names), ", ") + " (" + std::to_string(names.size()) + ")";
}

// Compares the LoRA keys that the recipe gives with the adapter that it continues; those that differ are
// added to `problems`.
void check_continued(const config::Recipe& recipe, const models::CausalLM& model,
                     const peft::AdapterConfig& adapter, config::Problems& problems) {
  const auto refuse = [&](const std::string& key, const std::string& got, const std::string& need) {
    const std::string what = "key '" + key + "': the adapter of lora_model_dir has another value";
    problems.add(key, recipe.place_of({key, "adapter"}),
                 recipe.error("LORA-CONTINUED", what, {key, "adapter"})
                     .got(got)
                     .need(need + ", as in " + adapter.source_file)
                     .hint("leave the key out: the adapter's own value applies"));
  };
  const auto hold = [&](const char* key, auto given, auto wanted) {
    if (!recipe.key_places.contains(key) || given == wanted) return;
    refuse(key, nlohmann::json(given).dump(), nlohmann::json(wanted).dump());
  };
  const peft::LoraOptions given = adapter_options(recipe);
  if (given.method != adapter.options.method) {
    refuse("adapter", "another kind of adapter", "that of the file");
    return;
  }
  if (!same_names(given.feedforward_modules, adapter.options.feedforward_modules))
    hold("ia3_feedforward_modules", given.feedforward_modules, adapter.options.feedforward_modules);
  hold("vera_r", given.vera.rank, adapter.options.vera.rank);
  hold("vera_projection_prng_key", given.vera.projection_prng_key, adapter.options.vera.projection_prng_key);
  hold("vera_save_projection", given.vera.save_projection, adapter.options.vera.save_projection);
  hold("num_virtual_tokens", given.prompt.num_virtual_tokens, adapter.options.prompt.num_virtual_tokens);
  hold("lora_r", given.rank, adapter.options.rank);
  hold("lora_alpha", given.alpha, adapter.options.alpha);
  hold("peft_use_rslora", given.use_rslora, adapter.options.use_rslora);
  hold("peft_use_dora", given.use_dora, adapter.options.use_dora);
  hold("lora_bias", given.has_bias, adapter.options.has_bias);
  if (!same_names(given.target_parameters, adapter.options.target_parameters))
    hold("lora_target_parameters", given.target_parameters, adapter.options.target_parameters);
  hold("peft_trainable_token_indices", given.trainable_token_indices,
       adapter.options.trainable_token_indices);
  hold("lora_rank_pattern", given.rank_pattern, adapter.options.rank_pattern);
  hold("lora_alpha_pattern", given.alpha_pattern, adapter.options.alpha_pattern);
  // Targets are compared by the layers that they mean, since PEFT writes names where a recipe says
  // lora_target_linear.
  const bool has_targets = given.all_linear || !given.target_regex.empty() || !given.target_modules.empty();
  const auto has = [&](const char* key) { return recipe.key_places.contains(key); };
  const bool has_saved = has("lora_modules_to_save");
  const bool has_exclusion = has("lora_exclude_modules") || has("lora_exclude_regex");
  const bool has_layers = has("peft_layers_to_transform");
  if (!has_targets && !has_saved && !has_exclusion && !has_layers) return;
  peft::LoraOptions asked = adapter.options;
  if (has_targets) {
    asked.all_linear = given.all_linear;
    asked.target_regex = given.target_regex;
    asked.target_modules = given.target_modules;
  }
  if (has_exclusion) {
    asked.exclude_regex = given.exclude_regex;
    asked.exclude_modules = given.exclude_modules;
  }
  if (has_layers) {
    asked.layers_to_transform = given.layers_to_transform;
    asked.layers_pattern = given.layers_pattern;
  }
  if (has_saved) asked.modules_to_save = given.modules_to_save;
  attempt_targets(recipe, problems, [&] {
    const auto found = peft::find_lora_targets(model, asked, shared_modules(model));
    const auto wanted = peft::find_lora_targets(model, adapter.options, shared_modules(model));
    if (!same_names(found.saved, wanted.saved)) {
      refuse("lora_modules_to_save", describe_layers(found.saved), describe_layers(wanted.saved));
    } else if (!same_names(found.adapted, wanted.adapted)) {
      refuse(recipe.first_given({"lora_target_modules", "lora_target_regex", "lora_target_linear",
                                 "lora_exclude_modules", "lora_exclude_regex", "peft_layers_to_transform"}),
             describe_layers(found.adapted), describe_layers(wanted.adapted));
    }
  });
}

// Finds the tokens whose embeddings a prompt begins with: those of its text, again and again.
void set_prompt_ids(peft::PromptOptions& prompt, const config::Recipe& recipe, config::Problems& problems) {
  const auto tokenizer = load_recipe_tokenizer(recipe, problems);
  std::vector<int32_t> ids;
  if (tokenizer) ids = tokenizer->encode(prompt.init_text, {.add_special_tokens = true});
  if (ids.empty()) {
    const char* const key = "prompt_tuning_init_text";
    problems.add(
        key, recipe.place_of({key}),
        recipe.error("PROMPT", tokenizer ? "the text has no tokens" : "no tokenizer reads the text", {key}));
    return;
  }
  for (int64_t i = 0; i < prompt.num_virtual_tokens; ++i)
    prompt.init_ids.push_back(ids[static_cast<size_t>(i) % ids.size()]);
}

// Puts the recipe's adapter on the model: a new one, or the one of lora_model_dir, of which only the dropout
// is the recipe's; then `files` become those of lora_model_dir.
AdapterSetup put_adapter(models::CausalLM& model, const config::Recipe& recipe,
                         std::shared_ptr<const io::ModelFiles>& files, config::Problems& problems) {
  AdapterSetup adapter;
  if (recipe.lora_model_dir.empty()) {
    adapter.options = adapter_options(recipe);
    if (!adapter.options.prompt.init_text.empty()) set_prompt_ids(adapter.options.prompt, recipe, problems);
    attempt_targets(recipe, problems, [&] {
      adapter.targets = peft::apply_lora(model, adapter.options, shared_modules(model));
    });
    return adapter;
  }
  peft::AdapterConfig continued = peft::read_adapter_config(recipe.lora_model_dir);
  files = std::make_shared<const io::ModelFiles>(peft::open_adapter(recipe.lora_model_dir));
  check_continued(recipe, model, continued, problems);
  continued.options.dropout = recipe.lora_dropout;
  continued.options.is_seq2seq = recipe.task == config::Task::Seq2Seq;
  continued.options.is_masked_lm = recipe.task == config::Task::MaskedLm;
  adapter.options = continued.options;
  adapter.targets = peft::apply_adapter(model, continued, *files, model.tied_modules());
  return adapter;
}

// Plans the stages of a pipeline; nothing for a run without one. `model` has its adapters already, as their
// work counts.
std::optional<parallel::PipelinePlan> plan_pipeline(const models::CausalLM& model,
                                                    const config::Recipe& recipe) {
  if (recipe.pipeline_parallel_size == 1) return std::nullopt;
  const int64_t default_stages = recipe.pipeline_schedule == PipelineKind::Interleaved ? 2 : 1;
  const int64_t stages =
      recipe.pipeline_stages_per_rank > 0 ? recipe.pipeline_stages_per_rank : default_stages;
  return at_place_of(
      recipe, {"pipeline_split", "pipeline_stages_per_rank", "pipeline_parallel_size", "pipeline_schedule"},
      [&] {
        return models::plan_pipeline(model, recipe.pipeline_parallel_size,
                                     {recipe.pipeline_schedule, stages, recipe.pipeline_split});
      });
}

void check_tensor_parallel(const models::CausalLM& model, const config::Recipe& recipe) {
  if (recipe.tensor_parallel_size == 1) return;
  at_place_of(recipe, {"tensor_parallel_size"}, [&] {
    parallel::check_tensor_parallel(model, models::tensor_parallel_plan(model), recipe.tensor_parallel_size);
  });
}

void check_expert_parallel(const models::CausalLM& model, const config::Recipe& recipe) {
  if (recipe.expert_parallel_size == 1) return;
  at_place_of(recipe, {"expert_parallel_size"},
              [&] { parallel::check_expert_parallel(model, recipe.expert_parallel_size); });
}

// Refuses random values for a text part alone: the rest of the whole model would be missing in the result.
void refuse_random_text_part(const config::Recipe& recipe, const models::ModelConfig& config) {
  if (!config.is_text_part) return;
  throw recipe.error("RANDOM-INIT", "a multimodal model cannot begin with random values", {"random_init"})
      .hint("make a folder whose config.json is the text_config alone");
}

// Warns, before anything is read, of a recipe that is meant for another model, or of a slip in base_model.
void warn_of_unused_routers(const config::Recipe& recipe, const models::ModelConfig& config) {
  if (config.num_experts > 0) return;
  const auto warn = [](const char* key) {
    log::warn(std::string("key '") + key + "' has no effect: the model has no experts");
  };
  if (recipe.router_aux_loss_coef.value_or(0.0) > 0.0) warn("router_aux_loss_coef");
  if (recipe.router_z_loss_coef > 0.0) warn("router_z_loss_coef");
}

models::QuantizeOptions quantize_options(const config::Recipe& recipe) {
  using Kind = models::QuantizeOptions::Kind;
  models::QuantizeOptions options;
  options.kind = recipe.load_in_4bit ? Kind::FourBit : recipe.load_in_8bit ? Kind::EightBit : Kind::None;
  if (recipe.bnb_4bit_quant_type == config::FourBitType::Fp4) options.four_bit = io::BlockKind::Fp4;
  options.double_quantization = recipe.bnb_4bit_use_double_quant;
  options.skipped = recipe.llm_int8_skip_modules;
  options.skipped.insert(options.skipped.end(), recipe.lora_modules_to_save.begin(),
                         recipe.lora_modules_to_save.end());
  options.experts = recipe.quantize_moe_experts;
  options.tensor_parallel_size = recipe.tensor_parallel_size;
  return options;
}

// Refuses a start that compares the weights before and after quantisation where the files hold the latter
// alone.
void check_start(const config::Recipe& recipe, const checkpoint::StoredTensors* files,
                 config::Problems& problems) {
  const char* const key = "peft_init_lora_weights";
  if (recipe.peft_init_lora_weights != "loftq" || files == nullptr || !models::holds_blocks(*files)) return;
  problems.add(key, recipe.place_of({key}),
               recipe
                   .error("LORA",
                          "LoftQ needs the weights from before quantisation, and the base's files hold "
                          "quantised ones",
                          {key})
                   .got("loftq")
                   .hint("write peft_init_lora_weights: true, or take the model that this one was made of"));
}

// Returns the recipe with the head of a classifier among lora_modules_to_save, as PEFT has it, and with what
// the files lack of the head.
config::Recipe with_saved_head(config::Recipe recipe, const models::CausalLM& model,
                               const checkpoint::StoredTensors* files) {
  if (recipe.task != config::Task::Classification || !recipe.lora_model_dir.empty()) return recipe;
  std::vector<std::string>& saved = recipe.lora_modules_to_save;
  for (const std::string& module : models::head_modules(model, files)) {
    if (std::ranges::count(saved, module) == 0) saved.push_back(module);
  }
  return recipe;
}

// Warns of the parameters of the head that the files of the base lack. Throws Error(Config) for a masked
// language model with an adapter, which would leave them random.
void warn_of_new_head(const config::Recipe& recipe, const std::vector<std::string>& added) {
  if (added.empty() || !recipe.lora_model_dir.empty()) return;
  const bool is_masked = recipe.task == config::Task::MaskedLm;
  if (is_masked && recipe.adapter != config::AdapterKind::None) {
    throw recipe
        .error("TASK",
               "the base model lacks the head of a masked language model, which an adapter does not train",
               {"adapter", "base_model"})
        .got("no " + join(added, ", "))
        .need("a base model with its head, or no adapter");
  }
  log::warn(std::string("the base model lacks the head of a ") +
            (is_masked ? "masked language model" : "classifier") +
            ", which begins with random values: " + join(added, ", "));
}

// Freezes all that unfrozen_parameters leaves out; nothing where the recipe has no such key.
void freeze_parameters(PlannedModel& planned, const config::Recipe& recipe, config::Problems& problems) {
  if (recipe.unfrozen_parameters.empty()) return;
  problems.attempt("unfrozen_parameters", recipe.place_of({"unfrozen_parameters"}), [&] {
    at_place_of(recipe, {"unfrozen_parameters"}, [&] {
      planned.trained_rows = freeze_all_but(*planned.model, planned.saved, recipe.unfrozen_parameters);
    });
  });
  if (!planned.trained_rows.empty() && recipe.weight_decay > 0.0) {
    log::warn(
        "weight_decay also pulls the rows that unfrozen_parameters leaves out towards 0, as in Axolotl; with "
        "weight_decay: 0 they stay unchanged");
  }
}

}  // namespace

ops::LossTerms loss_terms(const config::Recipe& recipe) {
  return {.label_smoothing = recipe.label_smoothing_factor, .z_loss_coef = recipe.z_loss_coef};
}

PlannedModel plan_model(const config::Recipe& given, const models::BaseModel& base,
                        config::Problems& problems) {
  config::Recipe recipe = given;
  const models::ModelConfig& config = base.config();
  PlannedModel planned;
  planned.model = models::build_model(config, run_types(recipe).stored);
  models::CausalLM& model = *planned.model;
  if (!config.training_note.empty()) log::warn(config.training_note);
  // [Note: order of the plan] The table of the base's files is made first, from the plain model with its
  // global shapes: stored_source() below reads through it. Adapters then freeze the base's parameters, and
  // their own table takes the place of the base's, as it is what the run saves. fp8 and the stages come last,
  // since both depend on all layers there are.
  planned.saved = models::state_dict_adapter(model);
  check_tensor_parallel(model, recipe);
  check_expert_parallel(model, recipe);
  at_place_of(recipe, {"context_parallel_size"},
              [&] { models::check_context_parallel(model, recipe.context_parallel_size); });
  warn_of_unused_routers(recipe, config);
  if (recipe.router_aux_loss_coef) model.set_router_aux_loss_coef(*recipe.router_aux_loss_coef);
  model.set_router_z_loss_coef(recipe.router_z_loss_coef);
  model.set_embedding_noise(recipe.neftune_noise_alpha);
  model.head().set_loss_terms(loss_terms(recipe));
  // Sources are asked in order. An adapter's files are inserted before the base's, and random values are
  // appended at the end for what neither has.
  std::vector<std::shared_ptr<const checkpoint::ParameterSource>> sources;
  std::shared_ptr<const checkpoint::StoredTensors> base_files;
  if (recipe.random_init) {
    refuse_random_text_part(recipe, config);
    planned.base_dtype = config.stored_dtype.value_or(DType::F32);
  } else {
    base_files = base.tensors();
    planned.files.push_back(base_files);
    const bool takes_new_head =
        recipe.task == config::Task::Classification || recipe.task == config::Task::MaskedLm;
    const auto added = models::check_tensors(model, *base_files, takes_new_head);
    warn_of_new_head(recipe, added);
    planned.base_dtype = checkpoint::main_dtype(*base_files);
    sources.push_back(checkpoint::stored_source(base_files, planned.saved));
  }
  // Made while base weights have their whole shapes; the one at the end knows the adapters' parameters.
  const auto seed = static_cast<uint64_t>(recipe.seed);
  sources.push_back(models::random_source(model, seed));
  freeze_parameters(planned, recipe, problems);
  std::unordered_map<std::string, checkpoint::CodedParameter> coded;
  if (recipe.adapter == config::AdapterKind::None) {
    planned.whole = base.whole();
  } else {
    recipe = with_saved_head(std::move(recipe), model, base_files.get());
    coded = at_place_of(recipe, {"tensor_parallel_size"}, [&] {
      return models::quantize_layers(model, planned.saved, base_files.get(), quantize_options(recipe));
    });
    check_start(recipe, base_files.get(), problems);
    std::shared_ptr<const io::ModelFiles> files;
    planned.adapter = put_adapter(model, recipe, files, problems);
    if (base.has_new_vocabulary() && files == nullptr)
      peft::carry_token_tables(model, models::token_tables(model), model.tied_modules(),
                               planned.adapter->targets);
    planned.saved = peft::adapter_table(model, planned.adapter->targets);
    if (files != nullptr) {
      planned.files.push_back(checkpoint::stored_tensors(files));
      sources.insert(sources.begin(), peft::adapter_source(model, planned.adapter->targets, files));
    }
  }
  if (recipe.fp8) {
    for (const auto& block : model.blocks()) nn::multiply_in_e4m3(*block);
  }
  std::vector<std::string> trained_names;
  for (const auto& entry : model.named_parameters()) {
    if (entry.value().requires_grad()) trained_names.push_back(entry.key());
  }
  warn_of_unused_rates(recipe, model.parameter_roles(), trained_names);
  at_place_of(recipe, {"optim_target_modules"},
              [&] { check_targets(recipe.optim_target_modules, trained_names); });
  planned.pipeline = plan_pipeline(model, recipe);
  sources.push_back(models::random_source(model, seed));
  planned.source = std::make_shared<checkpoint::SourceList>(std::move(sources));
  const auto plain = planned.source;
  if (!coded.empty()) {
    planned.source = checkpoint::coded_source(planned.source, base_files, std::move(coded));
  }
  // Adapters that begin with parts of the base read its values, also those that codes stand for.
  if (planned.adapter && recipe.lora_model_dir.empty()) {
    planned.source = peft::with_adapter_start(planned.source, model, planned.adapter->options,
                                              planned.adapter->targets, plain);
  }
  return planned;
}

TrainedModel set_up_model(const config::Recipe& recipe, const parallel::DeviceMesh& mesh) {
  config::Problems problems;
  PlannedModel planned = plan_model(recipe, open_recipe_base(recipe), problems);
  problems.settle();
  return set_up_model(recipe, std::move(planned), mesh);
}

TrainedModel set_up_model(const config::Recipe& recipe, PlannedModel planned,
                          const parallel::DeviceMesh& mesh) {
  TrainedModel trained{std::move(static_cast<ModelSetup&>(planned))};

  models::ParallelizeOptions options;
  const bool is_block = recipe.gradient_checkpointing == config::Checkpointing::Block;
  options.checkpoint_every = is_block ? recipe.gradient_checkpointing_every : 0;
  options.recompute_mlps = recipe.gradient_checkpointing == config::Checkpointing::Mlp;
  if (recipe.activation_offloading != config::Offloading::Off)
    options.least_offloaded_bytes = parallel::kLeastOffloadedBytes;
  if (!has_streams(mesh.device())) tell_offloading_is_idle(recipe);
  options.tensor_parallel.sequence_parallel = recipe.tensor_parallel_size > 1;
  options.tensor_parallel.async = recipe.async_tensor_parallel;
  options.context_parallel = recipe.context_parallel_method;
  options.pipeline = std::move(planned.pipeline);
  options.shard = shard_options(recipe);
  // The model is cut while it is still on the meta device. Only afterwards do the tiles get memory, so a rank
  // never holds more of the model than its tiles.
  models::ParallelModel parallel = models::parallelize(*trained.model, mesh, options);
  trained.sharded = std::move(parallel.sharded);
  trained.pipeline = std::move(parallel.pipeline);
  trained.sharded->materialize([&](const parallel::ShardedParameter& parameter) {
    planned.source->read(parameter.name, parameter.box, parameter.tile.detach());
  });
  return trained;
}

std::optional<DType> saved_dtype(const ModelSetup& setup, const config::Recipe& recipe) {
  switch (recipe.save_dtype) {
    case config::SaveType::Float32: return DType::F32;
    case config::SaveType::BFloat16: return DType::BF16;
    case config::SaveType::Float16: return DType::F16;
    case config::SaveType::OfBase: break;
  }
  const bool is_narrow = setup.base_dtype == DType::BF16 || setup.base_dtype == DType::F16;
  if (setup.adapter || !is_narrow || run_types(recipe).stored == at::kDouble) return std::nullopt;
  return setup.base_dtype;
}

namespace {

// Returns the ids of the special tokens that the recipe chose: those that it names, and with tokenizer_config
// all of that tokenizer.
checkpoint::SpecialTokenIds chosen_tokens(const config::Recipe& recipe, const text::Tokenizer& tokenizer) {
  checkpoint::SpecialTokenIds ids = checkpoint::special_token_ids(tokenizer);
  if (!recipe.tokenizer_config.empty()) return ids;
  if (!recipe.special_tokens.contains("bos_token")) ids.bos.reset();
  if (!recipe.special_tokens.contains("eos_token")) ids.eos.reset();
  if (!recipe.special_tokens.contains("pad_token")) ids.pad.reset();
  return ids;
}

}  // namespace

checkpoint::FolderPlan result_folder(const TrainedModel& trained, const config::Recipe& recipe,
                                     const checkpoint::BaseFiles& base,
                                     const std::optional<text::Tokenizer>& tokenizer) {
  checkpoint::FolderPlan plan;
  if (trained.adapter) {
    const std::string base_model = std::filesystem::absolute(recipe.base_model).lexically_normal().string();
    plan =
        peft::adapter_folder(trained.saved, trained.adapter->options, trained.adapter->targets, base_model);
    // It tells the labels, of which an adapter says nothing.
    if (trained.model->config().classification) plan.files.emplace_back("config.json", base.config);
  } else {
    const auto files =
        tokenizer ? checkpoint::with_special_tokens(base, chosen_tokens(recipe, *tokenizer)) : base;
    plan = checkpoint::model_folder(trained.saved, files, to_dtype(run_types(recipe).stored), trained.whole);
  }
  const std::optional<DType> dtype = saved_dtype(trained, recipe);
  return dtype ? checkpoint::with_dtype(std::move(plan), *dtype) : plan;
}

}  // namespace tessera::train

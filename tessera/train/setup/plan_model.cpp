#include "tessera/train/setup/plan_model.h"

#include <initializer_list>
#include <string_view>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/models/common/assembly.h"
#include "tessera/models/common/parallelize.h"
#include "tessera/models/parallelize_plan.h"
#include "tessera/nn/classification_head.h"
#include "tessera/nn/e4m3_layers.h"
#include "tessera/parallel/expert_parallel/expert_parallel.h"
#include "tessera/parallel/tensor_parallel/tensor_parallel.h"
#include "tessera/peft/adapter_files.h"
#include "tessera/train/setup/optimizer_targets.h"
#include "tessera/train/setup/parameter_rates.h"
#include "tessera/train/setup/recipe_values.h"

namespace tessera::train {
namespace {

// Returns the value of `work()`. An error of it names the line of the first of these keys that is given.
template <class Work>
decltype(auto) at_place_of(const config::KeyPlaces& places, std::initializer_list<std::string_view> keys,
                           Work&& work) {
  try {
    return work();
  } catch (Error& error) {
    throw error.at(places.place_of(keys));
  }
}

// Plans the stages of a pipeline; nothing for a run without one. `model` has its adapters already, as their
// work counts.
std::optional<parallel::PipelinePlan> plan_pipeline(const models::CausalLM& model,
                                                    const config::ParallelConfig& keys,
                                                    const config::KeyPlaces& places) {
  if (keys.pipeline_parallel_size == 1) return std::nullopt;
  const int64_t default_stages = keys.pipeline_schedule == PipelineKind::Interleaved ? 2 : 1;
  const int64_t stages = keys.pipeline_stages_per_rank > 0 ? keys.pipeline_stages_per_rank : default_stages;
  return at_place_of(
      places, {"pipeline_split", "pipeline_stages_per_rank", "pipeline_parallel_size", "pipeline_schedule"},
      [&] {
        return models::plan_pipeline(model, keys.pipeline_parallel_size,
                                     {keys.pipeline_schedule, stages, keys.pipeline_split});
      });
}

// Refuses to cut the model as the recipe asks where its layers, experts or tokens cannot be cut so.
void check_cuts(const models::CausalLM& model, const config::ParallelConfig& keys,
                const config::KeyPlaces& places) {
  if (const int64_t ranks = keys.tensor_parallel_size; ranks > 1) {
    at_place_of(places, {"tensor_parallel_size"},
                [&] { parallel::check_tensor_parallel(model, models::tensor_parallel_plan(model), ranks); });
  }
  if (const int64_t ranks = keys.expert_parallel_size; ranks > 1) {
    at_place_of(places, {"expert_parallel_size"}, [&] { parallel::check_expert_parallel(model, ranks); });
  }
  at_place_of(places, {"context_parallel_size"},
              [&] { models::check_context_parallel(model, keys.context_parallel_size); });
}

// Gives the model the recipe's terms of the loss.
void set_loss(models::CausalLM& model, const config::Recipe& recipe) {
  if (recipe.router_aux_loss_coef) model.set_router_aux_loss_coef(*recipe.router_aux_loss_coef);
  model.set_router_z_loss_coef(recipe.router_z_loss_coef);
  model.set_embedding_noise(recipe.neftune_noise_alpha);
  model.head().set_loss_terms(loss_terms(recipe));
  if (recipe.task == config::Task::RewardModel) {
    dynamic_cast<nn::ClassificationHead&>(model.head())
        .learn_from_pairs({.center = recipe.center_rewards_coefficient});
  }
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

PlannedModel plan_model(const config::Recipe& recipe, const models::BaseModel& base,
                        config::Problems& problems) {
  const models::ModelConfig& config = base.config();
  if (recipe.random_init) refuse_random_text_part(recipe, config);
  if (!config.training_note.empty()) log::warn(config.training_note);
  warn_of_unused_routers(recipe, config);
  // [Note: order of the plan] The table of the base's files is made first, from the plain model with its
  // global shapes. Adapters then freeze the base's parameters, and their own table takes the place of the
  // base's, as it is what the run saves. fp8 and the stages come last, since both depend on all layers there
  // are.
  models::Assembly assembly(
      base, {.type = run_types(recipe).stored,
             .reads_files = !recipe.random_init,
             .takes_new_head = config::has_classifier(recipe.task) || recipe.task == config::Task::MaskedLm,
             .seed = static_cast<uint64_t>(recipe.seed)});
  PlannedModel planned;
  planned.model = assembly.model();
  planned.saved = assembly.table();
  models::CausalLM& model = *planned.model;
  check_cuts(model, recipe, recipe);
  set_loss(model, recipe);
  warn_of_new_head(recipe, assembly.missing());
  planned.base_dtype = assembly.base_files() ? checkpoint::main_dtype(*assembly.base_files())
                                             : config.stored_dtype.value_or(DType::F32);
  freeze_parameters(planned, recipe, problems);
  if (recipe.adapter == config::AdapterKind::None) {
    planned.whole = base.whole();
  } else {
    planned.adapter = put_adapter(assembly, recipe, problems);
    // The base that restarts change is part of the result.
    if (recipe.relora) {
      planned.whole = base.whole();
      for (const std::string& layer : planned.adapter->targets.adapted)
        planned.folded.insert(layer + ".weight");
    } else {
      planned.saved = peft::adapter_table(model, planned.adapter->targets);
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
  planned.pipeline = plan_pipeline(model, recipe, recipe);
  planned.source = assembly.source();
  planned.files = assembly.files();
  return planned;
}

}  // namespace tessera::train

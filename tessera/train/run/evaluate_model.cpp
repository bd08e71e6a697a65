#include "tessera/train/run/evaluate_model.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include "tessera/config/parallelism.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/progress_line.h"
#include "tessera/core/strings.h"
#include "tessera/data/loader.h"
#include "tessera/data/loader_options.h"
#include "tessera/data/prompts/prompt.h"
#include "tessera/models/common/base_model.h"
#include "tessera/train/run/describe_run.h"
#include "tessera/train/run/resume.h"
#include "tessera/train/run/same_inputs.h"
#include "tessera/train/run/same_recipe.h"
#include "tessera/train/setup/compute_type.h"
#include "tessera/train/setup/measured_split.h"
#include "tessera/train/setup/plan_recipe.h"
#include "tessera/train/setup/recipe_data.h"
#include "tessera/train/setup/recipe_values.h"
#include "tessera/train/setup/setup.h"
#include "tessera/train/step/step.h"

namespace tessera::train {
namespace {

// Returns the recipe without what changes the loss in training alone.
config::Recipe for_evaluation(config::Recipe recipe) {
  recipe.label_smoothing_factor = 0.0;
  recipe.z_loss_coef = 0.0;
  recipe.router_aux_loss_coef = 0.0;
  recipe.router_z_loss_coef = 0.0;
  recipe.neftune_noise_alpha = 0.0;
  recipe.lora_dropout = 0.0;
  return recipe;
}

data::Loader open_rows(const data::PreparedData& prepared, const config::Recipe& recipe,
                       const parallel::DeviceMesh& mesh) {
  const bool has_eval = prepared.eval.size() > 0;
  if (!has_eval && recipe.streaming) {
    throw Error(ErrorKind::Config, "EVALUATE-DATA", "the recipe streams its rows and has no evaluation data")
        .at(recipe.place_of({"streaming"}))
        .hint("name files with test_datasets, or set streaming=false");
  }
  const data::RowSet& rows = has_eval ? prepared.eval : prepared.train;
  log::info("data: " + describe_rows(rows) + (has_eval ? "" : " (all rows of datasets)"));
  return {rows, data::eval_loader_options(recipe, mesh.coordinate(parallel::kAxisDp),
                                          mesh.size(parallel::kAxisDp))};
}

// Returns the model with its values. Nothing of it trains, so that it is held in the type of the compute.
TrainedModel load(const config::Recipe& recipe, PlannedModel planned, const models::BaseModel& base,
                  const std::shared_ptr<const checkpoint::ShardedCheckpoint>& checkpoint,
                  const parallel::DeviceMesh& mesh) {
  check_same_model(planned, base.files().config, *mesh.world());
  if (checkpoint) {
    check_same_parameters(*checkpoint, model_fingerprint(planned, base.files().config), planned);
    take_values_of(checkpoint, planned);
  }
  for (const at::Tensor& parameter : planned.model->parameters()) parameter.set_requires_grad(false);
  return set_up_model(recipe, std::move(planned), mesh);
}

nlohmann::ordered_json figures(double loss, int64_t label_tokens, bool is_of_tokens) {
  nlohmann::ordered_json json = {{"loss", loss}};
  if (is_of_tokens) json["perplexity"] = std::exp(loss);
  json["label_tokens"] = label_tokens;
  return json;
}

}  // namespace

std::string ModelEvaluation::to_json() const {
  nlohmann::ordered_json json = figures(loss, label_tokens, metrics.empty());
  for (const auto& [name, value] : metrics) json[name] = value;
  json["rows"] = is_of_training_rows ? "train" : "eval";
  json["seconds"] = seconds;
  for (const DatasetLoss& one : datasets) {
    json["datasets"][one.name] = figures(one.loss, one.label_tokens, metrics.empty());
  }
  return json.dump();
}

ModelEvaluation evaluate_model(config::Recipe recipe, const std::string& checkpoint_folder,
                               const std::shared_ptr<comm::Communicator>& world) {
  agree_on_start(recipe, *world);
  std::shared_ptr<const checkpoint::ShardedCheckpoint> checkpoint;
  if (!checkpoint_folder.empty()) {
    checkpoint = open_checkpoint(checkpoint_folder, *world);
    recipe = with_dtype_of(std::move(recipe), *checkpoint);
  }
  recipe = for_evaluation(std::move(recipe));
  const ParallelDims dims = parallel_dims(recipe, world->size());
  recipe = config::with_accumulation(std::move(recipe), dims.dp_replicate * dims.dp_shard);
  recipe = with_compute_type(std::move(recipe), *world);
  const parallel::DeviceMesh mesh(world, dims);

  if (recipe.task != config::Task::RewardModel) data::refuse_unbuilt_objective(recipe);
  PlannedRecipe planned = plan_recipe(recipe);
  measure_split(recipe, planned.model, *world);
  const data::PreparedData prepared =
      read_recipe_data(recipe, planned.base.config(), planned.tokenizer,
                       std::max<int64_t>(1, at::get_num_threads()), agreed_clock(*world));
  check_same_data(prepared, *world);
  data::Loader loader = open_rows(prepared, recipe, mesh);
  TrainedModel trained = load(recipe, std::move(planned.model), planned.base, checkpoint, mesh);

  const Timer timer;
  const int64_t num_steps = loader.steps_per_epoch();
  const auto evaluated = evaluate(trained, mesh, loader, [&](int64_t done) {
    if (log::is_terminal() && world->rank() == 0)
      log::show_open_line("evaluating " + group_digits(done) + "/" + group_digits(num_steps));
    return true;
  });
  if (world->rank() == 0) log::clear_open_line();
  if (!std::isfinite(*evaluated->loss)) {
    throw Error(ErrorKind::Numerics, "EVAL-LOSS", "the loss is not finite")
        .got(std::to_string(*evaluated->loss))
        .hint("the cause is the model's weights or the compute dtype: try dtype=float32");
  }
  ModelEvaluation result;
  result.loss = *evaluated->loss;
  result.label_tokens = evaluated->label_tokens;
  result.datasets = evaluated->datasets;
  result.metrics = evaluated->metrics;
  result.is_of_training_rows = prepared.eval.size() == 0;
  result.seconds = timer.seconds();
  return result;
}

}  // namespace tessera::train

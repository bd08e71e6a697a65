#include "tessera/train/run/convert_checkpoint.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/checkpoint/save_folder.h"
#include "tessera/checkpoint/sharded_checkpoint.h"
#include "tessera/comm/agreed_work.h"
#include "tessera/config/load_recipe.h"
#include "tessera/config/parallelism.h"
#include "tessera/core/error.h"
#include "tessera/data/default_chat_template.h"
#include "tessera/io/file.h"
#include "tessera/train/run/resume.h"
#include "tessera/train/run/same_inputs.h"
#include "tessera/train/setup/plan_recipe.h"
#include "tessera/train/setup/recipe_inputs.h"
#include "tessera/train/setup/recipe_values.h"
#include "tessera/train/setup/result_plan.h"
#include "tessera/train/setup/setup.h"
#include "tessera/train/step/relora.h"
#include "tessera/train/step/training.h"

namespace tessera::train {
namespace {

// Returns the recipe that the checkpoint notes, made to fit one process on the CPU.
config::Recipe recipe_of(const checkpoint::ShardedCheckpoint& checkpoint, const std::string& base_model) {
  config::Recipe recipe;
  try {
    const std::string text = checkpoint.manifest().state.at("recipe");
    recipe = config::parse_recipe(text, io::join_path(checkpoint.place(), "recipe"));
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorKind::Checkpoint, "MANIFEST", "the manifest notes no recipe").in(checkpoint.place());
  }
  recipe = with_dtype_of(std::move(recipe), checkpoint);
  if (!base_model.empty()) recipe.base_model = base_model;
  recipe.device = {DeviceKind::Cpu};
  return config::for_one_rank(std::move(recipe));
}

}  // namespace

ConvertedCheckpoint convert_checkpoint(const std::string& folder, const std::string& base_model,
                                       std::optional<DType> dtype, io::ResultFolder& result) {
  const auto checkpoint = checkpoint::ShardedCheckpoint::open(folder);
  check_notes(*checkpoint);
  checkpoint->verify(0, 1);
  const config::Recipe recipe = recipe_of(*checkpoint, base_model);
  result.check_inputs(model_inputs(recipe));
  const bool is_adapter = recipe.adapter != config::AdapterKind::None && !recipe.relora;
  auto [base, planned, tokenizer] = plan_recipe(recipe);
  check_same_parameters(*checkpoint, model_fingerprint(planned, base.files().config), planned);
  take_values_of(checkpoint, planned);

  const auto world = comm::Communicator::single();
  const parallel::DeviceMesh mesh(world, parallel_dims(recipe, 1));
  const TrainedModel trained = set_up_model(recipe, std::move(planned), mesh);
  if (recipe.relora) fold_adapter(trained);
  checkpoint::FolderPlan plan = result_folder(trained, recipe, base.files(), tokenizer);
  if (dtype) plan = checkpoint::with_dtype(std::move(plan), *dtype);
  ConvertedCheckpoint converted;
  converted.step = checkpoint->manifest().step;
  converted.is_adapter = is_adapter;
  converted.weight_bytes = checkpoint::weight_bytes(*trained.sharded, trained.saved, plan.dtype);
  result.begin();
  result.require_space(converted.weight_bytes + (tokenizer ? tokenizer->saved_bytes() : 0));
  comm::AgreedWork work({world.get()}, "save the result");
  checkpoint::save_folder(*trained.sharded, plan, result.staging(), work);
  work.finish();
  if (tokenizer) {
    tokenizer->set_chat_template(data::trained_chat_template(recipe, *tokenizer));
    tokenizer->save(result.staging());
  }
  result.commit();
  return converted;
}

}  // namespace tessera::train

#include "tessera/cli/plan_question.h"

#include "tessera/config/bind.h"
#include "tessera/config/load_recipe.h"
#include "tessera/config/resolve_paths.h"
#include "tessera/config/scalar.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/io/file.h"
#include "tessera/models/common/base_model.h"
#include "tessera/models/registry.h"
#include "tessera/planner/search.h"
#include "tessera/train/run/planned_work.h"
#include "tessera/train/run/this_processor.h"
#include "tessera/train/run/update_rate.h"
#include "tessera/train/setup/recipe_tokenizer.h"

namespace tessera::cli {

std::optional<int64_t> ranks_of_processor(const std::string& name) {
  if (name == "cpu") return 1;
  if (!name.ends_with("xcpu")) return std::nullopt;
  const config::ParsedInteger ranks = config::parse_integer(name.substr(0, name.size() - 4));
  if (ranks.status != config::IntegerStatus::Ok || ranks.value < 1 || ranks.value > 1024) return std::nullopt;
  return ranks.value;
}

PlanQuestion plan_question(const config::Recipe& recipe, const std::string& cluster) {
  PlanQuestion question;
  const std::optional<int64_t> processor_ranks = ranks_of_processor(cluster);
  if (processor_ranks) {
    // Its ranks share it.
    question.cluster = train::this_processor(
        *processor_ranks, train::measure_processor() / static_cast<double>(*processor_ranks));
  } else {
    question.cluster = planner::load_cluster(cluster);
  }
  question.kept = train::kept_choice(recipe);
  const std::string problem = planner::why_not(question.cluster.device, question.kept.precision);
  if (!problem.empty()) {
    throw Error(ErrorKind::Config, "CLUSTER", problem)
        .at(recipe.place_of({"fp8", "bf16", "fp16", "dtype"}))
        .hint(question.cluster.device.fp16_tflops > 0
                  ? "fp16: true computes in float16"
                  : "leave bf16, fp16 and fp8 out: float32 works everywhere");
  }
  const models::BaseModel base = train::open_recipe_base(recipe);
  const auto model = models::build_model(base.config(), at::kFloat);
  question.work = train::work_of(*model, base.config());
  question.job = train::job_of(recipe, question.cluster.size());
  train::count_states(recipe, *model, question.job);
  if (processor_ranks) {
    question.job.update_s =
        train::seconds_of_update(recipe, question.work) * static_cast<double>(*processor_ranks);
  }
  if (question.cluster.nvme_gib > 0.0 && recipe.offload_optimizer_nvme_path.empty()) {
    log::warn(
        "no states are planned for the drives: the recipe names no folder on them "
        "(offload_optimizer_nvme_path)");
    question.cluster.nvme_gib = 0.0;
  }
  return question;
}

void write_changed_recipe(const std::string& recipe, const std::vector<std::string>& overrides,
                          const std::string& path) {
  const config::Recipe changed = config::with_absolute_paths(config::load_recipe(recipe, overrides));
  io::write_file_atomic(path, config::write_yaml(changed, config::KeysToWrite::Given));
  log::info("wrote " + path);
}

}  // namespace tessera::cli

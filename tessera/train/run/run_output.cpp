#include "tessera/train/run/run_output.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <utility>

#include "tessera/checkpoint/manifest.h"
#include "tessera/comm/agreed_work.h"
#include "tessera/config/load_recipe.h"
#include "tessera/config/resolve_paths.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/io/checkpoint_folders.h"
#include "tessera/io/file.h"
#include "tessera/io/output_file.h"
#include "tessera/io/result_files.h"
#include "tessera/train/reporters/metrics_file.h"
#include "tessera/train/reporters/mlflow.h"
#include "tessera/train/reporters/otlp.h"
#include "tessera/train/reporters/progress.h"
#include "tessera/train/reporters/prometheus.h"
#include "tessera/train/reporters/samples_file.h"
#include "tessera/train/reporters/tensorboard.h"
#include "tessera/train/reporters/wandb.h"
#include "tessera/train/run/last_step.h"
#include "tessera/train/run/resume.h"
#include "tessera/train/setup/adapter_options.h"
#include "tessera/train/setup/recipe_inputs.h"
#include "tessera/train/setup/result_plan.h"

namespace tessera::train {
namespace {

// Checks the file that the run writes beside its folder.
void check_outputs(const config::Recipe& recipe) {
  if (recipe.prometheus_file.empty()) return;
  if (io::is_or_lies_in(io::resolved_path(recipe.prometheus_file), io::resolved_path(recipe.output_dir))) {
    throw recipe
        .error("OUTPUT-USED", "the file is inside output_dir, which the result replaces as a whole",
               {"prometheus_file"})
        .got(recipe.prometheus_file)
        .hint("name a file in another folder");
  }
  io::check_output_file({.path = recipe.prometheus_file,
                         .named_by = "prometheus_file",
                         .inputs = recipe_inputs(recipe),
                         .is_earlier_output = io::begins_with(kPrometheusBegin),
                         .how_to_overwrite = ""});
}

// Returns what of the run's checkpoints stays beside its result: all but those for a restart, and the file
// that names the newest.
std::vector<std::string> checkpoints_to_keep(const std::string& folder) {
  std::vector<std::string> names;
  for (const io::CheckpointFolder& found : io::list_checkpoints(folder)) {
    bool is_for_restart = false;
    try {
      is_for_restart =
          checkpoint::read_manifest(io::join_path(folder, found.name)).state.value(kForRestart, false);
    } catch (const Error&) {
      // One that cannot be read stays for its owner to look at.
    }
    if (!is_for_restart) names.push_back(found.name);
  }
  if (!names.empty()) names.push_back("latest");
  return names;
}

io::ResultOptions result_options(const config::Recipe& recipe) {
  auto inputs = recipe_inputs(recipe);
  if (!continues_output(recipe))
    inputs.push_back({"the checkpoint to resume from", recipe.resume_from_checkpoint});
  return {.overwrites = recipe.overwrite_output_dir,
          .how_to_overwrite = "overwrite_output_dir: true",
          .inputs = std::move(inputs),
          .continues = continues_output(recipe)};
}

}  // namespace

void check_output(const config::Recipe& recipe) {
  check_outputs(recipe);
  // A folder without parents is that of no run, and looking at it would make them.
  const std::filesystem::path parent = std::filesystem::absolute(recipe.output_dir).parent_path();
  if (io::exists(parent.string())) const io::ResultFolder folder(recipe.output_dir, result_options(recipe));
}

RunOutput::RunOutput(const config::Recipe& recipe, std::shared_ptr<comm::Communicator> world,
                     RunSignals& signals)
    : recipe_(recipe), world_(std::move(world)), signals_(signals) {
  comm::AgreedWork work({world_.get()}, "use output_dir");
  work.run_on_first([&] {
    // A signal that came between the laying of the lock and set_lock() would leave the lock behind.
    const RunSignals::Held held;
    check_outputs(recipe_);
    result_.emplace(recipe_.output_dir, result_options(recipe_));
    std::error_code ignored;
    has_older_ = io::exists(recipe_.output_dir) && !std::filesystem::is_empty(recipe_.output_dir, ignored);
    signals_.set_lock(result_->lock_path());
    signals_.set_notice("interrupted before the first step" + what_stays());
  });
  work.finish();
}

RunOutput::~RunOutput() {
  if (!result_) return;
  signals_.set_notice("");
  signals_.set_lock("");
}

std::string RunOutput::what_stays() const {
  if (!newest_.empty()) return "; " + newest_ + " stays in " + recipe_.output_dir;
  // This process does not know yet of a checkpoint that is under way.
  if (recipe_.save_strategy != config::Cadence::No)
    return "; a checkpoint that is already complete stays in " + recipe_.output_dir;
  return "; nothing is saved" + std::string(has_older_ ? ", the older result is untouched" : "");
}

void RunOutput::begin(const config::Recipe& recipe, const TrainedModel& trained,
                      const std::optional<text::Tokenizer>& tokenizer,
                      const checkpoint::ShardedCheckpoint* checkpoint, int64_t checkpoint_bytes) {
  recipe_ = recipe;
  saved_recipe_ = trained.adapter ? with_lora_options(recipe_, trained.adapter->options) : recipe_;
  comm::AgreedWork work({world_.get()}, "write the output");
  work.run_on_first([&] {
    std::map<std::string, std::string> kept;
    replaces_older_ = has_older_;
    if (checkpoint != nullptr) {
      for (const auto& [name, entry] : checkpoint->manifest().others)
        kept[name] = checkpoint->other_file(name);
      resumed_step_ = checkpoint->manifest().step;
      owns_checkpoints_ = continues_output(recipe_);
      replaces_older_ = has_older_ && !owns_checkpoints_;
      if (owns_checkpoints_) newest_ = "checkpoint-" + std::to_string(checkpoint->manifest().step);
    }
    result_->begin();
    require_space(trained, tokenizer, checkpoint_bytes);
    result_->keep_unfinished({"metrics.jsonl", "samples.jsonl", "runs", "wandb", "otel", "recipe.yaml"});
    logs_ = std::make_unique<RunLogs>(result_->staging(), std::move(kept));
    write_recipe();
    log::info("metrics are written to " + io::join_path(result_->staging(), "metrics.jsonl") +
              " until the run is complete");
  });
  work.finish();
}

std::vector<std::unique_ptr<Reporter>> RunOutput::reporters(const Training& training) {
  std::vector<std::unique_ptr<Reporter>> reporters;
  comm::AgreedWork work({world_.get()}, "write the output");
  work.run_on_first([&] {
    reporters.push_back(std::make_unique<LastStep>(
        signals_, [this] { return what_stays() + ", the logs stay in " + result_->staging(); }));
    reporters.push_back(std::make_unique<MetricsFile>(*logs_));
    if (recipe_.eval_table_size > 0 || !logs_->kept_name("samples.jsonl").empty())
      reporters.push_back(std::make_unique<SamplesFile>(*logs_));
    reporters.push_back(std::make_unique<TensorBoardFile>(*logs_));
    add_trackers(reporters, training);
    reporters.push_back(std::make_unique<Progress>(training.total_steps()));
  });
  work.finish();
  return reporters;
}

// Adds the reporters that a run can be without: where one cannot be made, this is warned of, and training
// goes on.
void RunOutput::add_trackers(std::vector<std::unique_ptr<Reporter>>& reporters, const Training& training) {
  // `how_to_see` says of files that others would send over a network how they are sent or shown.
  const auto add = [&](const char* tracker, bool is_wanted, const auto& make,
                       const std::string& how_to_see = "") {
    if (!is_wanted) return;
    try {
      reporters.push_back(make());
      if (!how_to_see.empty())
        log::info(std::string(tracker) + ": files are written, but nothing is sent; " + how_to_see);
    } catch (const std::exception& error) {
      log::warn("training continues without " + std::string(tracker) + ": " + error.what());
    }
  };
  const bool is_asked_offline = recipe_.wandb_mode == "offline";
  add(
      "Weights & Biases", wants_wandb(recipe_),
      [&] { return std::make_unique<WandbFile>(*logs_, saved_recipe_); },
      is_asked_offline ? ""
                       : "when the run is complete: wandb sync " +
                             io::join_path(recipe_.output_dir, "wandb/offline-run-*"));
  add(
      "MLflow", wants_mlflow(recipe_),
      [&] {
        return std::make_unique<MlflowRun>(saved_recipe_, resumed_step_,
                                           [&training] { return training.is_done(); });
      },
      "to view them: mlflow ui --backend-store-uri " + mlflow_store(recipe_));
  add("OpenTelemetry", recipe_.use_otel_metrics,
      [&] { return std::make_unique<OtlpFile>(*logs_, recipe_.output_dir); });
  add("Prometheus", !recipe_.prometheus_file.empty(),
      [&] { return std::make_unique<PrometheusFile>(recipe_.prometheus_file, recipe_.output_dir); });
}

std::vector<std::pair<std::string, std::string>> RunOutput::logs() const {
  if (!logs_) return {};
  return logs_->contents();
}

void RunOutput::has_saved(int64_t step, int64_t current) {
  if (!result_) return;
  owns_checkpoints_ = true;
  newest_ = "checkpoint-" + std::to_string(step);
  signals_.set_notice("interrupted after step " + std::to_string(current) + what_stays() +
                      ", the logs stay in " + result_->staging());
}

void RunOutput::remove_outdated(int64_t step, const std::string& run, int64_t best_step) const {
  if (!result_) return;
  const std::string& folder = recipe_.output_dir;
  // Checkpoints of later steps are of a run that this one has gone back behind, those of other runs belong to
  // a result that this run replaces, and older ones for a restart have served.
  const auto manifest_of = [&](const io::CheckpointFolder& found) {
    return checkpoint::read_manifest(io::join_path(folder, found.name));
  };
  const auto is_for_restart = [&](const io::CheckpointFolder& found) {
    return manifest_of(found).state.value(kForRestart, false);
  };
  const auto is_outdated = [&](const io::CheckpointFolder& found) {
    if (found.step > step) return true;
    try {
      return manifest_of(found).run != run || (found.step < step && is_for_restart(found));
    } catch (const Error&) {
      return false;
    }
  };
  try {
    if (replaces_older_ && io::set_result_aside(folder)) {
      log::info("the older result is in " + io::join_path(folder, io::kOlderResult) +
                " until the new one is in place");
    }
    // The best checkpoint takes one of the places; the newest one always has a place, and takes none if it
    // serves a restart alone.
    const auto found = io::list_checkpoints(folder);
    const bool has_best = std::ranges::any_of(found, [&](const auto& one) { return one.step == best_step; });
    int64_t room = std::max<int64_t>(1, recipe_.save_total_limit - (has_best ? 1 : 0));
    for (const io::CheckpointFolder& one : found) {
      const bool is_counted = one.step != best_step && (one.step != step || !is_for_restart(one));
      const bool stays = !is_outdated(one) && (!is_counted || room-- > 0);
      if (!stays) io::remove_checkpoint(folder, one.name);
    }
  } catch (const std::exception& error) {
    log::warn(std::string("an older checkpoint stays: ") + error.what());
  }
}

// Writes the recipe of what was trained, with absolute paths, so that it can be read from any folder.
void RunOutput::write_recipe() const {
  io::write_file_atomic(io::join_path(result_->staging(), "recipe.yaml"),
                        config::dump_recipe(config::with_absolute_paths(saved_recipe_)));
}

// Writes the files of the run again that somebody has cleared away while it went on.
void RunOutput::put_logs_back() {
  io::make_directories(result_->staging());
  const bool has_recipe = io::exists(io::join_path(result_->staging(), "recipe.yaml"));
  if (!has_recipe) write_recipe();
  if (!logs_->put_back() && has_recipe) return;
  log::warn("files of this run were removed from " + result_->staging() +
            " during the run; they are written again");
}

void RunOutput::require_space(const TrainedModel& trained, const std::optional<text::Tokenizer>& tokenizer,
                              int64_t more_bytes) const {
  int64_t num_bytes = more_bytes;
  if (recipe_.save_final) {
    num_bytes += checkpoint::weight_bytes(*trained.sharded, trained.saved, saved_dtype(trained, recipe_));
    if (tokenizer) num_bytes += tokenizer->saved_bytes();
    if (trained.whole) num_bytes += trained.whole->other_bytes();
  }
  result_->require_space(num_bytes);
}

void RunOutput::save(const TrainedModel& trained, const checkpoint::BaseFiles& base,
                     const std::optional<text::Tokenizer>& tokenizer) {
  comm::AgreedWork work({world_.get()}, "save the result");
  work.run_on_first([&] {
    signals_.set_notice(
        "interrupted after the last step, while the result was being saved: " + recipe_.output_dir +
        (has_older_ ? " contains either all of it or all of the older one"
                    : " contains either all of it or nothing"));
    put_logs_back();
  });
  work.finish();
  if (recipe_.save_final) {
    work.run_on_first([&] { require_space(trained, tokenizer, 0); });
    work.finish();
    checkpoint::save_folder(*trained.sharded, result_folder(trained, recipe_, base, tokenizer),
                            result_ ? result_->staging() : "", work);
    work.run_on_first([&] {
      if (tokenizer) tokenizer->save(result_->staging());
    });
    work.finish();
  }
  work.run_on_first([&] {
    if (owns_checkpoints_) result_->set_continues();
    result_->commit(owns_checkpoints_ ? checkpoints_to_keep(recipe_.output_dir) : std::vector<std::string>());
    signals_.set_notice("");
  });
  work.finish();
  const std::string saved = !recipe_.save_final                  ? "metrics"
                            : trained.adapter && !recipe_.relora ? "adapter"
                                                                 : "model";
  log::info(saved + " saved to " + recipe_.output_dir);
}

}  // namespace tessera::train

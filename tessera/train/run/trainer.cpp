#include "tessera/train/run/trainer.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <torch/version.h>
#include <unistd.h>

#include "tessera/checkpoint/save_checkpoint.h"
#include "tessera/checkpoint/save_folder.h"
#include "tessera/checkpoint/sharded_checkpoint.h"
#include "tessera/comm/agreed_work.h"
#include "tessera/comm/flight_recorder.h"
#include "tessera/comm/version.h"
#include "tessera/config/load_recipe.h"
#include "tessera/config/parallelism.h"
#include "tessera/config/resolve_paths.h"
#include "tessera/core/log.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/version.h"
#include "tessera/data/curriculum_loader.h"
#include "tessera/data/loader_options.h"
#include "tessera/data/prompts/prompt.h"
#include "tessera/data/steps_ahead.h"
#include "tessera/models/common/base_model.h"
#include "tessera/train/reporters/light.h"
#include "tessera/train/reporters/memory.h"
#include "tessera/train/reporters/network.h"
#include "tessera/train/reporters/stragglers.h"
#include "tessera/train/run/beside_output.h"
#include "tessera/train/run/describe_run.h"
#include "tessera/train/run/expected_memory.h"
#include "tessera/train/run/loop.h"
#include "tessera/train/run/requeued_starts.h"
#include "tessera/train/run/result_upload.h"
#include "tessera/train/run/resume.h"
#include "tessera/train/run/run_output.h"
#include "tessera/train/run/same_inputs.h"
#include "tessera/train/run/same_recipe.h"
#include "tessera/train/run/step_forecast.h"
#include "tessera/train/setup/compute_type.h"
#include "tessera/train/setup/measured_split.h"
#include "tessera/train/setup/plan_recipe.h"
#include "tessera/train/setup/recipe_data.h"
#include "tessera/train/setup/recipe_values.h"
#include "tessera/train/setup/setup.h"
#include "tessera/train/step/bad_numbers.h"
#include "tessera/train/step/relora.h"
#include "tessera/train/step/training.h"

namespace tessera::train {
namespace {

// One run of a recipe. Members and calls stand in the order in which things happen, and that order matters:
//
// - output_ checks and locks output_dir first, so that a run that cannot leave its result costs no time.
// - checkpoint_ is found next, since the recipe takes from it the dtype that `auto` came to. Only then can
//   recipe_ be resolved.
// - plan() finds mistakes of recipe, model and tokenizer before the repository of an upload is made and
//   before prepare_data() takes its time.
// - prepare_model() compares the inputs with the checkpoint's before tiles take memory.
// - output_.begin() clears away what earlier runs left, once the first step is sure to come.
//
// Members are destroyed in the opposite order: training_ refers to mesh_, and output_ holds the lock to the
// end.
class Run {
 public:
  Run(const config::Recipe& recipe, const std::shared_ptr<comm::Communicator>& world, RunSignals& signals)
      : signals_(signals),
        output_(recipe, world, signals),
        checkpoint_(find_checkpoint(recipe, *world)),
        recipe_(settled(recipe, checkpoint_.get(), *world)),
        mesh_(world, parallel_dims(recipe, world->size())) {}

  TrainSummary run() {
    if (recipe_.saves_checkpoints()) {
      // A start counts before the work begins, so that a job that fails at the same place each time is
      // noticed.
      count_requeued_start(recipe_.output_dir, checkpoint_ ? checkpoint_->manifest().step : 0,
                           *mesh_.world());
    }
    plan();
    const std::optional<int64_t> expected_bytes = expect_memory(recipe_, *mesh_.world());
    if (recipe_.uploads()) prepare_result_upload(recipe_, recipe_, *mesh_.world());
    prepare_data();
    prepare_model(expected_bytes);
    output_.begin(recipe_, training_->trained(), tokenizer_, checkpoint_.get(),
                  saves() ? checkpoint::checkpoint_bytes(training_->tensors()) : 0);
    const Timer timer;
    const LoopParts parts = {*training_, mesh_, signals_, output_, inputs_, checkpoint_.get()};
    const bool is_stopped = !TrainLoop(parts, std::move(evaluated_), std::move(measuring_)).run();
    const TrainState& state = training_->state();
    const TrainSummary summary = {state.step,   state.first_loss,   state.last_loss, timer.seconds(),
                                  state.tokens, recipe_.output_dir, is_stopped};
    describe_end(summary, training_->data_wait_s());
    if (const auto traffic = training_->state_traffic()) describe_traffic(*traffic);
    describe_memory(expected_bytes, *mesh_.world());
    if (!is_stopped) {
      if (recipe_.relora) fold_adapter(training_->trained());
      output_.save(training_->trained(), base_->files(), tokenizer_);
      if (mesh_.world()->rank() == 0) forget_requeued_starts(recipe_.output_dir);
      upload_result(recipe_, signals_, *mesh_.world());
      signals_.set_done();
    }
    return summary;
  }

 private:
  // Returns the recipe with what the ranks and the checkpoint decide: the dtype that `auto` comes to, and
  // gradient_accumulation_steps.
  static config::Recipe settled(config::Recipe recipe, const checkpoint::ShardedCheckpoint* checkpoint,
                                comm::Communicator& world) {
    const ParallelDims dims = parallel_dims(recipe, world.size());
    const int64_t readers = dims.dp_replicate * dims.dp_shard;
    recipe = config::with_accumulation(std::move(recipe), readers);
    if (checkpoint != nullptr)
      recipe = with_batch_of(with_dtype_of(std::move(recipe), *checkpoint), *checkpoint, readers);
    return within_host_memory(with_compute_type(std::move(recipe), world), world);
  }

  bool saves() const { return recipe_.save_strategy != config::Cadence::No; }

  // Finds everything that is wrong with model, adapter and tokenizer before data are read, and says it at
  // once. Splitting a pipeline by time runs the parts of the model, so it comes last.
  void plan() {
    if (recipe_.task != config::Task::RewardModel) data::refuse_unbuilt_objective(recipe_);
    PlannedRecipe planned = plan_recipe(recipe_);
    base_.emplace(std::move(planned.base));
    planned_ = std::move(planned.model);
    tokenizer_ = std::move(planned.tokenizer);
    measure_split(recipe_, planned_, *mesh_.world());
  }

  void prepare_data() {
    // Reading tasks takes less time than preparing rows, so that mistakes in them show first.
    if (recipe_.scores_tasks()) {
      evaluated_.tasks =
          std::make_unique<TaskEvaluation>(recipe_, *planned_.model, tokenizer_, *mesh_.world());
    }
    const int64_t now = agreed_clock(*mesh_.world());
    // The ranks of a machine share its cores, so each takes only the threads that it was given.
    const int64_t num_threads = std::max<int64_t>(1, at::get_num_threads());
    const data::PreparedData prepared =
        read_recipe_data(recipe_, base_->config(), tokenizer_, num_threads, now);

    const int64_t dp_rank = mesh_.coordinate(parallel::kAxisDp), dp_size = mesh_.size(parallel::kAxisDp);
    if (prepared.eval.size() > 0) {
      evaluated_.loader.emplace(prepared.eval, data::eval_loader_options(recipe_, dp_rank, dp_size));
      if (recipe_.makes_samples())
        evaluated_.samples.emplace(recipe_, *planned_.model, tokenizer_, prepared.eval);
    }
    check_same_data(prepared, *mesh_.world());
    std::unique_ptr<data::StepSource> source;
    std::string what;
    if (recipe_.streaming) {
      // The thread that makes steps ahead exchanges rows over a group of its own, so that its collectives
      // meet none of the steps'.
      auto stream = open_recipe_stream(recipe_, base_->config(), tokenizer_, dp_rank, dp_size, num_threads,
                                       now, mesh_.world()->split(0, mesh_.world()->rank(), "stream"));
      inputs_.rows = stream->fingerprint();
      check_same_stream(inputs_.rows, *mesh_.world());
      what = "streamed from " + std::to_string(recipe_.datasets.size()) + " dataset(s)";
      source = std::move(stream);
    } else {
      source =
          data::open_loader(prepared.train, recipe_, data::train_loader_options(recipe_, dp_rank, dp_size));
      inputs_.rows = rows_fingerprint(prepared.train, recipe_);
      what = describe_rows(prepared.train);
      if (source->steps_per_epoch() > 0)
        what += "; " + std::to_string(source->steps_per_epoch()) + " steps per epoch";
    }
    log::info("data: " + what +
              (prepared.eval.size() > 0 ? "; to evaluate: " + describe_rows(prepared.eval) : "") +
              (evaluated_.samples ? "; to continue: " + evaluated_.samples->describe() : "") +
              (evaluated_.tasks ? "; to score: " + evaluated_.tasks->describe() : ""));
    inputs_.global_batch_size = source->samples_per_step();
    describe_batch(recipe_, dp_size, inputs_.global_batch_size);
    warn_of_dropped(prepared.train_stats);
    // Makes steps on a thread from now on: 2 lie ready, and more while they hold fewer than kTokensAhead
    // tokens of each data-parallel rank.
    data_ = std::make_unique<data::StepsAhead>(std::move(source), 2, dp_size * data::kTokensAhead);
  }

  void prepare_model(std::optional<int64_t> expected_bytes) {
    const Timer timer;
    // Ranks must agree on the model with each other and with the checkpoint before any of them allocates.
    check_same_model(planned_, base_->files().config, *mesh_.world());
    inputs_.model = model_fingerprint(planned_, base_->files().config);
    inputs_.recipe = config::dump_recipe(config::with_absolute_paths(recipe_));
    inputs_.dtype = compute_name(recipe_.dtype);
    inputs_.libraries = std::string("Tessera ") + program_version() + ", LibTorch " TORCH_VERSION ", " +
                        comm::mpi_library_version();
    if (checkpoint_) {
      check_resumable(*checkpoint_, inputs_, planned_, recipe_);
      take_values_of(checkpoint_, planned_);
    }
    training_.emplace(recipe_, mesh_, std::move(data_), set_up_model(recipe_, std::move(planned_), mesh_));
    if (checkpoint_) {
      // The parameters have come from the checkpoint already (take_values_of()). The optimizer exists only
      // now, and its states are read here. Reading may fail on some ranks only, so all agree on how it went.
      const AtAverage average(*training_);
      comm::AgreedWork work({mesh_.world().get()}, "read the checkpoint");
      work.run([&] {
        training_->go_on(state_of(*checkpoint_));
        checkpoint::load_checkpoint(*checkpoint_, training_->tensors(), kOptimizerPrefix);
      });
      work.finish();
    }
    describe_model(training_->trained(), mesh_, timer.seconds());
    check_finite_weights(training_->trained(), *mesh_.world(), recipe_.strict_finite);
    auto light = std::make_unique<Light>(recipe_, training_->trained(), mesh_);
    const auto foreseen = foresee_step(recipe_, base_->config(), mesh_, light->peak());
    measuring_.push_back(std::move(light));
    measuring_.push_back(std::make_unique<Memory>(*mesh_.world()));
    measuring_.push_back(std::make_unique<Network>(mesh_));
    measuring_.push_back(std::make_unique<Stragglers>(mesh_));
    if (foreseen) measuring_.push_back(std::make_unique<StepForecast>(*foreseen, expected_bytes));
  }

  RunSignals& signals_;
  RunOutput output_;
  // The run goes on from this one; null for a run from the beginning.
  const std::shared_ptr<const checkpoint::ShardedCheckpoint> checkpoint_;
  config::Recipe recipe_;  // as resolved
  RunInputs inputs_;
  parallel::DeviceMesh mesh_;
  std::optional<models::BaseModel> base_;
  std::optional<text::Tokenizer> tokenizer_;
  std::unique_ptr<data::StepSource> data_;  // until training_ has it
  EvaluationParts evaluated_;               // until the loop has them
  PlannedModel planned_;
  std::optional<Training> training_;
  std::vector<std::unique_ptr<Reporter>> measuring_;  // until the loop has them
};

}  // namespace

TrainSummary train(const config::Recipe& recipe, const std::shared_ptr<comm::Communicator>& world,
                   RunSignals& signals) {
  if (recipe.save_strategy != config::Cadence::No) signals.set_loses_nothing();
  agree_on_start(recipe, *world);
  if (recipe.uploads()) check_result_upload(recipe, recipe, *world);
  // A hang is written into this file. One of an earlier run is removed, as it says nothing of this one.
  const std::string hang_file = beside_output(recipe.output_dir, "hang.json");
  if (world->rank() == 0) unlink(hang_file.c_str());
  comm::flight::set_dump_file(hang_file);
  return Run(recipe, world, signals).run();
}

TrainSummary train(const config::Recipe& recipe, const std::shared_ptr<comm::Communicator>& world) {
  RunSignals signals;
  return train(recipe, world, signals);
}

}  // namespace tessera::train

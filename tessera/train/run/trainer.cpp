#include "tessera/train/run/trainer.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
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
#include "tessera/config/problems.h"
#include "tessera/config/resolve_paths.h"
#include "tessera/core/log.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/strings.h"
#include "tessera/core/version.h"
#include "tessera/data/curriculum_loader.h"
#include "tessera/data/loader_options.h"
#include "tessera/data/prompts/prompt.h"
#include "tessera/data/steps_ahead.h"
#include "tessera/device/deterministic.h"
#include "tessera/io/file.h"
#include "tessera/models/registry.h"
#include "tessera/text/chat_template/chat_template.h"
#include "tessera/train/reporters/light.h"
#include "tessera/train/reporters/memory.h"
#include "tessera/train/reporters/network.h"
#include "tessera/train/reporters/stragglers.h"
#include "tessera/train/run/agreed_requests.h"
#include "tessera/train/run/beside_output.h"
#include "tessera/train/run/checkpoints.h"
#include "tessera/train/run/evaluation.h"
#include "tessera/train/run/replica_check.h"
#include "tessera/train/run/requeued_starts.h"
#include "tessera/train/run/resume.h"
#include "tessera/train/run/run_output.h"
#include "tessera/train/run/same_inputs.h"
#include "tessera/train/run/same_recipe.h"
#include "tessera/train/setup/compute_type.h"
#include "tessera/train/setup/measured_split.h"
#include "tessera/train/setup/recipe_data.h"
#include "tessera/train/setup/setup.h"
#include "tessera/train/step/bad_numbers.h"
#include "tessera/train/step/run_schedule.h"
#include "tessera/train/step/training.h"

namespace tessera::train {
namespace {

std::string describe(const data::RowSet& rows) {
  int64_t tokens = 0, labels = 0;
  for (int64_t i = 0; i < rows.size(); ++i) {
    tokens += rows.length(i);
    labels += rows.label_count(i);
  }
  return std::to_string(rows.size()) + " rows, " + std::to_string(tokens) + " tokens, " +
         std::to_string(labels) + " of them trained";
}

void warn_of_dropped(const std::vector<data::DatasetStats>& stats) {
  data::DatasetStats all;
  for (const data::DatasetStats& of_one : stats) all += of_one;
  const int64_t dropped = all.bad_records + all.dropped_long + all.dropped_short + all.dropped_unlabelled;
  if (dropped == 0) return;
  log::warn(std::to_string(dropped) + " records were left out (too long " + std::to_string(all.dropped_long) +
            ", too short " + std::to_string(all.dropped_short) + ", nothing to train " +
            std::to_string(all.dropped_unlabelled) + ", bad " + std::to_string(all.bad_records) +
            "); `tessera data show` tells more");
}

void describe_batch(const config::Recipe& recipe, int64_t dp_size, int64_t samples_per_step) {
  std::string text = "batch: micro_batch_size " + std::to_string(recipe.micro_batch_size) +
                     " x gradient_accumulation_steps " + std::to_string(recipe.gradient_accumulation_steps) +
                     " x dp_size " + std::to_string(dp_size) + " = " + std::to_string(samples_per_step) +
                     " sequences a step";
  if (recipe.lr_scaling != config::LrScaling::None) {
    char rate[64];
    std::snprintf(rate, sizeof rate, "; learning rate %g instead of %g",
                  peak_learning_rate(recipe, samples_per_step), recipe.learning_rate);
    text += rate;
  }
  log::info(text);
}

void describe_model(const TrainedModel& trained, const parallel::DeviceMesh& mesh, double load_seconds) {
  int64_t total = 0, trainable = 0;
  for (const auto& parameter : trained.sharded->parameters()) {
    total += parameter.layout.numel();
    if (parameter.requires_grad) trainable += parameter.layout.numel();
  }
  const auto& dims = mesh.dims();
  log::info("model: " + std::to_string(total) + " parameters, " + std::to_string(trainable) + " trained; " +
            std::to_string(mesh.world()->size()) + " rank(s): dp_replicate " +
            std::to_string(dims.dp_replicate) + " x dp_shard " + std::to_string(dims.dp_shard) +
            (dims.cp > 1 ? " x cp " + std::to_string(dims.cp) : "") +
            (dims.tp > 1 ? " x tp " + std::to_string(dims.tp) : "") +
            (dims.pp > 1 ? " x pp " + std::to_string(dims.pp) : "") +
            (dims.ep > 1 ? ", experts over " + std::to_string(dims.ep) : "") + "; loaded in " +
            format_duration(load_seconds));
}

void describe_end(const TrainSummary& summary, double data_wait_s) {
  char share[32];
  std::snprintf(share, sizeof share, "%.2f", 100.0 * data_wait_s / std::max(summary.seconds, 1e-9));
  log::info(std::to_string(summary.steps) + " steps made, " + std::to_string(summary.tokens) +
            " tokens seen; this run took " + format_duration(summary.seconds) +
            ", of which its steps waited " + share + " % for data");
}

// One run of a recipe. Members and calls stand in the order in which things happen, and that order matters:
//
// - output_ checks and locks output_dir first, so that a run that cannot leave its result costs no time.
// - checkpoint_ is found next, since the recipe takes from it the dtype that `auto` came to. Only then can
//   recipe_ be resolved.
// - plan() finds mistakes of recipe, model and tokenizer before prepare_data() takes its time.
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
        recipe_(with_compute_type(checkpoint_ ? with_dtype_of(recipe, *checkpoint_) : recipe, *world)),
        mesh_(world, parallel_dims(recipe, world->size())) {}

  TrainSummary run() {
    if (saves()) {
      // A start counts before the work begins, so that a job that fails at the same place each time is
      // noticed.
      count_requeued_start(recipe_.output_dir, checkpoint_ ? checkpoint_->manifest().step : 0,
                           *mesh_.world());
    }
    plan();
    prepare_data();
    prepare_model();
    output_.begin(recipe_, training_->trained(), tokenizer_, checkpoint_.get(),
                  saves() ? checkpoint::checkpoint_bytes(training_->tensors()) : 0);
    const Timer timer;
    const bool is_stopped = !loop();
    const TrainState& state = training_->state();
    const TrainSummary summary = {state.step,   state.first_loss,   state.last_loss, timer.seconds(),
                                  state.tokens, recipe_.output_dir, is_stopped};
    describe_end(summary, training_->data_wait_s());
    if (!is_stopped) {
      output_.save(training_->trained(), base_, tokenizer_);
      if (mesh_.world()->rank() == 0) forget_requeued_starts(recipe_.output_dir);
      signals_.set_done();
    }
    return summary;
  }

 private:
  bool saves() const { return recipe_.save_strategy != config::Cadence::No; }

  // Finds everything that is wrong with model, adapter and tokenizer before data are read, and says it at
  // once. Splitting a pipeline by time runs the parts of the model, so it comes last.
  void plan() {
    data::refuse_unbuilt_objective(recipe_);
    base_ = checkpoint::read_base_files(recipe_.base_model);
    model_config_ =
        models::parse_model_config(base_.config, io::join_path(recipe_.base_model, "config.json"));
    config::Problems problems;
    planned_ = plan_model(recipe_, *model_config_, problems);
    tokenizer_ = load_recipe_tokenizer(recipe_, problems);
    problems.settle();
    measure_split(recipe_, planned_, *mesh_.world());
  }

  void prepare_data() {
    // A template may write the date, and ranks may read their clocks on two sides of midnight: all take that
    // of rank 0.
    const int64_t now =
        std::stoll(mesh_.world()->all_gather_string(std::to_string(text::local_clock())).front());
    // The ranks of a machine share its cores, so each takes only the threads that it was given.
    const int64_t num_threads = std::max<int64_t>(1, at::get_num_threads());
    const data::PreparedData prepared =
        read_recipe_data(recipe_, *model_config_, tokenizer_, num_threads, now);

    const int64_t dp_rank = mesh_.coordinate(parallel::kAxisDp), dp_size = mesh_.size(parallel::kAxisDp);
    if (prepared.eval.size() > 0) {
      eval_loader_.emplace(prepared.eval, data::eval_loader_options(recipe_, dp_rank, dp_size));
    }
    check_same_data(prepared, *mesh_.world());
    std::unique_ptr<data::StepSource> source;
    std::string what;
    if (recipe_.streaming) {
      // The thread that makes steps ahead exchanges rows over a group of its own, so that its collectives
      // meet none of the steps'.
      auto stream = open_recipe_stream(recipe_, *model_config_, tokenizer_, dp_rank, dp_size, num_threads,
                                       now, mesh_.world()->split(0, mesh_.world()->rank(), "stream"));
      inputs_.rows = stream->fingerprint();
      check_same_stream(inputs_.rows, *mesh_.world());
      what = "streamed from " + std::to_string(recipe_.datasets.size()) + " dataset(s)";
      source = std::move(stream);
    } else {
      source =
          data::open_loader(prepared.train, recipe_, data::train_loader_options(recipe_, dp_rank, dp_size));
      inputs_.rows = rows_fingerprint(prepared.train, recipe_);
      what = describe(prepared.train);
      if (source->steps_per_epoch() > 0)
        what += "; " + std::to_string(source->steps_per_epoch()) + " steps an epoch";
    }
    log::info("data: " + what +
              (prepared.eval.size() > 0 ? "; to evaluate: " + describe(prepared.eval) : ""));
    describe_batch(recipe_, dp_size, source->samples_per_step());
    warn_of_dropped(prepared.train_stats);
    // Makes steps on a thread from now on: 2 lie ready, and more while they hold fewer than kTokensAhead
    // tokens of each data-parallel rank.
    data_ = std::make_unique<data::StepsAhead>(std::move(source), 2, dp_size * data::kTokensAhead);
  }

  void prepare_model() {
    const Timer timer;
    // Ranks must agree on the model with each other and with the checkpoint before any of them allocates.
    check_same_model(planned_, base_.config, *mesh_.world());
    inputs_.model = model_fingerprint(planned_, base_.config);
    inputs_.recipe = config::dump_recipe(config::with_absolute_paths(recipe_));
    inputs_.dtype = compute_name(recipe_.dtype);
    inputs_.libraries = std::string("Tessera ") + program_version() + ", LibTorch " TORCH_VERSION ", " +
                        comm::mpi_library_version();
    if (checkpoint_) {
      check_resumable(*checkpoint_, inputs_, *planned_.model, recipe_);
      take_values_of(checkpoint_, planned_);
    }
    training_.emplace(recipe_, mesh_, std::move(data_), set_up_model(recipe_, std::move(planned_), mesh_));
    if (checkpoint_) {
      // The parameters have come from the checkpoint already (take_values_of()). The optimizer exists only
      // now, and its states are read here. Reading may fail on some ranks only, so all agree on how it went.
      comm::AgreedWork work({mesh_.world().get()}, "read the checkpoint");
      work.run([&] {
        training_->go_on(state_of(*checkpoint_));
        checkpoint::load_checkpoint(*checkpoint_, training_->tensors(), kOptimizerPrefix);
      });
      work.finish();
    }
    describe_model(training_->trained(), mesh_, timer.seconds());
    check_finite_weights(training_->trained(), *mesh_.world(), recipe_.strict_finite);
    measuring_.push_back(std::make_unique<Light>(recipe_, training_->trained(), mesh_));
    measuring_.push_back(std::make_unique<Memory>(*mesh_.world()));
    measuring_.push_back(std::make_unique<Network>(mesh_));
    measuring_.push_back(std::make_unique<Stragglers>(mesh_));
  }

  // Makes the steps. Returns whether the run came to its end; false where it was asked to stop, and is saved.
  //
  // [Note: between two steps] After a step these follow, on all ranks in the same order:
  //
  // 1. A rollback, if the guard asks for one. Then the reporters hear of the step, of the line of metrics if
  //    one is due, and that all has been told (after_step()).
  // 2. requests.finish(), which tells what any rank was asked for when requests.begin() ran, before the step.
  //    It precedes the evaluation, because a run that stops leaves its evaluation to the one that goes on.
  // 3. The evaluation. It precedes the checkpoint, which then holds what it has changed in the state: the
  //    best loss, early stopping, the learning rate on a plateau. A request to stop may end it, too.
  // 4. The checkpoint, last of all, since what reporters have written of the step belongs to it. A run that
  //    stops saves its last one here, with a note if the evaluation of the step is still owed.
  //
  // After the last step a request to stop comes too late: the run ends as usual, and its result is saved.
  bool loop() {
    // Reporters that measure come first: those that write, on the first rank, find in the metrics what they
    // have added.
    std::vector<std::unique_ptr<Reporter>> reporters = std::move(measuring_);
    for (auto& writing : output_.reporters(*training_)) {
      reporters.push_back(std::move(writing));
    }
    const auto tell = [&](const std::function<void(Reporter&)>& what) {
      for (const auto& reporter : reporters) what(*reporter);
    };
    reporters.push_back(std::make_unique<ReplicaCheck>(*training_, *mesh_.world()));
    const TrainState& state = training_->state();
    auto asking =
        std::make_unique<AgreedRequests>(signals_, *mesh_.world(), beside_output(recipe_.output_dir, "save"));
    AgreedRequests& requests = *asking;
    reporters.push_back(std::move(asking));
    std::optional<Evaluation> evaluation;
    if (eval_loader_) evaluation.emplace(*training_, mesh_, std::move(*eval_loader_), tell);
    // Evaluates where that is due. False where a request to stop ended it.
    const auto evaluate = [&] {
      try {
        if (evaluation) evaluation->after_step(state);
        return true;
      } catch (const EvaluationStopped&) {
        return false;
      }
    };
    std::optional<Checkpoints> checkpoints;
    // A run that saves no checkpoints by itself may still be asked to save one.
    const auto begin_saving = [&] {
      if (checkpoints) return;
      checkpoints.emplace(*training_, output_, *mesh_.world(), inputs_,
                          checkpoint_ ? checkpoint_->manifest().run : "");
    };
    if (saves()) {
      begin_saving();
      // A stop can wait only where the run will save.
      signals_.defer_stops();
    }
    // The run before this one may have been stopped between a step and its evaluation.
    bool is_stopped =
        checkpoint_ && checkpoint_->manifest().state.value(kOwesEvaluation, false) && !evaluate();
    while (!training_->is_done() && !is_stopped) {
      requests.begin();
      // The step hides the exchange of the requests.
      StepMetrics metrics = training_->step();
      if (metrics.rolls_back) roll_back(checkpoints ? &*checkpoints : nullptr);
      // It adds to the metrics, which the reporters then show.
      if (checkpoints) metrics.save_stall_s = checkpoints->take_stall();
      tell([&](Reporter& reporter) { reporter.on_step(state, metrics); });
      if (const auto line = training_->add_to_line(metrics)) {
        tell([&](Reporter& reporter) { reporter.on_line(*line); });
      }
      tell([&](Reporter& reporter) { reporter.after_step(state); });
      const Request request = requests.finish();
      is_stopped = request == Request::Stop && !training_->is_done();
      const bool is_evaluated = !is_stopped && evaluate();
      if (!is_evaluated) is_stopped = true;
      // Early stopping may end the run between two lines of metrics: its last steps get a line, too.
      if (training_->has_stopped_early()) {
        if (const auto line = training_->rest_of_line())
          tell([&](Reporter& reporter) { reporter.on_line(*line); });
      }
      if (request != Request::None) begin_saving();
      if (!checkpoints) continue;
      if (request == Request::Save) checkpoints->ask();
      if (is_stopped) checkpoints->ask_last();
      checkpoints->after_step();
      // A save may take long. Requests that came meanwhile need no further step: the checkpoint that is in
      // place answers them, also a request to stop.
      if (checkpoints->saved_step() == state.step && !is_stopped && !training_->is_done()) {
        requests.begin();
        is_stopped = requests.finish() == Request::Stop;
      }
    }
    if (!is_stopped && recipe_.load_best_model_at_end) take_best(checkpoints ? &*checkpoints : nullptr);
    if (is_stopped) {
      signals_.set_saved();
      signals_.set_notice("");
      tell_stop(requests.stop_signal());
    }
    return !is_stopped;
  }

  void tell_stop(int signal) const {
    const std::string step = std::to_string(training_->state().step);
    const char* name = sigabbrev_np(signal);
    log::info(
        "stopped after step " + step + " by " + (name == nullptr ? "a signal" : std::string("SIG") + name) +
        ": checkpoint-" + step + " is saved in " + recipe_.output_dir + "; " +
        (recipe_.auto_resume_from_checkpoints ? "the same command goes on from there"
                                              : "auto_resume_from_checkpoints=true goes on from there"));
  }

  // Goes back to the values of the newest checkpoint, from before the loss leapt. The data go on behind the
  // step where it did, so that the run does not meet them again.
  void roll_back(Checkpoints* checkpoints) {
    const int64_t step = checkpoints == nullptr ? -1 : checkpoints->roll_back();
    log::warn(step < 0 ? "no checkpoint of this run to roll back to: the update is left out"
                       : "rolled back to the values of checkpoint-" + std::to_string(step) +
                             "; the data go on where they are");
  }

  // Loads the values that the best evaluation saw: they become the result.
  void take_best(Checkpoints* checkpoints) {
    const TrainState& state = training_->state();
    if (!state.best.loss) return log::warn("nothing was evaluated: the result is that of the last step");
    const int64_t step = checkpoints == nullptr ? -1 : checkpoints->load_best();
    char loss[32];
    std::snprintf(loss, sizeof loss, "%.4f", *state.best.loss);
    const std::string best =
        "the best evaluation, after step " + std::to_string(state.best.step) + " (loss " + loss + ")";
    if (step < 0) {
      log::warn("there is no whole checkpoint of " + best + ": the result is that of the last step");
    } else {
      log::info("the result is that of " + best);
    }
  }

  RunSignals& signals_;
  RunOutput output_;
  // The run goes on from this one; null for a run from the beginning.
  const std::shared_ptr<const checkpoint::ShardedCheckpoint> checkpoint_;
  config::Recipe recipe_;  // as resolved
  RunInputs inputs_;
  parallel::DeviceMesh mesh_;
  checkpoint::BaseFiles base_;
  std::shared_ptr<const models::ModelConfig> model_config_;
  std::optional<text::Tokenizer> tokenizer_;
  std::unique_ptr<data::StepSource> data_;  // until training_ has it
  std::optional<data::Loader> eval_loader_;
  PlannedModel planned_;
  std::optional<Training> training_;
  std::vector<std::unique_ptr<Reporter>> measuring_;  // until loop() has them
};

}  // namespace

TrainSummary train(const config::Recipe& recipe, const std::shared_ptr<comm::Communicator>& world,
                   RunSignals& signals) {
  if (recipe.save_strategy != config::Cadence::No) signals.set_loses_nothing();
  // Ranks with another program or recipe would make other collectives, so these two come before all others.
  check_same_program(std::string("Tessera ") + program_version() + ", LibTorch " TORCH_VERSION, *world);
  check_same_recipe(recipe, *world);
  if (recipe.deterministic) compute_deterministically();
  // A hang is written into this file. One of an earlier run is removed, as it says nothing of this one.
  const std::string hang_file = beside_output(recipe.output_dir, "hang.json");
  if (world->rank() == 0) unlink(hang_file.c_str());
  comm::flight::set_dump_file(hang_file);
  world->set_default_timeout(
      std::chrono::milliseconds(static_cast<int64_t>(recipe.collective_timeout_s * 1000.0)));
  return Run(recipe, world, signals).run();
}

TrainSummary train(const config::Recipe& recipe, const std::shared_ptr<comm::Communicator>& world) {
  RunSignals signals;
  return train(recipe, world, signals);
}

}  // namespace tessera::train

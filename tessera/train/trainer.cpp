#include "tessera/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>

#include <ATen/ATen.h>

#include "tessera/checkpoint/save_folder.h"
#include "tessera/comm/agreed_work.h"
#include "tessera/config/load_recipe.h"
#include "tessera/config/problems.h"
#include "tessera/config/resolve_paths.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/strings.h"
#include "tessera/data/loader_options.h"
#include "tessera/io/file.h"
#include "tessera/io/result_folder.h"
#include "tessera/models/registry.h"
#include "tessera/text/chat_template/chat_template.h"
#include "tessera/train/compute_type.h"
#include "tessera/train/end_notice.h"
#include "tessera/train/metrics.h"
#include "tessera/train/progress.h"
#include "tessera/train/recipe_data.h"
#include "tessera/train/run_schedule.h"
#include "tessera/train/same_inputs.h"
#include "tessera/train/same_recipe.h"
#include "tessera/train/setup.h"
#include "tessera/train/speed_of_light.h"
#include "tessera/train/step.h"

namespace tessera::train {
namespace {

std::unique_ptr<optim::Optimizer> make_optimizer(const config::Recipe& recipe,
                                                 const parallel::ShardedModel& sharded) {
  auto tiles = optimized_tiles(sharded, recipe.weight_decay, recipe.decay_norm_and_bias);
  if (recipe.optimizer == config::OptimizerKind::Sgd) return optim::make_sgd(std::move(tiles));
  return optim::make_adamw(std::move(tiles), {recipe.adam_beta1, recipe.adam_beta2, recipe.adam_epsilon});
}

int64_t total_steps_of(const config::Recipe& recipe, const data::Loader& loader) {
  if (recipe.max_steps > 0) return recipe.max_steps;
  const double steps = recipe.num_epochs * static_cast<double>(loader.steps_per_epoch());
  return std::max<int64_t>(1, static_cast<int64_t>(std::llround(steps)));
}

int64_t peak_rss_of_all(comm::Communicator& world) {
  const at::Tensor peak = at::full({1}, peak_rss_bytes(), at::kLong);
  world.all_reduce(peak, false, {.op = comm::ReduceOp::Max});
  return peak.item<int64_t>();
}

// Every file and folder that the recipe names for reading, and the recipe. Prepared rows inside the output
// folder would keep the result from taking its place.
std::vector<io::ResultInput> recipe_inputs(const config::Recipe& recipe) {
  std::vector<io::ResultInput> inputs = {{"the base model", recipe.base_model},
                                         {"the tokenizer", recipe.tokenizer_config},
                                         {"the adapter to start from", recipe.lora_model_dir},
                                         {"the recipe", recipe.source_file},
                                         {"the chat template", recipe.chat_template_jinja},
                                         {.what = "the folder of the prepared rows (dataset_prepared_path)",
                                          .path = recipe.dataset_prepared_path,
                                          .is_made = true}};
  for (const auto* datasets : {&recipe.datasets, &recipe.test_datasets}) {
    for (const config::DatasetConfig& dataset : *datasets)
      inputs.push_back({"a dataset", dataset.path, dataset.data_files.empty()});
  }
  return inputs;
}

// The recipe's run, in the order in which things happen.
class Run {
 public:
  Run(const config::Recipe& recipe, const std::shared_ptr<comm::Communicator>& world)
      : recipe_(with_compute_type(recipe, *world)), mesh_(world, parallel_dims(recipe, world->size())) {}

  TrainSummary run() {
    check_output();
    plan();
    prepare_data();
    prepare_model();
    begin_output();
    loop();
    save();
    return summary_;
  }

 private:
  bool is_first_rank() const { return mesh_.world()->rank() == 0; }

  // What can be wrong with model, adapter and tokenizer shows before data are read, and at once.
  void plan() {
    base_ = checkpoint::read_base_files(recipe_.base_model);
    model_config_ =
        models::parse_model_config(base_.config, io::join_path(recipe_.base_model, "config.json"));
    config::Problems problems;
    planned_ = plan_model(recipe_, *model_config_, problems);
    tokenizer_ = load_recipe_tokenizer(recipe_, problems);
    problems.settle();
  }

  // Before anything that takes time; nothing of an older result is touched.
  void check_output() {
    summary_.output_dir = recipe_.output_dir;
    comm::AgreedWork work({mesh_.world().get()}, "use output_dir");
    work.run_on_first([&] {
      result_.emplace(recipe_.output_dir, io::ResultOptions{.overwrites = recipe_.overwrite_output_dir,
                                                            .how_to_overwrite = "overwrite_output_dir: true",
                                                            .inputs = recipe_inputs(recipe_)});
      std::error_code ignored;
      has_older_ = io::exists(recipe_.output_dir) && !std::filesystem::is_empty(recipe_.output_dir, ignored);
      end_notice_.emplace(result_->lock_path());
      end_notice_->set("interrupted before the first step" + untouched());
    });
    work.finish();
  }

  // Once the first step is sure to come.
  void begin_output() {
    comm::AgreedWork work({mesh_.world().get()}, "write the output");
    work.run_on_first([&] {
      result_->begin();
      require_space();
      result_->keep_unfinished({"metrics.jsonl", "runs", "recipe.yaml"});
      metrics_ = std::make_unique<MetricsWriter>(result_->staging());
      write_recipe();
      log::info("metrics, until the result is in place: " +
                io::join_path(result_->staging(), "metrics.jsonl"));
    });
    work.finish();
  }

  std::string untouched() const {
    return "; nothing is saved" + std::string(has_older_ ? ", the older result is untouched" : "");
  }

  // What was trained, readable from any folder: an adapter that is continued decides some of its keys.
  void write_recipe() const {
    const config::Recipe trained =
        trained_.adapter ? with_lora_options(recipe_, trained_.adapter->options) : recipe_;
    io::write_file_atomic(io::join_path(result_->staging(), "recipe.yaml"),
                          config::dump_recipe(config::with_absolute_paths(trained)));
  }

  // Somebody may have cleared the folder away while the run went on.
  void put_logs_back() {
    io::make_directories(result_->staging());
    const bool has_recipe = io::exists(io::join_path(result_->staging(), "recipe.yaml"));
    if (!has_recipe) write_recipe();
    if (!metrics_->put_back() && has_recipe) return;
    log::warn("files of this run were removed from " + result_->staging() +
              " meanwhile; they are written again");
  }

  void require_space() const {
    int64_t num_bytes = 0;
    if (recipe_.save_final) {
      num_bytes = checkpoint::weight_bytes(*trained_.sharded, trained_.saved);
      if (tokenizer_) num_bytes += tokenizer_->saved_bytes();
    }
    result_->require_space(num_bytes);
  }

  void prepare_data() {
    // A template may write the date, and ranks may read on two sides of midnight.
    const int64_t now =
        std::stoll(mesh_.world()->all_gather_string(std::to_string(text::local_clock())).front());
    // The ranks of a machine share its cores.
    const data::PreparedData prepared = read_recipe_data(recipe_, *model_config_, tokenizer_,
                                                         std::max<int64_t>(1, at::get_num_threads()), now);

    const int64_t dp_rank = mesh_.coordinate(parallel::kAxisDp), dp_size = mesh_.size(parallel::kAxisDp);
    loader_.emplace(prepared.train, data::train_loader_options(recipe_, dp_rank, dp_size));
    if (prepared.eval.size() > 0) {
      eval_loader_.emplace(prepared.eval, data::eval_loader_options(recipe_, dp_rank, dp_size));
    }
    total_steps_ = total_steps_of(recipe_, *loader_);
    check_same_data(prepared, *mesh_.world());
    data::DatasetStats all;
    for (const auto& stats : prepared.train_stats) all += stats;
    log::info("data: " + describe(prepared.train) + "; " + std::to_string(loader_->steps_per_epoch()) +
              " steps an epoch" +
              (prepared.eval.size() > 0 ? "; to evaluate: " + describe(prepared.eval) : ""));
    const int64_t dropped = all.bad_records + all.dropped_long + all.dropped_short + all.dropped_unlabelled;
    if (dropped > 0) {
      log::warn(std::to_string(dropped) + " records were left out (too long " +
                std::to_string(all.dropped_long) + ", too short " + std::to_string(all.dropped_short) +
                ", nothing to train " + std::to_string(all.dropped_unlabelled) + ", bad " +
                std::to_string(all.bad_records) + "); `tessera data show` tells more");
    }
  }

  static std::string describe(const data::RowSet& rows) {
    int64_t tokens = 0, labels = 0;
    for (int64_t i = 0; i < rows.size(); ++i) {
      tokens += rows.length(i);
      labels += rows.label_count(i);
    }
    return std::to_string(rows.size()) + " rows, " + std::to_string(tokens) + " tokens, " +
           std::to_string(labels) + " of them trained";
  }

  void prepare_model() {
    const Timer timer;
    check_same_model(planned_, base_.config, *mesh_.world());
    trained_ = set_up_model(recipe_, std::move(planned_), mesh_);
    trained_.model->train();
    optimizer_ = make_optimizer(recipe_, *trained_.sharded);
    schedule_ = make_schedule(recipe_, total_steps_);
    int64_t total = 0, trainable = 0;
    for (const auto& parameter : trained_.sharded->parameters()) {
      total += parameter.layout.numel();
      if (parameter.requires_grad) trainable += parameter.layout.numel();
    }
    const auto& dims = mesh_.dims();
    log::info("model: " + std::to_string(total) + " parameters, " + std::to_string(trainable) + " trained; " +
              std::to_string(mesh_.world()->size()) + " rank(s): dp_replicate " +
              std::to_string(dims.dp_replicate) + " x dp_shard " + std::to_string(dims.dp_shard) +
              (dims.tp > 1 ? " x tp " + std::to_string(dims.tp) : "") + "; loaded in " +
              format_duration(timer.seconds()));
    measure_light();
  }

  // GEMM seconds for one token, at the size of a typical micro-batch.
  void measure_light() {
    const int64_t room = recipe_.sequence_len * recipe_.micro_batch_size;
    const int64_t tokens = std::clamp<int64_t>(room, 1, 1024);
    const StepGemms gemms = step_gemms(*trained_.model, tokens, tokens);
    const at::ScalarType type = run_types(recipe_.dtype).compute;
    mesh_.world()->barrier();
    gemm_s_per_token_ = measure_gemms(gemms.layers, type) / static_cast<double>(tokens);
    gemm_s_per_label_ = measure_gemms(gemms.head, type) / static_cast<double>(tokens);
    const auto ranks = static_cast<double>(mesh_.size(parallel::kAxisDp));
    log::info("light: matrix products alone, with every token trained, would run at " +
              std::to_string(std::llround(ranks / (gemm_s_per_token_ + gemm_s_per_label_))) +
              " tokens/s here; '% of light' below is how close a step comes to its products alone");
  }

  void loop() {
    Progress progress(total_steps_);
    const Timer timer;
    for (int64_t step = 0; step < total_steps_; ++step) {
      const Timer step_timer;
      const data::Step data_step = loader_->next_step();
      StepInput input;
      input.micro_batches = &data_step.micro_batches;
      input.label_tokens = data_step.label_tokens;
      input.step = step;
      input.lr = schedule_.at(step);
      input.max_grad_norm = recipe_.max_grad_norm;
      input.seed = static_cast<uint64_t>(recipe_.seed);
      const StepResult result = run_step(trained_, *optimizer_, mesh_, input);
      if (end_notice_) {
        end_notice_->set("interrupted after step " + std::to_string(step + 1) + untouched() +
                         ", the logs stay in " + result_->staging());
      }
      report(data_step, step, input.lr, result, step_timer.seconds(), progress);
      maybe_evaluate(step, data_step, progress);
    }
    progress.finish();
    summary_.steps = total_steps_;
    summary_.seconds = timer.seconds();
  }

  void report(const data::Step& data_step, int64_t step, double lr, const StepResult& result, double seconds,
              Progress& progress) {
    StepMetrics metrics;
    metrics.step = step + 1;
    metrics.epoch = static_cast<double>(data_step.epoch) +
                    (data_step.ends_epoch ? 1.0
                                          : static_cast<double>(data_step.next.sample) /
                                                static_cast<double>(loader_->num_samples()));
    metrics.loss = result.loss;
    metrics.lr = lr;
    metrics.grad_norm = result.grad_norm;
    metrics.tokens = data_step.tokens;
    metrics.label_tokens = data_step.label_tokens;
    metrics.step_s = seconds;
    metrics.tokens_per_s = static_cast<double>(data_step.tokens) / seconds;
    // Ranks work side by side, so the time of their share counts.
    const auto ranks = static_cast<double>(mesh_.size(parallel::kAxisDp));
    metrics.sol = (gemm_s_per_token_ * static_cast<double>(data_step.tokens) +
                   gemm_s_per_label_ * static_cast<double>(data_step.label_tokens)) /
                  ranks / seconds;
    metrics.peak_rss = peak_rss_of_all(*mesh_.world());
    if (step == 0) summary_.first_loss = result.loss;
    summary_.last_loss = result.loss;
    summary_.tokens += data_step.tokens;
    window_.add(metrics);
    const int64_t log_every = std::max<int64_t>(1, count_steps(recipe_.logging_steps, total_steps_));
    if (metrics.step % log_every != 0 && metrics.step != total_steps_) return;
    const StepMetrics line = window_.take();
    if (!is_first_rank()) return;
    metrics_->write(line);
    progress.update(line);
  }

  void maybe_evaluate(int64_t step, const data::Step& data_step, Progress& progress) {
    if (!eval_loader_) return;
    const int64_t steps_per_epoch = loader_->steps_per_epoch();
    if (!is_evaluated(recipe_, step + 1, total_steps_, steps_per_epoch, data_step.ends_epoch)) return;
    const int64_t num_steps = eval_loader_->steps_per_epoch();
    const double loss = evaluate(trained_, mesh_, *eval_loader_, [&](int64_t done) {
      if (is_first_rank()) progress.update_evaluation(done, num_steps);
    });
    if (!std::isfinite(loss)) {
      throw Error(ErrorKind::Numerics, "EVAL-LOSS",
                  "the evaluation loss after step " + std::to_string(step + 1) + " is not finite")
          .got(std::to_string(loss))
          .hint("nothing is saved; lower learning_rate, or check the data");
    }
    if (!is_first_rank()) return;
    metrics_->write_eval(step + 1, loss);
    progress.finish();
    char text[64];
    std::snprintf(text, sizeof text, "eval loss %.4f after step %ld", loss, static_cast<long>(step + 1));
    log::info(text);
  }

  void save() {
    comm::AgreedWork work({mesh_.world().get()}, "save the result");
    work.run_on_first([&] {
      end_notice_->set(
          "interrupted after the last step, as the result was saved: " + recipe_.output_dir +
          (has_older_ ? " holds all of it or all of the older one" : " holds all of it or nothing"));
      put_logs_back();
    });
    work.finish();
    if (recipe_.save_final) {
      work.run_on_first([&] { require_space(); });
      work.finish();
      checkpoint::save_folder(*trained_.sharded, result_folder(trained_, recipe_, base_),
                              result_ ? result_->staging() : "", work);
      work.run_on_first([&] {
        if (tokenizer_) tokenizer_->save(result_->staging());
      });
      work.finish();
    }
    work.run_on_first([&] {
      result_->commit();
      end_notice_.reset();
    });
    work.finish();
    const std::string saved = !recipe_.save_final ? "metrics" : trained_.adapter ? "adapter" : "model";
    log::info(saved + " saved to " + recipe_.output_dir);
  }

  const config::Recipe recipe_;
  parallel::DeviceMesh mesh_;
  // Of the first rank. The logs close before the folder that they lie in is cleared.
  std::optional<io::ResultFolder> result_;
  bool has_older_ = false;
  std::optional<EndNotice> end_notice_;
  std::unique_ptr<MetricsWriter> metrics_;
  checkpoint::BaseFiles base_;
  std::shared_ptr<const models::ModelConfig> model_config_;
  std::optional<text::Tokenizer> tokenizer_;
  std::optional<data::Loader> loader_, eval_loader_;
  PlannedModel planned_;
  TrainedModel trained_;
  MetricsWindow window_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::Schedule schedule_;
  int64_t total_steps_ = 0;
  double gemm_s_per_token_ = 0.0, gemm_s_per_label_ = 0.0;
  TrainSummary summary_;
};

}  // namespace

TrainSummary train(const config::Recipe& recipe, const std::shared_ptr<comm::Communicator>& world) {
  check_same_recipe(recipe, *world);
  world->set_default_timeout(
      std::chrono::milliseconds(static_cast<int64_t>(recipe.collective_timeout_s * 1000.0)));
  return Run(recipe, world).run();
}

}  // namespace tessera::train

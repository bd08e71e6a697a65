#include "tessera/cli/evaluate_tasks.h"

#include <cstdio>
#include <deque>
#include <memory>

#include <nlohmann/json.hpp>

#include "tessera/cli/answering.h"
#include "tessera/cli/compute_options.h"
#include "tessera/cli/task_results.h"
#include "tessera/cli/verbs.h"
#include "tessera/config/scalar.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/progress_line.h"
#include "tessera/core/strings.h"
#include "tessera/core/unix_time.h"
#include "tessera/core/version.h"
#include "tessera/generation/answer_requests.h"
#include "tessera/generation/load_for_inference.h"
#include "tessera/peft/loaded_adapter.h"
#include "tessera/scoring/results.h"
#include "tessera/scoring/task_files.h"
#include "tessera/text/chat_encoding.h"
#include "tessera/text/select_chat_template.h"

namespace tessera::cli {
namespace {

using scoring::Json;

int64_t whole_number(const std::string& key, const std::string& value) {
  const auto number = config::parse_integer(value);
  if (number.status == config::IntegerStatus::Ok && number.value >= 1) return number.value;
  throw Error(ErrorKind::Config, "USAGE", "'" + key + "' has the wrong value")
      .at("command line")
      .got(value)
      .need("a whole number of at least 1");
}

// Applies the keys of a recipe that say how ranks share the model and what it computes in.
void apply_overrides(const TaskRunOptions& options, RankOptions& ranks, ComputeOptions& compute) {
  for (const std::string& text : options.overrides) {
    const size_t equals = text.find('=');
    const std::string key = text.substr(0, equals),
                      value = equals == std::string::npos ? "" : text.substr(equals + 1);
    if (key == "tensor_parallel_size") {
      ranks.tensor_parallel = whole_number(key, value);
    } else if (key == "pipeline_parallel_size") {
      ranks.pipeline_parallel = whole_number(key, value);
    } else if (key == "dtype" && (value == "fp32" || value == "bf16" || value == "fp64")) {
      compute.dtype = value;
    } else if (key == "device") {
      compute.device = value;
    } else {
      throw Error(ErrorKind::Config, "USAGE", "with --tasks the key cannot be set")
          .at("command line")
          .got(text)
          .need("tensor_parallel_size=N, pipeline_parallel_size=N, dtype=fp32, bf16 or fp64, device=...");
    }
  }
}

// Returns the form of prompts that the options ask for.
scoring::PromptForm prompt_form(const TaskRunOptions& options, const text::Tokenizer& tokenizer) {
  scoring::PromptForm form;
  form.system_instruction = options.system_instruction;
  if (!options.applies_chat_template && options.chat_template.empty()) {
    if (options.is_multiturn.value_or(false))
      throw Error(ErrorKind::Config, "USAGE", "examples are turns of a conversation in a chat template alone")
          .at("command line")
          .got("--fewshot_as_multiturn")
          .need("--apply_chat_template");
    return form;
  }
  form.chat_template = text::select_chat_template(options.chat_template, "", "", tokenizer);
  form.options = text::render_options(tokenizer);
  form.is_multiturn = options.is_multiturn.value_or(true);
  return form;
}

// Returns the tasks with their documents and requests, read before the model so that a mistake costs no time.
std::vector<std::unique_ptr<scoring::Task>> load_tasks(const scoring::TaskSelection& selection,
                                                       const TaskRunOptions& options,
                                                       const scoring::PromptForm& form) {
  const scoring::TaskOptions task_options{options.data, options.limit.value_or(0.0), options.num_fewshot,
                                          options.seed, form};
  std::vector<std::unique_ptr<scoring::Task>> tasks;
  for (const scoring::TaskConfig& config : selection.tasks)
    tasks.push_back(std::make_unique<scoring::Task>(config, task_options));
  return tasks;
}

Json run_facts(const TaskRunOptions& options, const std::string& adapters, const ComputeOptions& compute,
               const scoring::PromptForm& form, int64_t max_length, double seconds) {
  Json config = {
      {"model", "tessera"},
      {"model_args", {{"pretrained", options.model}, {"peft", adapters}, {"dtype", compute.dtype}}},
      {"batch_size", options.batch_size},
      {"device", compute.device},
      {"limit", options.limit ? Json(*options.limit) : Json()},
      {"bootstrap_iters", options.bootstrap_iterations},
      {"fewshot_seed", options.seed}};
  return {{"config", config},
          {"date", unix_time_s()},
          {"tessera_version", program_version()},
          {"model_source", "tessera"},
          {"model_name", options.model},
          {"max_length", max_length},
          {"system_instruction", form.system_instruction.empty() ? Json() : Json(form.system_instruction)},
          {"fewshot_as_multiturn", form.is_chat() && form.is_multiturn},
          {"chat_template", form.is_chat() ? Json(form.chat_template->source()) : Json()},
          {"total_evaluation_time_seconds", seconds}};
}

// Has each process hold the whole model, which adapters with names need.
void keep_whole(RankOptions& ranks) {
  if (ranks.tensor_parallel > 1 || ranks.pipeline_parallel > 1) {
    throw Error(ErrorKind::Config, "PARALLELISM", "adapters with names need the whole model in each process")
        .at("command line")
        .got("tensor_parallel_size or pipeline_parallel_size above 1")
        .hint("--nproc N shares the documents among N copies of the model");
  }
  ranks.tensor_parallel = 1;
}

std::vector<std::string> names_of(const std::vector<std::pair<std::string, AdapterOptions>>& named) {
  std::vector<std::string> names;
  for (const auto& [name, adapter] : named) names.push_back(name);
  return names;
}

// A model to score: that of the command line, or that with one of several adapters. Adapters may bring
// tokenizers, and so prompts, of their own.
struct Scored {
  Scored(std::string of_name, std::string of_texts, const std::string& base, const std::string& folder)
      : name(std::move(of_name)), texts(std::move(of_texts)), source(base, folder) {}

  std::string name;   // of the adapter; "" if it has none
  std::string texts;  // the adapter, as it was typed
  generation::ModelSource source;
  scoring::PromptForm form = {};
  std::vector<std::unique_ptr<scoring::Task>> tasks = {};
};

// Scores the tasks; returns the results on the first rank. Collective.
TaskResults score(const Scored& scored, models::CausalLM& model, const generation::InferenceRank& rank,
                  const TaskRunOptions& options, const ComputeOptions& compute) {
  const bool needs_samples = options.logs_samples || !options.baseline.empty();
  const int64_t max_length = options.max_length.value_or(generation::scored_length(model));
  const scoring::RequestEncoder encoder(scored.source.tokenizer(), max_length);
  const Timer timer;
  TaskResults made{.name = scored.name};
  for (const auto& task : scored.tasks) {
    const std::string& name = task->config().name;
    const std::string shown = (scored.name.empty() ? "" : scored.name + ": ") + name;
    if (rank.is_first()) {
      log::info(shown + ": " + group_digits(task->num_scored()) + " documents, " +
                group_digits(std::ssize(task->requests())) + " requests");
    }
    generation::AnswerRequestsOptions answering{
        .batch_size = options.batch_size, .stop_ids = scored.source.stop_ids(model), .seed = options.seed};
    if (rank.is_first() && log::is_terminal()) {
      answering.on_progress = [&shown](int64_t done, int64_t all) {
        log::show_open_line(shown + ": " + group_digits(done) + " of " + group_digits(all));
      };
    }
    const auto responses =
        generation::answer_requests(*task, model, scored.source.tokenizer(), encoder, rank.mesh(), answering);
    if (answering.on_progress) log::clear_open_line();
    if (!rank.is_first()) continue;
    scoring::TaskScores scores = task->score(responses, needs_samples);
    made.results.push_back(scoring::result_of(*task, scores, options.bootstrap_iterations));
    made.samples[name] = std::move(scores.samples);
  }
  made.facts = run_facts(options, scored.texts, compute, scored.form, max_length, timer.seconds());
  return made;
}

}  // namespace

int evaluate_tasks(TaskRunOptions options, const CommandLine& line) {
  RankOptions ranks;
  ranks.nproc = options.nproc;
  ranks.has_many_prompts = true;
  ComputeOptions compute;
  apply_overrides(options, ranks, compute);
  const at::TensorOptions tensor_options = compute.resolved();
  auto named = options.adapters.by_name();
  const bool has_names = !named.empty();
  if (has_names) keep_whole(ranks);
  check_outputs(options, names_of(named));
  const Json baseline = options.baseline.empty() ? Json() : read_results_samples(options.baseline);
  const scoring::TaskSelection selection = scoring::select_tasks(options.tasks);
  if (const auto code = start_ranks(ranks, line)) return *code;
  const generation::InferenceRank rank = join_ranks(ranks, tensor_options.device());
  const generation::ModelSource base(options.model, has_names ? "" : options.adapters.folder());
  if (has_names && !base.adapter().empty()) {
    throw Error(ErrorKind::Config, "ADAPTER-NAME", "the model has an adapter of its own")
        .at(base.adapter())
        .need("its base model, beside adapters with names");
  }
  std::deque<Scored> all;
  for (auto& [name, adapter] : named)
    all.emplace_back(name, join(adapter.texts, ", "), base.base(), adapter.folder());
  if (!has_names) all.emplace_back("", join(options.adapters.texts, ", "), base.base(), base.adapter());
  for (Scored& scored : all) {
    scored.form = prompt_form(options, scored.source.tokenizer());
    scored.tasks = load_tasks(selection, options, scored.form);
  }
  const auto model = base.load(tensor_options, rank.mesh(), {.loaded_adapters = has_names});
  std::vector<peft::LoadedAdapter> adapters;  // those with names
  for (const Scored& scored : all) {
    if (has_names)
      adapters.emplace_back(*model, scored.source.adapter(), model->tied_modules(), model->device());
  }
  Json by_name = Json::object();
  for (size_t i = 0; i < all.size(); ++i) {
    if (has_names) adapters[i].put_on();
    TaskResults made = score(all[i], *model, rank, options, compute);
    if (has_names) adapters[i].take_off();
    if (rank.is_first()) by_name[all[i].name] = tell_results(std::move(made), selection, options, baseline);
  }
  if (rank.is_first() && options.as_json) show_text(text_of(has_names ? by_name : by_name[""]));
  return 0;
}

}  // namespace tessera::cli

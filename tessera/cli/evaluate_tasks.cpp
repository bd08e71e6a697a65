#include "tessera/cli/evaluate_tasks.h"

#include <cstdio>
#include <memory>

#include <nlohmann/json.hpp>

#include "tessera/cli/answering.h"
#include "tessera/cli/compute_options.h"
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
#include "tessera/io/file.h"
#include "tessera/io/output_file.h"
#include "tessera/scoring/paired.h"
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

Json run_facts(const TaskRunOptions& options, const ComputeOptions& compute, const scoring::PromptForm& form,
               int64_t max_length, double seconds) {
  Json config = {{"model", "tessera"},
                 {"model_args",
                  {{"pretrained", options.model},
                   {"peft", join(options.adapters.texts, ", ")},
                   {"dtype", compute.dtype}}},
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

constexpr int64_t kMostResults = int64_t{4} << 30;

// Returns the samples of a results file. Throws Error(Config) for another file.
Json read_results_samples(const std::string& path) {
  Json json = Json::parse(io::read_file(path, kMostResults), nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("samples")) return std::move(json["samples"]);
  throw Error(ErrorKind::Config, "BASELINE", "this is no results file with samples")
      .at(path)
      .need("a file that tessera evaluate --tasks wrote by --output, with --log_samples");
}

void show_differences(const std::vector<scoring::PairedDifference>& differences,
                      const std::string& baseline) {
  show_text("\ncompared with " + baseline + ", document by document\n\n" + scoring::table_of(differences));
}

}  // namespace

int compare_results(const std::string& results, const std::string& baseline, bool as_json) {
  const auto differences =
      scoring::paired_differences(read_results_samples(results), read_results_samples(baseline));
  if (as_json) {
    show_text(Json({{"baseline", baseline}, {"differences", scoring::json_of(differences)}}).dump(2) + "\n");
  } else {
    show_differences(differences, baseline);
  }
  return 0;
}

void add_task_options(CLI::App& verb, CommandLine& line, TaskRunOptions& options) {
  verb.add_option(
          "--tasks", options.tasks,
          "Score tasks in place of the loss: task files of lm-evaluation-harness (F.yaml), or names of "
          "built-in tasks, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_adapter_options(verb, line, options.adapters, "With --tasks: adapter to apply to the model");
  verb.add_option("--output", options.output, "With --tasks: write the results to this new JSON file");
  verb.add_flag("--overwrite", options.overwrites, kOverwriteHelp);
  verb.add_flag("--log-samples,--log_samples", options.logs_samples,
                "With --tasks: add documents, prompts and answers to the results");
  verb.add_option(
          "--baseline", options.baseline,
          "With --tasks: compare each document with this results file of another model (--output with "
          "--log_samples); without, the target is such a file, too")
      ->check(CLI::ExistingFile);
  verb.add_flag("--apply-chat-template,--apply_chat_template", options.applies_chat_template,
                "With --tasks: put the prompts as chats, in the model's template");
  verb.add_option("--chat-template", options.chat_template,
                  "With --tasks: the same in another template, as in tessera generate");
  verb.add_option(
      "--fewshot-as-multiturn,--fewshot_as_multiturn", options.is_multiturn,
      "With --tasks and a chat template: true (the default) makes each example a turn of the chat, "
      "false puts all into one message");
  verb.add_option("--system-instruction,--system_instruction", options.system_instruction,
                  "With --tasks: a text before the description of each task; in chats the system message");
  verb.add_option("--limit", options.limit,
                  "With --tasks: score this many documents of each task; below 1 a share")
      ->check(CLI::NonNegativeNumber);
  verb.add_option("--num-fewshot,--num_fewshot", options.num_fewshot,
                  "With --tasks: examples before each question; default: that of the task")
      ->check(CLI::Range(0, 1000));
  verb.add_option("--batch-size,--batch_size", options.batch_size, "With --tasks: texts to generate at once")
      ->check(CLI::Range(1, 4096));
  verb.add_option("--max-length,--max_length", options.max_length,
                  "With --tasks: tokens that the model takes; longer texts are cut; default: the model's")
      ->check(CLI::Range(1, 1 << 24));
  verb.add_option("--bootstrap-iters,--bootstrap_iters", options.bootstrap_iterations,
                  "With --tasks: resamples for standard errors without a formula; 0 = no standard errors")
      ->check(CLI::Range(0, 10'000'000));
  verb.add_option("--seed", options.seed,
                  "With --tasks: seed of the choice of examples, and of sampled answers");
}

int evaluate_tasks(TaskRunOptions options, const CommandLine& line) {
  RankOptions ranks;
  ranks.nproc = options.nproc;
  ranks.has_many_prompts = true;
  ComputeOptions compute;
  apply_overrides(options, ranks, compute);
  const at::TensorOptions tensor_options = compute.resolved();
  if (!options.output.empty()) {
    io::check_output_file({.path = options.output,
                           .named_by = "--output",
                           .inputs = {{"the model", options.model}, {"the data", options.data}},
                           .overwrites = options.overwrites});
  }
  const Json baseline = options.baseline.empty() ? Json() : read_results_samples(options.baseline);
  const bool needs_samples = options.logs_samples || !options.baseline.empty();
  const scoring::TaskSelection selection = scoring::select_tasks(options.tasks);
  if (const auto code = start_ranks(ranks, line)) return *code;
  const generation::InferenceRank rank = join_ranks(ranks, tensor_options.device());
  const generation::ModelSource source(options.model, options.adapters.folder());
  const scoring::PromptForm form = prompt_form(options, source.tokenizer());
  const auto tasks = load_tasks(selection, options, form);
  const auto model = source.load(tensor_options, rank.mesh());
  const int64_t max_length = options.max_length.value_or(generation::scored_length(*model));
  const scoring::RequestEncoder encoder(source.tokenizer(), max_length);
  const Timer timer;
  std::vector<scoring::Result> results;
  Json samples = Json::object();
  for (const auto& task : tasks) {
    const std::string& name = task->config().name;
    if (rank.is_first()) {
      log::info(name + ": " + group_digits(task->num_scored()) + " documents, " +
                group_digits(std::ssize(task->requests())) + " requests");
    }
    generation::AnswerRequestsOptions answering{
        .batch_size = options.batch_size, .stop_ids = source.stop_ids(*model), .seed = options.seed};
    if (rank.is_first() && log::is_terminal()) {
      answering.on_progress = [&name](int64_t done, int64_t all) {
        log::show_open_line(name + ": " + group_digits(done) + " of " + group_digits(all));
      };
    }
    const auto responses =
        generation::answer_requests(*task, *model, source.tokenizer(), encoder, rank.mesh(), answering);
    if (answering.on_progress) log::clear_open_line();
    if (!rank.is_first()) continue;
    scoring::TaskScores scores = task->score(responses, needs_samples);
    results.push_back(scoring::result_of(*task, scores, options.bootstrap_iterations));
    samples[name] = std::move(scores.samples);
  }
  if (!rank.is_first()) return 0;
  results = scoring::with_groups(std::move(results), selection.groups);
  Json json = scoring::json_of(results);
  json.update(run_facts(options, compute, form, max_length, timer.seconds()));
  std::vector<scoring::PairedDifference> differences;
  if (!options.baseline.empty()) {
    differences = scoring::paired_differences(samples, baseline);
    json["baseline"] = {{"file", options.baseline}, {"differences", scoring::json_of(differences)}};
  }
  json["task_hashes"] = options.logs_samples ? scoring::task_hashes(samples) : Json::object();
  if (options.logs_samples) json["samples"] = std::move(samples);
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (!options.output.empty()) io::write_file_atomic(options.output, text);
  show_text(options.as_json ? text : scoring::table_of(results));
  if (!options.as_json && !differences.empty()) show_differences(differences, options.baseline);
  return 0;
}

}  // namespace tessera::cli

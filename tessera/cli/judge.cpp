// The verbs `tessera judge answer`, `grade`, `show` and `agree`.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tessera/cli/verbs.h"
#include "tessera/core/environment.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/terminal_text.h"
#include "tessera/io/file.h"
#include "tessera/io/json_file.h"
#include "tessera/scoring/judge/agreement.h"
#include "tessera/scoring/judge/answer.h"
#include "tessera/scoring/judge/bench.h"
#include "tessera/scoring/judge/grade.h"
#include "tessera/scoring/judge/tables.h"

namespace tessera::cli {
namespace {

namespace judge = scoring::judge;
using judge::Mode;

constexpr const char* kFolderHelp =
    "Folder of the questions, as FastChat's data/mt_bench, in which answers and judgements are kept too";
constexpr const char* kModelListHelp = "Names of the models; default: all";

// The options of a verb that asks an endpoint.
struct Asking {
  judge::EndpointOptions endpoint;
  std::string request;
  int64_t first_n = 0;

  void add_options(CLI::App& verb, int64_t& max_tokens, int64_t& parallel) {
    verb.add_option(
        "--endpoint", endpoint.url,
        "Address of an OpenAI-compatible API; the key is the environment variable OPENAI_API_KEY");
    verb.add_option("--max-tokens", max_tokens, "Most tokens of an answer")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
    verb.add_option("--parallel", parallel, "Requests at a time")->check(CLI::Range(1, 256));
    verb.add_option("--timeout", endpoint.limits.stall_s, "Seconds to wait for an answer")
        ->check(CLI::Range(1.0, 86400.0));
    verb.add_option("--request", request,
                    "JSON object of further fields for every request; null takes a field away");
    verb.add_option("--first-n", first_n, "Only the first questions; 0 = all")
        ->check(CLI::Range(int64_t{0}, int64_t{1} << 32));
  }

  judge::EndpointOptions endpoint_of(const std::string& model) const {
    judge::EndpointOptions options = endpoint;
    options.model = model;
    options.key = environment::get("OPENAI_API_KEY").value_or("");
    if (request.empty()) return options;
    options.fields = judge::Json(io::parse_json(request, "--request", ErrorKind::Config));
    if (!options.fields.is_object())
      throw Error(ErrorKind::Config, "ENDPOINT-REQUEST", "--request").got(request).need("a JSON object");
    return options;
  }

  std::vector<judge::Question> questions_of(const judge::Bench& bench) const {
    std::vector<judge::Question> questions = judge::read_questions(bench.question_file());
    if (first_n > 0 && first_n < std::ssize(questions)) questions.resize(static_cast<size_t>(first_n));
    return questions;
  }
};

void add_mode(CLI::App& verb, std::string& mode) {
  verb.add_option("--mode", mode,
                  "Rate single answers, compare them with those of --baseline-model, or compare all pairs")
      ->check(CLI::IsMember({"single", "pairwise-baseline", "pairwise-all"}));
}

Mode mode_of(const std::string& name) {
  if (name == "pairwise-baseline") return Mode::PairwiseBaseline;
  return name == "pairwise-all" ? Mode::PairwiseAll : Mode::Single;
}

void print(const std::string& text) { std::fputs(text_for(STDOUT_FILENO, text).c_str(), stdout); }

template <class Table>
void print_table(const Table& table, bool as_json) {
  print(as_json ? json_of(table).dump(2) + "\n" : table_of(table));
}

std::vector<std::string> file_names_of(std::vector<std::string> models) {
  for (std::string& model : models) model = judge::file_name_of(model);
  return models;
}

// Refuses models without answers.
void require_models(const judge::Bench& bench, const std::vector<std::string>& models) {
  for (const std::string& model : models) {
    const std::string file = bench.answer_file(model);
    if (io::exists(file)) continue;
    throw Error(ErrorKind::Config, "JUDGE-MODEL", "the model has no answers")
        .in(file)
        .hint("tessera judge answer makes them");
  }
  if (models.empty())
    throw Error(ErrorKind::Config, "JUDGE-MODEL", "no model has answers")
        .in(io::parent_path(bench.answer_file("model")))
        .hint("tessera judge answer makes them");
}

void add_answer(CLI::App& parent, CommandLine& line) {
  struct Options {
    Asking asking;
    judge::AnswerOptions answer;
    std::string folder, model;
  };
  auto options = std::make_shared<Options>();
  CLI::App* verb = parent.add_subcommand("answer", "Have a model answer the questions");
  verb->add_option("folder", options->folder, kFolderHelp)->required();
  verb->add_option("--model", options->model, "Name of the model, as the endpoint knows it")->required();
  verb->add_option("--model-id", options->answer.model_id,
                   "Name of the model in the files; default: --model, with -- for each /");
  options->asking.add_options(*verb, options->answer.max_tokens, options->answer.parallel);
  verb->add_option("--num-choices", options->answer.num_choices,
                   "Answers to each question; the judge reads the first")
      ->check(CLI::Range(1, 1024));
  verb->add_option("--force-temperature", options->answer.force_temperature,
                   "Temperature of all answers; default: that of the question's category")
      ->check(CLI::Range(0.0, 2.0));
  verb->add_option("--system", options->answer.system, "System message of every conversation; default: none");
  line.set_action(*verb, [options] {
    const judge::Bench bench(options->folder);
    std::string& id = options->answer.model_id;
    id = judge::file_name_of(id.empty() ? options->model : id);
    const std::string file = bench.answer_file(id);
    const size_t count =
        judge::make_answers(options->asking.questions_of(bench), options->asking.endpoint_of(options->model),
                            options->answer, file);
    log::info(std::to_string(count) + " new answers in " + file);
    return 0;
  });
}

void add_grade(CLI::App& parent, CommandLine& line) {
  struct Options {
    Asking asking;
    judge::GradeOptions grade;
    std::string folder, mode = "single", baseline = "gpt-3.5-turbo", reference, prompt_file;
    std::vector<std::string> models;
  };
  auto options = std::make_shared<Options>();
  CLI::App* verb = parent.add_subcommand("grade", "Have a judge rate or compare the answers of models");
  verb->add_option("folder", options->folder, kFolderHelp)->required();
  verb->add_option("--judge-model", options->grade.judge, "Name of the judge, as the endpoint knows it")
      ->required();
  add_mode(*verb, options->mode);
  verb->add_option("--model-list", options->models, kModelListHelp);
  verb->add_option("--baseline-model", options->baseline, "The other model of pairwise-baseline");
  options->asking.add_options(*verb, options->grade.max_tokens, options->grade.parallel);
  verb->add_option("--reference", options->reference,
                   "Whose file of reference_answer the judge is given; default: its own, else gpt-4");
  verb->add_option("--judge-file", options->prompt_file,
                   "File of the judge's prompts; default: judge_prompts.jsonl in the folder or above it");
  line.set_action(*verb, [options] {
    const judge::Bench bench(options->folder);
    const Mode mode = mode_of(options->mode);
    const std::string baseline = judge::file_name_of(options->baseline);
    std::vector<std::string> models =
        options->models.empty() ? bench.models() : file_names_of(options->models);
    judge::MatchInput input{.questions = options->asking.questions_of(bench),
                            .prompts = judge::JudgePrompts(
                                options->prompt_file.empty() ? bench.prompt_file() : options->prompt_file)};
    std::vector<std::string> read = models;
    if (mode == Mode::PairwiseBaseline) read.push_back(baseline);
    require_models(bench, read);
    for (const std::string& model : read)
      input.answers.try_emplace(model, judge::Answers(bench.answer_file(model)));
    if (std::ranges::any_of(input.questions, &judge::Question::needs_reference)) {
      const std::string& name = options->grade.judge;
      input.references = judge::Answers(bench.reference_file(
          options->reference.empty() ? bench.usual_reference(name) : options->reference));
    }
    const std::string file = judge::judgment_file(options->folder, options->grade.judge, is_pairwise(mode));
    const judge::Graded graded =
        judge::grade(make_matches(input, mode, models, baseline),
                     options->asking.endpoint_of(options->grade.judge), options->grade, file);
    log::info(std::to_string(graded.num_new) + " new judgements in " + file);
    if (graded.num_undecided > 0)
      log::warn(std::to_string(graded.num_undecided) + " of them tell no rating or winner");
    return 0;
  });
}

// Refuses a table of which the options have left nothing.
void require_rows(bool has_rows, const std::string& file) {
  if (has_rows) return;
  throw Error(ErrorKind::Data, "JUDGE-ROWS", "the file has no verdict on these models")
      .in(file)
      .hint("--model-list and --baseline-model choose among its models");
}

void add_show(CLI::App& parent, CommandLine& line) {
  struct Options {
    std::string folder, mode = "single", judge, baseline = "gpt-3.5-turbo";
    std::vector<std::string> models;
    bool as_json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* verb = parent.add_subcommand("show", "Show the scores or win rates of models");
  verb->add_option("folder", options->folder, kFolderHelp)->required();
  verb->add_option("--judge-model", options->judge, "Name of the judge; default: the only one there is");
  add_mode(*verb, options->mode);
  verb->add_option("--model-list", options->models, kModelListHelp);
  verb->add_option("--baseline-model", options->baseline, "The other model of pairwise-baseline");
  verb->add_flag("--json", options->as_json, "Print one JSON object");
  line.set_action(*verb, [options] {
    const Mode mode = mode_of(options->mode);
    const bool has_pairs = is_pairwise(mode);
    const std::string name =
        options->judge.empty() ? judge::only_judge(options->folder, has_pairs) : options->judge;
    const std::string file = judge::judgment_file(options->folder, name, has_pairs);
    const auto rows = judge::read_rows(file);
    const auto models = file_names_of(options->models);
    if (has_pairs) {
      const bool has_baseline = mode == Mode::PairwiseBaseline;
      const judge::Comparison table =
          judge::compare_models(rows, models, has_baseline ? judge::file_name_of(options->baseline) : "");
      require_rows(!table.models.empty(), file);
      print_table(table, options->as_json);
    } else {
      const auto table = judge::rate_models(rows, models);
      require_rows(!table.empty(), file);
      print_table(table, options->as_json);
    }
    return 0;
  });
}

void add_agree(CLI::App& parent, CommandLine& line) {
  struct Options {
    std::vector<std::string> files, judges = {"gpt4-pair", "human"};
    bool as_json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* verb = parent.add_subcommand("agree", "Show how often two judges, or a judge and people, agree");
  verb->add_option("files", options->files,
                   "Files of votes (.json, .jsonl, .parquet), or of pairwise judgements (*_pair.jsonl)")
      ->required()
      ->check(CLI::ExistingFile);
  verb->add_option("--judges", options->judges,
                   "Two judges: human, author, gpt4-pair (gpt-4), or the name of another one; the same "
                   "twice compares its votes with each other")
      ->expected(2);
  verb->add_flag("--json", options->as_json, "Print one JSON object");
  line.set_action(*verb, [options] {
    judge::Votes votes;
    for (const std::string& file : options->files) votes.add(judge::read_rows(file));
    print_table(votes.compare(options->judges[0], options->judges[1]), options->as_json);
    if (votes.num_undecided() > 0)
      log::info(std::to_string(votes.num_undecided()) + " judgements without a verdict are left out");
    return 0;
  });
}

}  // namespace

void add_judge(CLI::App& app, CommandLine& line) {
  CLI::App* verb = app.add_subcommand(
      "judge", "MT-bench: have models answer questions, and a model judge the answers, as FastChat does");
  verb->require_subcommand(1);
  add_answer(*verb, line);
  add_grade(*verb, line);
  add_show(*verb, line);
  add_agree(*verb, line);
  verb->footer(
      "Example, with the questions in mt_bench, a server of the model and a judge:\n"
      "  tessera judge answer mt_bench --model my-model --endpoint http://127.0.0.1:8000/v1\n"
      "  tessera judge grade mt_bench --judge-model gpt-4 --endpoint https://api.openai.com/v1\n"
      "  tessera judge show mt_bench\n"
      "The files are those of FastChat. A command that was interrupted goes on where it stood. See "
      "docs/judge.md.");
}

}  // namespace tessera::cli

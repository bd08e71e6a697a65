// The verbs `tessera judge answer` and `grade`, which ask an endpoint.
#include <algorithm>
#include <memory>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/cli/judge_options.h"
#include "tessera/core/environment.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/io/file.h"
#include "tessera/io/json_file.h"
#include "tessera/scoring/judge/answer.h"
#include "tessera/scoring/judge/grade.h"

namespace tessera::cli {
namespace {

namespace judge = scoring::judge;
using judge::Mode;

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

}  // namespace

void add_judge_answer(CLI::App& parent, CommandLine& line) {
  struct Options {
    Asking asking;
    judge::AnswerOptions answer;
    std::string folder, model;
  };
  auto options = std::make_shared<Options>();
  CLI::App* verb = parent.add_subcommand("answer", "Have a model answer the questions");
  verb->add_option("folder", options->folder, kJudgeFolderHelp)->required();
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

void add_judge_grade(CLI::App& parent, CommandLine& line) {
  struct Options {
    Asking asking;
    judge::GradeOptions grade;
    JudgeSelection selection;
    std::string folder, reference, prompt_file;
  };
  auto options = std::make_shared<Options>();
  CLI::App* verb = parent.add_subcommand("grade", "Have a judge rate or compare the answers of models");
  verb->add_option("folder", options->folder, kJudgeFolderHelp)->required();
  verb->add_option("--judge-model", options->grade.judge, "Name of the judge, as the endpoint knows it")
      ->required();
  options->selection.add_options(*verb);
  options->asking.add_options(*verb, options->grade.max_tokens, options->grade.parallel);
  verb->add_option("--reference", options->reference,
                   "Whose file of reference_answer the judge is given; default: its own, else gpt-4");
  verb->add_option("--judge-file", options->prompt_file,
                   "File of the judge's prompts; default: judge_prompts.jsonl in the folder or above it");
  line.set_action(*verb, [options] {
    const judge::Bench bench(options->folder);
    const Mode mode = options->selection.mode();
    const std::string baseline = options->selection.baseline_name();
    std::vector<std::string> models = options->selection.model_names();
    if (models.empty()) models = bench.models();
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

}  // namespace tessera::cli

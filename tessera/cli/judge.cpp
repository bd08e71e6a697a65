// The verb `tessera judge`, and under it `show` and `agree`, which ask nobody.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tessera/cli/judge_options.h"
#include "tessera/cli/verbs.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/terminal_text.h"
#include "tessera/scoring/judge/agreement.h"
#include "tessera/scoring/judge/tables.h"

namespace tessera::cli {
namespace {

namespace judge = scoring::judge;

void print(const std::string& text) { std::fputs(text_for(STDOUT_FILENO, text).c_str(), stdout); }

template <class Table>
void print_table(const Table& table, bool as_json) {
  print(as_json ? json_of(table).dump(2) + "\n" : table_of(table));
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
    JudgeSelection selection;
    std::string folder, judge;
    bool as_json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* verb = parent.add_subcommand("show", "Show the scores or win rates of models");
  verb->add_option("folder", options->folder, kJudgeFolderHelp)->required();
  verb->add_option("--judge-model", options->judge, "Name of the judge; default: the only one there is");
  options->selection.add_options(*verb);
  verb->add_flag("--json", options->as_json, "Print one JSON object");
  line.set_action(*verb, [options] {
    const judge::Mode mode = options->selection.mode();
    const bool has_pairs = is_pairwise(mode);
    const std::string name =
        options->judge.empty() ? judge::only_judge(options->folder, has_pairs) : options->judge;
    const std::string file = judge::judgment_file(options->folder, name, has_pairs);
    const auto rows = judge::read_rows(file);
    const auto models = options->selection.model_names();
    if (has_pairs) {
      const bool has_baseline = mode == judge::Mode::PairwiseBaseline;
      const judge::Comparison table =
          judge::compare_models(rows, models, has_baseline ? options->selection.baseline_name() : "");
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

void JudgeSelection::add_options(CLI::App& verb) {
  verb.add_option("--mode", mode_name,
                  "Rate single answers, compare them with those of --baseline-model, or compare all pairs")
      ->check(CLI::IsMember({"single", "pairwise-baseline", "pairwise-all"}));
  verb.add_option("--model-list", models, "Names of the models; default: all");
  verb.add_option("--baseline-model", baseline, "The other model of pairwise-baseline");
}

judge::Mode JudgeSelection::mode() const {
  if (mode_name == "pairwise-baseline") return judge::Mode::PairwiseBaseline;
  return mode_name == "pairwise-all" ? judge::Mode::PairwiseAll : judge::Mode::Single;
}

std::vector<std::string> JudgeSelection::model_names() const {
  std::vector<std::string> names = models;
  for (std::string& name : names) name = judge::file_name_of(name);
  return names;
}

void add_judge(CLI::App& app, CommandLine& line) {
  CLI::App* verb = app.add_subcommand(
      "judge",
      "Run MT-bench as FastChat does: models answer questions, and another model judges the answers");
  verb->require_subcommand(1);
  add_judge_answer(*verb, line);
  add_judge_grade(*verb, line);
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

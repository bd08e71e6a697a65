// The options that several verbs of `tessera judge` have.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "tessera/cli/command_line.h"
#include "tessera/scoring/judge/bench.h"
#include "tessera/scoring/judge/match.h"

namespace tessera::cli {

inline constexpr const char* kJudgeFolderHelp =
    "Folder of the questions, as FastChat's data/mt_bench, in which answers and judgements are kept too";

// Whose judgements a verb makes or shows.
struct JudgeSelection {
  std::string mode_name = "single", baseline = "gpt-3.5-turbo";
  std::vector<std::string> models;  // none: all

  void add_options(CLI::App& verb);
  scoring::judge::Mode mode() const;
  // Return names as they stand in names of files.
  std::string baseline_name() const { return scoring::judge::file_name_of(baseline); }
  std::vector<std::string> model_names() const;
};

// Add the verbs that ask an endpoint.
void add_judge_answer(CLI::App& judge, CommandLine& line);
void add_judge_grade(CLI::App& judge, CommandLine& line);

}  // namespace tessera::cli

// The verb `tessera report`.
#include <memory>

#include <CLI/CLI.hpp>

#include "tessera/cli/verbs.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/io/file.h"
#include "tessera/report/page.h"

namespace tessera::cli {
namespace {

// Refuses a file that is not an older report: a report may be replaced, another file of the user's may not.
void check_place(const std::string& path) {
  if (!io::exists(path)) return;
  const std::string begin = report::kPageBegin;
  const io::File file = io::File::open(path);
  std::string found(std::min<size_t>(begin.size(), static_cast<size_t>(file.size())), '\0');
  file.read_at(0, found.data(), static_cast<int64_t>(found.size()));
  if (found == begin) return;
  throw Error(ErrorKind::Config, "REPORT", "the file exists and is no report, so it stays")
      .at(path)
      .hint("give another with --output");
}

int write_report(const std::vector<std::string>& folders, const std::string& output) {
  check_place(output);
  const std::vector<report::RunRecord> runs = report::read_runs(folders);
  const std::string page = report::page(runs);
  io::write_file_atomic(output, page);
  log::info(output + ": " + std::to_string(runs.size()) + (runs.size() == 1 ? " run, " : " runs, ") +
            format_bytes(static_cast<int64_t>(page.size())) + "; open it in a browser");
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  struct Options {
    std::vector<std::string> folders;
    std::string output = "report.html";
  };
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("report", "Show runs, also while they go on, as one HTML page");
  verb->add_option("folders", options->folders, "Output folders of runs, or folders of such folders")
      ->required();
  verb->add_option("-o,--output", options->output, "The page to write")->capture_default_str();
  verb->footer(
      "The page holds everything that it shows and opens without a network: a table of the runs, charts of\n"
      "what they measured with a line for each run, their recipes and where these differ.");
  verb->callback(
      [options, &action] { action = [options] { return write_report(options->folders, options->output); }; });
}

}  // namespace tessera::cli

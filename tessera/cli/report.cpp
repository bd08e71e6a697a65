// The verb `tessera report`.
#include "tessera/cli/report.h"

#include <memory>

#include <CLI/CLI.hpp>

#include "tessera/cli/verbs.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/io/file.h"
#include "tessera/io/output_file.h"
#include "tessera/report/page.h"

namespace tessera::cli {

int write_report(const std::vector<std::string>& folders, const std::string& output,
                 const std::string& named_by, bool overwrites) {
  std::vector<io::ResultInput> inputs;
  for (const std::string& folder : folders) inputs.push_back({"a run", folder});
  io::check_output_file({.path = output,
                         .named_by = named_by,
                         .inputs = inputs,
                         .is_earlier_output = io::begins_with(report::kPageBegin),
                         .overwrites = overwrites});
  const std::vector<report::RunRecord> runs = report::read_runs(folders);
  const std::string page = report::page(runs);
  io::write_file_atomic(output, page);
  log::info(output + ": " + std::to_string(runs.size()) + (runs.size() == 1 ? " run, " : " runs, ") +
            format_bytes(static_cast<int64_t>(page.size())) + "; open it in a browser");
  return 0;
}

void add_report(CLI::App& app, CommandLine& line) {
  struct Options {
    std::vector<std::string> folders;
    std::string output = "report.html";
    bool overwrite = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("report", "Show finished and running runs as one HTML page");
  verb->add_option("folders", options->folders,
                   "Output folders of runs, or folders that contain such folders")
      ->required();
  verb->add_option("-o,--output", options->output, "HTML page to write")->capture_default_str();
  verb->add_flag("--overwrite", options->overwrite, kOverwriteHelp);
  verb->footer(
      "The page is self-contained and needs no network. It has a table of the runs, charts of their metrics "
      "with a\nline for each run, their recipes and the differences between them. Controls above the charts "
      "choose steps,\ntokens or time for the x axis, a linear or logarithmic y axis, and the smoothing of "
      "the lines.");
  line.set_action(*verb, [options] {
    return write_report(options->folders, options->output, "--output", options->overwrite);
  });
}

}  // namespace tessera::cli

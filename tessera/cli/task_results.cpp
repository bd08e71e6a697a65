#include "tessera/cli/task_results.h"

#include <filesystem>
#include <utility>

#include "tessera/cli/answering.h"
#include "tessera/core/error.h"
#include "tessera/io/file.h"
#include "tessera/io/output_file.h"
#include "tessera/scoring/paired.h"

namespace tessera::cli {
namespace {

using scoring::Json;

constexpr int64_t kMostResults = int64_t{4} << 30;

void show_differences(const std::vector<scoring::PairedDifference>& differences,
                      const std::string& baseline) {
  show_text("\ncompared with " + baseline + ", document by document\n\n" + scoring::table_of(differences));
}

// Returns the results file of an adapter with a name: its name comes before the extension.
std::string output_of(const std::string& output, const std::string& name) {
  if (name.empty() || output.empty()) return output;
  const std::filesystem::path path(output);
  return (path.parent_path() / (path.stem().string() + "." + name + path.extension().string())).string();
}

}  // namespace

void check_outputs(const TaskRunOptions& options, const std::vector<std::string>& names) {
  if (options.output.empty()) return;
  std::vector<std::string> files;
  for (const std::string& name : names) files.push_back(output_of(options.output, name));
  if (names.empty()) files.push_back(options.output);
  for (const std::string& file : files) {
    io::check_output_file({.path = file,
                           .named_by = "--output",
                           .inputs = {{"the model", options.model}, {"the data", options.data}},
                           .overwrites = options.overwrites});
  }
}

std::string text_of(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json read_results_samples(const std::string& path) {
  Json json = Json::parse(io::read_file(path, kMostResults), nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("samples")) return std::move(json["samples"]);
  throw Error(ErrorKind::Config, "BASELINE", "this is no results file with samples")
      .at(path)
      .need("a file that tessera evaluate --tasks wrote by --output, with --log_samples");
}

Json tell_results(TaskResults made, const scoring::TaskSelection& selection, const TaskRunOptions& options,
                  const Json& baseline) {
  const auto results = scoring::with_groups(std::move(made.results), selection.groups);
  Json json = scoring::json_of(results);
  json.update(made.facts);
  std::vector<scoring::PairedDifference> differences;
  if (!options.baseline.empty()) {
    differences = scoring::paired_differences(made.samples, baseline);
    json["baseline"] = {{"file", options.baseline}, {"differences", scoring::json_of(differences)}};
  }
  json["task_hashes"] = options.logs_samples ? scoring::task_hashes(made.samples) : Json::object();
  if (options.logs_samples) json["samples"] = std::move(made.samples);
  if (!options.output.empty()) io::write_file_atomic(output_of(options.output, made.name), text_of(json));
  if (options.as_json) return json;
  if (!made.name.empty()) show_text(made.name + "\n\n");
  show_text(scoring::table_of(results));
  if (!differences.empty()) show_differences(differences, options.baseline);
  if (!made.name.empty()) show_text("\n");
  return json;
}

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

}  // namespace tessera::cli

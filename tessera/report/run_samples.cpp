#include "tessera/report/run_samples.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/html_text.h"
#include "tessera/io/file.h"
#include "tessera/io/json_file.h"
#include "tessera/io/json_values.h"

namespace tessera::report {
namespace {

constexpr int64_t kMaxSamples = int64_t{1} << 30;  // bytes
constexpr size_t kMostSteps = 20;
// A longer text has a height of its own, within which the reader moves.
constexpr size_t kLongText = 1200;

void add_sample(const std::string& line, const std::string& file, int64_t number,
                std::vector<SampleStep>& steps) {
  const nlohmann::json json = io::parse_json(line, file + ":" + std::to_string(number), ErrorKind::Data);
  const auto step = json.is_object() && json.contains("step") ? io::integer_of(json["step"]) : std::nullopt;
  if (!step) {
    throw Error(ErrorKind::Data, "SAMPLES", "not a sample of a step")
        .at(file, number)
        .need("an object with \"step\"");
  }
  const auto text = [&](const char* name) {
    const auto found = json.find(name);
    return found != json.end() && found->is_string() ? found->get<std::string>() : "";
  };
  if (steps.empty() || steps.back().step != *step) steps.push_back({*step, {}});
  steps.back().rows.push_back(
      {text("dataset"), text("prompt"), text("expected"), text("generated"), text("finish")});
}

std::string cell(const char* name, const std::string& text, const std::string& note = "") {
  const std::string inner = html_text(text) + note;
  const std::string block = text.size() < kLongText ? inner : "<div tabindex=\"0\">" + inner + "</div>";
  return std::string("<td data-name=\"") + name + "\">" + block + "</td>";
}

// The live page's tables are the same (report/samples_script.h).
std::string table(const SampleStep& step) {
  std::string html =
      "<div class=\"wide\" tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\">row</th><th scope=\"col\">"
      "prompt</th><th scope=\"col\">expected</th><th scope=\"col\">generated</th></tr></thead>\n<tbody>\n";
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const SampleRow& row = step.rows[i];
    const std::string note = row.finish.empty() || row.finish == "stop" ? ""
                             : row.finish == "length"
                                 ? "<span class=\"note\"> … cut</span>"
                                 : "<span class=\"note\"> " + html_text(row.finish) + "</span>";
    const std::string name = std::to_string(i + 1) + (row.dataset.empty() ? "" : " " + row.dataset);
    html += "<tr><th scope=\"row\">" + html_text(name) + "</th>" + cell("prompt", row.prompt) +
            cell("expected", row.expected) + cell("generated", row.generated, note) + "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace

std::vector<SampleStep> read_samples(const std::string& path) {
  std::vector<SampleStep> steps;
  if (!io::exists(path)) return steps;
  const std::string text = io::read_file(path, kMaxSamples);
  int64_t number = 0;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    ++number;
    if (end > begin) add_sample(text.substr(begin, end - begin), path, number, steps);
  }
  return steps;
}

std::string samples_html(const std::string& run, const std::vector<SampleStep>& steps) {
  if (steps.empty()) return "";
  std::string html = "<section class=\"samples\"><h2>Samples of " + html_text(run) + "</h2>\n";
  const size_t stride = (steps.size() + kMostSteps - 1) / kMostSteps;
  for (size_t back = 0; back < steps.size(); back += stride) {
    const SampleStep& step = steps[steps.size() - 1 - back];
    html += std::string("<details") + (back == 0 ? " open" : "") + "><summary>after step " +
            std::to_string(step.step) + "</summary>\n" + table(step) + "</details>\n";
  }
  return html + "</section>\n";
}

}  // namespace tessera::report

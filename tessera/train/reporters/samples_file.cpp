#include "tessera/train/reporters/samples_file.h"

#include <cstdio>

#include <nlohmann/json.hpp>

#include "tessera/core/terminal_text.h"
#include "tessera/core/utf8.h"

namespace tessera::train {
namespace {

using Json = nlohmann::ordered_json;

// Writes JSON in which a terminal finds nothing to act on. A reader of the JSON gets the same texts.
std::string safe_text(const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string safe;
  for (size_t i = 0; i < text.size();) {
    const auto [code_point, size] = decode_char(text.data(), i);
    char escape[8];
    // All of these characters lie below U+10000, where an escape has four digits.
    std::snprintf(escape, sizeof escape, "\\u%04x", code_point & 0xffff);
    safe += acts_on_terminal(code_point) ? escape : text.substr(i, size);
    i += size;
  }
  return safe;
}

}  // namespace

void SamplesFile::on_evaluation(int64_t step, const Evaluated& evaluated) {
  std::string lines;
  for (const Sample& sample : evaluated.samples) {
    Json json = {{"step", step}};
    if (!sample.dataset.empty()) json["dataset"] = sample.dataset;
    json.update(Json{{"prompt", sample.prompt},
                     {"expected", sample.expected},
                     {"generated", sample.generated},
                     {"finish", sample.finish}});
    lines += safe_text(json) + "\n";
  }
  if (!lines.empty()) logs_.append(file_, lines);
}

}  // namespace tessera::train

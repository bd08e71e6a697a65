#include "tessera/train/reporters/sample_table.h"

#include <sstream>

namespace tessera::train {

const std::vector<std::string>& sample_columns() {
  static const std::vector<std::string> kColumns = {"step",     "dataset",   "prompt",
                                                    "expected", "generated", "finish"};
  return kColumns;
}

SampleRows sample_rows(int64_t step, const std::vector<Sample>& samples) {
  SampleRows rows = SampleRows::array();
  for (const Sample& sample : samples)
    rows.push_back({step, sample.dataset, sample.prompt, sample.expected, sample.generated, sample.finish});
  return rows;
}

std::map<int64_t, SampleRows> rows_of_samples_file(const std::string& text) {
  std::map<int64_t, SampleRows> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::ordered_json::parse(line);
    SampleRows row = SampleRows::array();
    for (const std::string& column : sample_columns())
      row.push_back(json.contains(column) ? json.at(column) : SampleRows(""));
    rows[json.at("step").get<int64_t>()].push_back(std::move(row));
  }
  return rows;
}

std::string table_text(const SampleRows& rows) {
  const SampleRows table = {{"columns", sample_columns()}, {"data", rows}};
  return table.dump(-1, ' ', false, SampleRows::error_handler_t::replace);
}

}  // namespace tessera::train

// Samples as tables, alike for all trackers that show tables.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/train/step/metrics.h"

namespace tessera::train {

// The name under which trackers show samples.
inline constexpr const char* kSamplesTag = "eval/samples";

// Rows of a table: arrays of the step, a number, and of texts. Texts may hold any bytes.
using SampleRows = nlohmann::ordered_json;

// Returns "step", "dataset", "prompt", "expected", "generated", "finish".
const std::vector<std::string>& sample_columns();
SampleRows sample_rows(int64_t step, const std::vector<Sample>& samples);
// Returns the rows in the text of a samples.jsonl, by their steps.
std::map<int64_t, SampleRows> rows_of_samples_file(const std::string& text);
// Returns {"columns": [...], "data": [[...], ...]}, the form of tables in files of Weights & Biases and of
// MLflow. Bytes that are no UTF-8 become U+FFFD.
std::string table_text(const SampleRows& rows);

}  // namespace tessera::train

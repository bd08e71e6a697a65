#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/data/prompts/classification.h"
#include "tessera/data/prompts/fields.h"
#include "tessera/data/prompts/llama_factory.h"
#include "tessera/data/prompts/token_classification.h"
#include "tessera/data/readers/dataset_files.h"
#include "tessera/data/readers/parse_record.h"
#include "tessera/data/readers/record_batches.h"
#include "tessera/data/readers/split.h"

namespace tessera::data {
namespace {

constexpr int64_t kBatchBytes = int64_t{16} << 20;
constexpr int64_t kMostClasses = 1 << 20;

// Gathers what the labels of all records show.
class Labels {
 public:
  void add(const nlohmann::ordered_json& label) {
    if (label.is_array()) {
      is_list_ = true;
      if (!label.empty() && label.front().is_number()) width_ = std::max(width_, std::ssize(label));
      for (const auto& one : label) {
        if (one.is_string()) add_one(one);
        if (one.is_number_float() && one.get<double>() != std::floor(one.get<double>())) is_whole_ = false;
      }
      return;
    }
    add_one(label);
  }

  Classification result(std::optional<ProblemType> known) const {
    Classification found;
    const bool are_measures = are_numbers_ && (!is_whole_ || (has_floats_ && !is_list_));
    found.problem = known.value_or(are_measures ? ProblemType::Regression
                                   : is_list_   ? ProblemType::MultiLabel
                                                : ProblemType::SingleLabel);
    const bool is_number = found.problem == ProblemType::Regression;
    if (is_number) {
      found.labels = default_labels(std::max<int64_t>(1, width_));
    } else if (!names_.empty() && (is_list_ || !are_numbers_)) {
      found.labels.assign(names_.begin(), names_.end());
    } else {
      found.labels = default_labels(is_list_ ? width_ : largest_ + 1);
    }
    return found;
  }

 private:
  void add_one(const nlohmann::ordered_json& label) {
    const std::optional<double> number = label_number(label);
    if (const auto* name = label.get_ptr<const std::string*>()) {
      names_.insert(*name);
      are_numbers_ = are_numbers_ && number;
    }
    if (label.is_boolean()) largest_ = std::max<int64_t>(largest_, 1);
    if (!number) return;
    has_floats_ = has_floats_ || label.is_number_float();
    is_whole_ = is_whole_ && *number == std::floor(*number);
    if (*number < static_cast<double>(kMostClasses))
      largest_ = std::max(largest_, static_cast<int64_t>(*number));
  }

  std::set<std::string> names_;
  bool are_numbers_ = true;  // all names say numbers
  int64_t largest_ = -1, width_ = 0;
  bool is_list_ = false, is_whole_ = true, has_floats_ = false;
};

}  // namespace

Classification find_classes(const config::DataConfig& config, std::optional<ProblemType> known) {
  const bool of_tokens = known == ProblemType::Tokens;
  Labels labels;
  for (const config::DatasetConfig& entry : config.datasets) {
    const config::DatasetConfig dataset = resolve_dataset_info(entry, config.source_folder);
    const std::vector<DatasetFile> files = find_dataset_files(dataset, config.source_folder);
    RecordBatches batches(files, {0, std::numeric_limits<int64_t>::max()}, config.on_bad_line == "skip",
                          kBatchBytes);
    for (RecordBatch batch; batches.next(batch);) {
      for (const RawRecord& record : batch.records) {
        const auto fields = parse_record(record, batch.file->path);
        if (!of_tokens) {
          if (const auto* label = find_field(fields, dataset.field_label)) labels.add(*label);
          continue;
        }
        if (const auto* tags = find_field(fields, find_word_columns(fields, dataset).labels)) {
          for (const auto& tag : *tags) labels.add(tag);
        }
      }
    }
  }
  Classification found = labels.result(known);
  if (found.labels.empty()) {
    throw Error(ErrorKind::Data, "LABELS", "the datasets have no labels")
        .need("a column of labels, which field_label of the entry names")
        .hint("num_labels or label_names in the recipe says what there is");
  }
  return found;
}

}  // namespace tessera::data

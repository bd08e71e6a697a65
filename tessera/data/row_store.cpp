#include "tessera/data/row_store.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "tessera/core/error.h"

namespace tessera::data {

void RowStore::append(std::span<const int32_t> input_ids, std::span<const int32_t> labels) {
  TESSERA_ASSERT(input_ids.size() == labels.size(), "row with labels of another length");
  TESSERA_ASSERT(input_ids.size() <= static_cast<size_t>(std::numeric_limits<int32_t>::max()),
                 "row too long");
  const auto size = static_cast<int32_t>(labels.size());
  for (int32_t i = 0; i < size; ++i) {
    if (labels[i] == kIgnoreLabel) continue;
    TESSERA_ASSERT(labels[i] == input_ids[i], "label that is not the row's own token");
    const bool extends = i > 0 && labels[i - 1] != kIgnoreLabel;
    if (extends) {
      runs_.back().end = i + 1;
    } else {
      runs_.push_back({i, i + 1});
    }
  }
  tokens_.insert(tokens_.end(), input_ids.begin(), input_ids.end());
  token_offsets_.push_back(static_cast<int64_t>(tokens_.size()));
  run_offsets_.push_back(static_cast<int64_t>(runs_.size()));
}

void RowStore::begin_dataset(const std::string& name) {
  std::string unique = name;
  for (int number = 2; std::ranges::find(dataset_names_, unique) != dataset_names_.end(); ++number)
    unique = name + "-" + std::to_string(number);
  dataset_names_.push_back(std::move(unique));
  dataset_begins_.push_back(size());
}

int64_t RowStore::dataset(int64_t row) const {
  const auto next = std::ranges::upper_bound(dataset_begins_, row);
  return std::max<int64_t>(0, next - dataset_begins_.begin() - 1);
}

int64_t RowStore::label_count(int64_t row) const {
  int64_t count = 0;
  for (const LabelRun& run : label_runs(row)) count += run.end - std::max(run.begin, 1);
  return count;
}

Row RowStore::row(int64_t row) const {
  const auto ids = tokens(row);
  Row out{{ids.begin(), ids.end()}, std::vector<int32_t>(ids.size(), static_cast<int32_t>(kIgnoreLabel))};
  for (const LabelRun& run : label_runs(row)) {
    std::copy(ids.begin() + run.begin, ids.begin() + run.end, out.labels.begin() + run.begin);
  }
  return out;
}

int64_t count_trained(std::span<const int32_t> labels) {
  if (labels.empty()) return 0;
  return std::count_if(labels.begin() + 1, labels.end(), [](int32_t label) { return label != kIgnoreLabel; });
}

}  // namespace tessera::data

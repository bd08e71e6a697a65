#include "tessera/data/row_store.h"

#include <algorithm>
#include <utility>

#include "tessera/core/error.h"

namespace tessera::data {

void RowStore::append(std::span<const int32_t> input_ids, std::span<const int32_t> labels) {
  append(Row{{input_ids.begin(), input_ids.end()}, {labels.begin(), labels.end()}});
}

void RowStore::append(const Row& row) {
  if (parts_.empty() || parts_.back().file) parts_.push_back({size_, nullptr, {}});
  parts_.back().buffer.append(row);
  ++size_;
  num_tokens_ += static_cast<int64_t>(row.input_ids.size());
}

void RowStore::append(std::shared_ptr<const RowFile> file) {
  if (file->entries().empty()) return;
  const auto num_rows = static_cast<int64_t>(file->entries().size());
  num_tokens_ += file->num_tokens();
  parts_.push_back({size_, std::move(file), {}});
  size_ += num_rows;
}

void RowStore::begin_dataset(const std::string& name) {
  dataset_names_.push_back(unique_name(name, dataset_names_));
  dataset_begins_.push_back(size());
}

int64_t RowStore::dataset(int64_t row) const {
  const auto next = std::ranges::upper_bound(dataset_begins_, row);
  return std::max<int64_t>(0, next - dataset_begins_.begin() - 1);
}

const RowStore::Part& RowStore::part_of(int64_t row) const {
  return *(std::ranges::upper_bound(parts_, row, {}, &Part::first_row) - 1);
}

std::span<const int32_t> RowStore::tokens(int64_t row) const {
  const Part& part = part_of(row);
  const RowEntry& entry = part.entry(row);
  return {part.words() + entry.offset, static_cast<size_t>(entry.length)};
}

std::span<const LabelRun> RowStore::label_runs(int64_t row) const {
  static_assert(sizeof(LabelRun) == 2 * sizeof(int32_t));
  const Part& part = part_of(row);
  const RowEntry& entry = part.entry(row);
  // The runs lie behind the row's tokens.
  return {reinterpret_cast<const LabelRun*>(part.words() + entry.offset + entry.length),
          static_cast<size_t>(entry.num_runs)};
}

std::span<const int32_t> RowStore::further_words(int64_t row) const {
  const Part& part = part_of(row);
  const RowEntry& entry = part.entry(row);
  return {part.words() + entry.offset + entry.length + 2 * int64_t{entry.num_runs},
          static_cast<size_t>(entry.num_further)};
}

std::span<const float> RowStore::targets(int64_t row) const {
  static_assert(sizeof(float) == sizeof(int32_t));
  const auto further = further_words(row);
  if (further.empty()) return {};
  const int64_t count = std::clamp<int64_t>(further.front(), 0, std::ssize(further) - 1);
  return {reinterpret_cast<const float*>(further.data() + 1), static_cast<size_t>(count)};
}

std::span<const int32_t> RowStore::type_ids(int64_t row) const {
  const auto further = further_words(row);
  return further.empty() ? further : further.subspan(1 + targets(row).size());
}

void RowStore::check(int64_t row) const {
  const Part& part = part_of(row);
  if (!part.file || hash_of_row(tokens(row), label_runs(row), further_words(row)) == part.entry(row).hash)
    return;
  throw Error(ErrorKind::Storage, "DAMAGED-ROWS",
              "prepared row " + std::to_string(row - part.first_row) + " is not what was written")
      .in(part.file->path())
      .hint("remove the file and start again: its rows will be prepared again");
}

Row RowStore::row(int64_t row) const {
  check(row);
  const auto ids = tokens(row);
  Row out{{ids.begin(), ids.end()}, std::vector<int32_t>(ids.size(), static_cast<int32_t>(kIgnoreLabel))};
  int32_t end_before = 0;
  for (const LabelRun& run : label_runs(row)) {
    if (run.begin == end_before && run.begin > 0) out.run_starts.push_back(run.begin);
    end_before = run.end;
    std::copy(ids.begin() + run.begin, ids.begin() + run.end, out.labels.begin() + run.begin);
  }
  out.targets.assign(targets(row).begin(), targets(row).end());
  out.type_ids.assign(type_ids(row).begin(), type_ids(row).end());
  return out;
}

std::string unique_name(const std::string& name, const std::vector<std::string>& taken) {
  std::string unique = name;
  for (int number = 2; std::ranges::find(taken, unique) != taken.end(); ++number)
    unique = name + "-" + std::to_string(number);
  return unique;
}

int64_t count_trained(std::span<const int32_t> labels) {
  if (labels.empty()) return 0;
  return std::count_if(labels.begin() + 1, labels.end(), [](int32_t label) { return label != kIgnoreLabel; });
}

int64_t count_trained(const Row& row) {
  const bool reads_first = !row.targets.empty() && !row.labels.empty() && row.labels.front() != kIgnoreLabel;
  return count_trained(row.labels) + (reads_first ? 1 : 0);
}

}  // namespace tessera::data

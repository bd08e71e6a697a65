// Which records of an entry's files are read: a split by name, a slice of it, a shard of that.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/config/data_config.h"
#include "tessera/core/error.h"

namespace tessera::data {

// "train[100:200]", "test[:10%]", "train[-50:]".
struct SplitSlice {
  struct Bound {
    int64_t value = 0;
    bool percent = false;
  };
  std::string name = "train";
  std::optional<Bound> begin, end;

  bool all() const { return !begin && !end; }
  // Whether resolve_range() needs the number of records.
  bool needs_count() const;
};

// Throws Error(Config) at the entry.
SplitSlice parse_split(const config::DatasetConfig& dataset);

struct RecordRange {
  int64_t begin = 0, end = 0;  // end is exclusive
};

// The records that the slice and the shard (`shards`, `shards_idx`: contiguous, sizes differ by at most one)
// leave of `num_records`. Percentages round to the nearest record.
RecordRange resolve_range(const SplitSlice& slice, int64_t shards, int64_t shards_idx, int64_t num_records);

// The split that a file's name tells, by the rules of the datasets library: "train" of
// train-00000-of-00002.parquet, data/train.jsonl or train/0.json, "validation" also of dev and val, "test"
// also of eval; any word before -00000-of-00002. Empty where it tells none. `path` is relative to the
// dataset's folder.
std::string split_of_file(const std::string& path);
// "dev" and "val" are "validation", "eval" is "test".
std::string usual_split_name(const std::string& name);

// An Error(Config) at the entry.
Error entry_error(const config::DatasetConfig& dataset, std::string_view name, const std::string& what);
// The one for a split that is not among `others`.
Error no_split_error(const config::DatasetConfig& dataset, const std::string& place,
                     const std::vector<std::string>& others);

}  // namespace tessera::data

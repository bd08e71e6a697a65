// Selects the records of an entry's files that are read: a split by name, a slice of it, a shard of that.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/config/data_config.h"
#include "tessera/config/entry_error.h"
#include "tessera/core/error.h"

namespace tessera::data {

// The parsed `split` of an entry, such as "train[100:200]", "test[:10%]" or "train[-50:]".
struct SplitSlice {
  struct Bound {
    int64_t value = 0;
    bool percent = false;
  };
  std::string name = "train";
  std::optional<Bound> begin, end;

  bool all() const { return !begin && !end; }
  // Returns whether resolve_range() needs the number of records.
  bool needs_count() const;
};

// Parses the entry's `split`. Throws Error(Config) at the entry.
SplitSlice parse_split(const config::DatasetConfig& dataset);

struct RecordRange {
  int64_t begin = 0, end = 0;  // end is exclusive
};

// Returns the records that the slice, and then the shard (`shards`, `shards_idx`), leave of `num_records`.
// Shards are contiguous, and their sizes differ by at most one. Percentages round to the nearest record.
RecordRange resolve_range(const SplitSlice& slice, int64_t shards, int64_t shards_idx, int64_t num_records);

// Returns the split that a file's name tells, by the rules of the datasets library: "train" of
// train-00000-of-00002.parquet, data/train.jsonl or train/0.json, "validation" also of dev and val, "test"
// also of eval; any word before -00000-of-00002. The result is empty if the name tells none. `path` is
// relative to the dataset's folder.
std::string split_of_file(const std::string& path);
// Returns the usual name of a split: "validation" for "dev" and "val", "test" for "eval", else `name`.
std::string usual_split_name(const std::string& name);

using config::entry_error;
// Makes the Error(Config) for a split that is not among `others`.
Error no_split_error(const config::DatasetConfig& dataset, const std::string& place,
                     const std::vector<std::string>& others);

}  // namespace tessera::data

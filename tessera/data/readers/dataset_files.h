// Which files a dataset entry names, and which of their records.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/config/data_config.h"
#include "tessera/data/readers/record_reader.h"

namespace tessera::data {

struct DatasetFile {
  std::string path;
  FileFormat format = FileFormat::JsonLines;
};

// The files of an entry in a fixed order: `path` itself, or the files below it in the order of their names
// (only `data_files`, which may hold * and ?, where given). A relative path that is not in the current
// folder starts at `source_folder`. Throws Error(Config) at the entry for a missing path, an unknown format
// or no files.
std::vector<DatasetFile> find_dataset_files(const config::DatasetConfig& dataset,
                                            const std::string& source_folder);

// The slice in "train[100:200]", "train[:10%]", "train[-50:]".
struct SplitSlice {
  struct Bound {
    int64_t value = 0;
    bool percent = false;
  };
  std::optional<Bound> begin, end;

  bool all() const { return !begin && !end; }
  // Whether resolve() needs the number of records.
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

}  // namespace tessera::data

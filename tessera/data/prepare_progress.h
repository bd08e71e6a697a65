// Tells people who wait how far the preparation of a dataset is.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/data/readers/record_batches.h"

namespace tessera::data {

// Logs a line with a bar every five seconds, by log::info().
class PrepareProgress {
 public:
  PrepareProgress(std::string name, const std::vector<DatasetFile>& files);

  // Counts a batch that has been made into rows, and logs a line if it is time.
  void tell(const RecordBatch& batch);

 private:
  using Clock = std::chrono::steady_clock;

  std::string name_;
  int64_t total_bytes_ = 0;  // 0 if unknown, as for compressed files and tables
  int64_t bytes_ = 0, records_ = 0;
  Clock::time_point begin_ = Clock::now(), next_;
};

// Returns a line such as "set: [=====>    ] 52 % 1.1 GiB 120.4 MiB/s, 1234567 records, 8s left". The share
// and the time left are missing if `total_bytes` is 0.
std::string prepare_progress_line(const std::string& name, int64_t bytes, int64_t total_bytes,
                                  int64_t records, double seconds);

}  // namespace tessera::data

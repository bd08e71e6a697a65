// How far the preparation of a dataset is, for people who wait for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/data/readers/record_batches.h"

namespace tessera::data {

// A line with a bar every five seconds, by log::info().
class PrepareProgress {
 public:
  PrepareProgress(std::string name, const std::vector<DatasetFile>& files);

  // The batch is done.
  void tell(const RecordBatch& batch);

 private:
  using Clock = std::chrono::steady_clock;

  std::string name_;
  int64_t total_bytes_ = 0;  // 0 where compressed files or tables do not tell
  int64_t bytes_ = 0, records_ = 0;
  Clock::time_point begin_ = Clock::now(), next_;
};

// "set: [=====>    ] 52 % 1.1 GiB 120.4 MiB/s, 1234567 records, 8s left"
std::string prepare_progress_line(const std::string& name, int64_t bytes, int64_t total_bytes,
                                  int64_t records, double seconds);

}  // namespace tessera::data

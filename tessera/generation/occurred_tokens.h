// Records which tokens have occurred in sequences, for repetition penalties on a device.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/nn/kv_cache.h"

namespace tessera::generation {

// A table on the cache's device with one row of flags, [vocabulary], for each sequence that asks for one. A
// sequence keeps its row until the cache no longer has the sequence; the row is then given to another one.
// The host waits for nothing. The cache must outlive the table.
class OccurredTokens {
 public:
  OccurredTokens(const nn::KvCache& cache, int64_t vocabulary) : cache_(cache), vocabulary_(vocabulary) {}

  // Number of the row that stands for all sequences without a row: it may be written, and what it holds means
  // nothing.
  static constexpr int64_t kNobodys = 0;
  // Returns the number of a sequence's row. A sequence without a row gets one in which nothing has occurred.
  int64_t row_of(int64_t sequence);
  // Forgets what has occurred in the sequence of a row.
  void clear(int64_t row) { has_occurred_.select(0, row).zero_(); }
  // Notes that ids[i] has occurred in row rows[i]; both are int64 tensors of one size on the device.
  void add(const at::Tensor& rows, const at::Tensor& ids);
  // Returns the flags of some rows, [rows, vocabulary] bool; `rows` is [rows] int64 on the device.
  at::Tensor of(const at::Tensor& rows) const { return has_occurred_.index_select(0, rows); }

 private:
  const nn::KvCache& cache_;
  int64_t vocabulary_;
  static constexpr int64_t kNobody = -1;
  at::Tensor has_occurred_;                     // [rows, vocabulary] bool
  std::vector<int64_t> sequences_ = {kNobody};  // the sequence that each row belongs to
};

}  // namespace tessera::generation

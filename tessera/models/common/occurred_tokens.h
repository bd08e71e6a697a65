// Which tokens have occurred in sequences, for penalties of repetition on a device.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/nn/kv_cache.h"

namespace tessera::models {

// A row of the vocabulary for each sequence that asks for one, on the cache's device, kept until the cache
// has no such sequence any more. The host waits for nothing. The cache must outlive it.
class OccurredTokens {
 public:
  OccurredTokens(const nn::KvCache& cache, int64_t vocabulary) : cache_(cache), vocabulary_(vocabulary) {}

  // Of sequences without a row, which may be written and says nothing.
  static constexpr int64_t kNobodys = 0;
  // The row of a sequence; a new one, in which nothing has occurred, where it has none.
  int64_t row_of(int64_t sequence);
  // ids[i] has occurred in row rows[i]; both [any number] int64 on the device.
  void add(const at::Tensor& rows, const at::Tensor& ids);
  // [rows, vocabulary] bool, of rows [rows] int64 on the device.
  at::Tensor of(const at::Tensor& rows) const { return has_occurred_.index_select(0, rows); }

 private:
  const nn::KvCache& cache_;
  int64_t vocabulary_;
  static constexpr int64_t kNobody = -1;
  at::Tensor has_occurred_;                     // [rows, vocabulary] bool
  std::vector<int64_t> sequences_ = {kNobody};  // of each row
};

}  // namespace tessera::models

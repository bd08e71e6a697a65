// Whether ranks agree on the pieces that they exchange.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tessera/comm/byte_exchange.h"

namespace tessera::comm::detail {

// What each rank sends and takes, in elements. A rank's row: what it takes from each rank, then what it sends
// to each.
class ExchangeTable {
 public:
  // rows: of all ranks, in their order. Throws Error(Peer) where a rank does not take what another one sends:
  // the same on every rank.
  ExchangeTable(std::vector<int64_t> rows, int64_t num_ranks);

  int64_t taken(int64_t by, int64_t from) const { return rows_[2 * by * num_ranks_ + from]; }
  int64_t sent(int64_t by, int64_t to) const { return rows_[(2 * by + 1) * num_ranks_ + to]; }
  int64_t longest() const;

 private:
  std::vector<int64_t> rows_;
  int64_t num_ranks_;
};

std::vector<int64_t> exchange_row(const std::vector<int64_t>& output_counts,
                                  const std::vector<int64_t>& input_counts);

// That of the ranks whose bytes `gather` gathers, as ByteExchange::all_gather() does.
ExchangeTable gather_table(
    const std::function<void(void* output, const void* input, const std::vector<int64_t>& num_bytes)>& gather,
    const std::vector<int64_t>& output_counts, const std::vector<int64_t>& input_counts);

// Looks first whether the ranks agree. On the host.
void all_to_all_v(ByteExchange& ranks, void* output, const void* input,
                  const std::vector<int64_t>& output_counts, const std::vector<int64_t>& input_counts,
                  int64_t element_bytes);

}  // namespace tessera::comm::detail

// Compares the pieces that ranks exchange, so that a disagreement is an error on all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tessera/comm/byte_exchange.h"

namespace tessera::comm::detail {

// The numbers of elements that each rank sends to and takes from every rank. A rank's row holds first what it
// takes from each rank, then what it sends to each.
class ExchangeTable {
 public:
  // `rows` holds the rows of all ranks, in the order of the ranks. Throws Error(Peer), the same on every
  // rank, if a rank does not take what another one sends.
  ExchangeTable(std::vector<int64_t> rows, int64_t num_ranks);

  int64_t taken(int64_t by, int64_t from) const { return rows_[2 * by * num_ranks_ + from]; }
  int64_t sent(int64_t by, int64_t to) const { return rows_[(2 * by + 1) * num_ranks_ + to]; }
  // The largest number of elements that one rank sends to another.
  int64_t longest() const;

 private:
  std::vector<int64_t> rows_;
  int64_t num_ranks_;
};

// Gives this rank's row of the table.
std::vector<int64_t> exchange_row(const std::vector<int64_t>& output_counts,
                                  const std::vector<int64_t>& input_counts);

// Makes the table of all ranks. `gather` gathers their rows; it has the contract of
// ByteExchange::all_gather().
ExchangeTable gather_table(
    const std::function<void(void* output, const void* input, const std::vector<int64_t>& num_bytes)>& gather,
    const std::vector<int64_t>& output_counts, const std::vector<int64_t>& input_counts);

// Compares the ranks' counts, which are in elements of `element_bytes`, then exchanges the pieces. Throws
// Error(Peer) on every rank if counts differ. For data on the host.
void all_to_all_v(ByteExchange& ranks, void* output, const void* input,
                  const std::vector<int64_t>& output_counts, const std::vector<int64_t>& input_counts,
                  int64_t element_bytes);

}  // namespace tessera::comm::detail

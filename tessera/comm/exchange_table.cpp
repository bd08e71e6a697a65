#include "tessera/comm/exchange_table.h"

#include <algorithm>

#include "tessera/core/error.h"

namespace tessera::comm::detail {

ExchangeTable::ExchangeTable(std::vector<int64_t> rows, int64_t num_ranks)
    : rows_(std::move(rows)), num_ranks_(num_ranks) {
  for (int64_t from = 0; from < num_ranks; ++from) {
    for (int64_t to = 0; to < num_ranks; ++to) {
      if (sent(from, to) == taken(to, from)) continue;
      const std::string ends = " from rank " + std::to_string(from) + " to rank " + std::to_string(to);
      throw Error(ErrorKind::Peer, "MISMATCH", "the ranks' counts of an all-to-all differ" + ends)
          .got(std::to_string(sent(from, to)) + " elements sent by rank " + std::to_string(from))
          .need(std::to_string(taken(to, from)) + ", which rank " + std::to_string(to) + " takes");
    }
  }
}

int64_t ExchangeTable::longest() const { return *std::max_element(rows_.begin(), rows_.end()); }

std::vector<int64_t> exchange_row(const std::vector<int64_t>& output_counts,
                                  const std::vector<int64_t>& input_counts) {
  std::vector<int64_t> row = output_counts;
  row.insert(row.end(), input_counts.begin(), input_counts.end());
  return row;
}

ExchangeTable gather_table(
    const std::function<void(void* output, const void* input, const std::vector<int64_t>& num_bytes)>& gather,
    const std::vector<int64_t>& output_counts, const std::vector<int64_t>& input_counts) {
  const size_t num_ranks = output_counts.size();
  const std::vector<int64_t> row = exchange_row(output_counts, input_counts);
  std::vector<int64_t> rows(num_ranks * row.size());
  gather(rows.data(), row.data(),
         std::vector<int64_t>(num_ranks, static_cast<int64_t>(row.size() * sizeof(int64_t))));
  return {std::move(rows), static_cast<int64_t>(num_ranks)};
}

void all_to_all_v(ByteExchange& ranks, void* output, const void* input,
                  const std::vector<int64_t>& output_counts, const std::vector<int64_t>& input_counts,
                  int64_t element_bytes) {
  gather_table([&](auto&&... all) { ranks.all_gather(all...); }, output_counts, input_counts);
  const auto bytes = [&](std::vector<int64_t> counts) {
    for (int64_t& count : counts) count *= element_bytes;
    return counts;
  };
  ranks.all_to_all_v(output, input, bytes(output_counts), bytes(input_counts));
}

}  // namespace tessera::comm::detail

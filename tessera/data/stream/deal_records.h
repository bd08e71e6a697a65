// Documents that ranks read and tokenise for each other.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "tessera/data/stream/row_exchange.h"
#include "tessera/data/stream/window_reader.h"
#include "tessera/data/tokenize_records.h"

namespace tessera::data {

// Documents of a window that are tokenised at a time.
struct Block {
  size_t first = 0, last = 0;  // documents, `last` not among them
  // Of their records, counted from 0: where the share of each rank begins, and the end.
  std::vector<size_t> shares;
};

// Where the shares of `ranks` ranks begin in a list of texts of these sizes, and its end: neighbours, of
// about the same size in sum.
std::vector<size_t> deal_by_size(std::span<const size_t> sizes, size_t ranks);

// The documents of a window from `first` on, in blocks of as much text as `ranks` ranks tokenise at a time.
std::vector<Block> cut_blocks(const Window& window, size_t first, size_t ranks);

// A window that rank `reader` reads, by read(): of each block a rank gets the texts of its own share, of the
// other records all but their texts (the reader keeps them). Documents are of `files`, which every rank has.
// Collective. Throws on every rank where the reader failed.
struct DealtWindow {
  Window window;
  std::vector<Block> blocks;
};
DealtWindow deal_window(RowExchange& exchange, size_t reader, const std::vector<DatasetFile>& files,
                        const std::function<Window()>& read);

// What becomes of the records of a block: make(begin, end) is asked for this rank's share of them, and the
// other ranks for the rest. Collective. Throws on every rank where make() threw on one.
std::vector<TokenizedRecord> deal_records(
    RowExchange& exchange, const Block& block,
    const std::function<std::vector<TokenizedRecord>(size_t begin, size_t end)>& make);

}  // namespace tessera::data

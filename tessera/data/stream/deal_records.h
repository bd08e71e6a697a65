// Deals the reading and tokenising of documents to ranks.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "tessera/data/stream/stream_exchange.h"
#include "tessera/data/stream/window_reader.h"
#include "tessera/data/tokenize_records.h"

namespace tessera::data {

// Documents of a window that are tokenised together.
struct Block {
  size_t first = 0, last = 0;  // numbers of documents in the window; `last` is exclusive
  // [ranks + 1]: where the share of each rank begins, and the end, in the records of these documents, counted
  // from 0.
  std::vector<size_t> shares;
};

// Deals a list of texts of these sizes to `ranks` ranks: each share is a run of neighbours, and all are of
// about the same size in sum. Returns where each share begins, and the end: [ranks + 1].
std::vector<size_t> deal_by_size(std::span<const size_t> sizes, size_t ranks);

// Cuts the documents of a window, from `first` on, into blocks of as much text as `ranks` ranks tokenise at a
// time.
std::vector<Block> cut_blocks(const Window& window, size_t first, size_t ranks);

// A window as one rank has it: of each block the rank has the texts of its own share, and of the other
// records everything but the text. The rank that has read the window keeps all texts.
struct DealtWindow {
  Window window;
  std::vector<Block> blocks;
};
// Lets rank `reader` read a window by read(), and deals it to all ranks. The documents are of `files`, which
// is the same on every rank. Collective. Throws on every rank if read() throws.
DealtWindow deal_window(StreamExchange& exchange, size_t reader, const std::vector<DatasetFile>& files,
                        const std::function<Window()>& read);

// Returns the outcome of all records of a block. make(begin, end) is asked for this rank's share of them, and
// the other ranks' outcomes come from these. Collective. Throws on every rank if make() throws on one.
std::vector<TokenizedRecord> deal_records(
    StreamExchange& exchange, const Block& block,
    const std::function<std::vector<TokenizedRecord>(size_t begin, size_t end)>& make);

}  // namespace tessera::data

#include "tessera/data/stream/deal_records.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/data/stream/wire.h"

namespace tessera::data {
namespace {

// [Note: a failure is dealt too] deal_window() and deal_records() are collective: a rank that threw before
// its call of the exchange would leave the others waiting in theirs. So a rank that fails sends its error in
// place of its part, and only then throws; the others throw the error when they open its message. If several
// ranks fail at once, each throws its own error, and all other ranks throw that of the first of these.

// Bytes of text that one rank tokenises at a time, and the most that all ranks together do.
constexpr size_t kTextAtOnce = size_t{1} << 20, kMostAtOnce = size_t{16} << 20;

// The parts of a place that a window's ends have; their document and token are 0.
constexpr int64_t StreamPlace::*kPlace[] = {&StreamPlace::pass,  &StreamPlace::file, &StreamPlace::record,
                                            &StreamPlace::index, &StreamPlace::line, &StreamPlace::offset};

void write_place(const StreamPlace& place, WireWriter& out) {
  for (const auto field : kPlace) out.number(place.*field);
}

StreamPlace read_place(WireReader& in) {
  StreamPlace place;
  for (const auto field : kPlace) place.*field = in.signed_number();
  return place;
}

void write_record(const RawRecord& record, bool has_text, WireWriter& out) {
  out.number(record.line);
  out.number(record.column);
  out.number(record.byte_offset);
  // -1 is no element, and numbers on the wire are unsigned.
  out.number(record.element + 1);
  const bool has_value = has_text && record.value != nullptr;
  out.number(uint64_t{record.begins_document ? 1U : 0U} + (record.ends_document ? 2U : 0U) +
             (has_value ? 4U : 0U));
  std::string value;
  if (has_value) nlohmann::ordered_json::to_cbor(*record.value, value);
  out.text(has_value ? value : has_text ? std::string_view(record.text) : "");
}

RawRecord read_record(WireReader& in) {
  RawRecord record;
  record.line = in.signed_number();
  record.column = in.signed_number();
  record.byte_offset = in.signed_number();
  record.element = in.signed_number() - 1;
  const uint64_t flags = in.number();
  record.begins_document = (flags & 1U) != 0;
  record.ends_document = (flags & 2U) != 0;
  const std::string_view text = in.text();
  if ((flags & 4U) != 0) {
    record.value = std::make_shared<const nlohmann::ordered_json>(nlohmann::ordered_json::from_cbor(text));
  } else {
    record.text = text;
  }
  return record;
}

// Returns the message that holds a window for one rank, with the texts of that rank's shares alone.
std::string write_window(const DealtWindow& dealt, const std::vector<DatasetFile>& files, size_t rank) {
  const Window& window = dealt.window;
  WireWriter out = begin_message();
  write_place(window.begin, out);
  write_place(window.end, out);
  out.number(window.blank_lines);
  out.number(window.bad_records);
  out.text(window.first_bad);
  out.number(dealt.blocks.size());
  for (const Block& block : dealt.blocks) {
    out.number(block.last - block.first);
    for (const size_t share : block.shares) out.number(share);
    size_t record = 0;
    for (size_t d = block.first; d < block.last; ++d) {
      const StreamedDocument& document = window.documents[d];
      out.number(static_cast<uint64_t>(document.file - files.data()));
      out.number(document.records.size());
      for (const RawRecord& one : document.records) {
        write_record(one, record >= block.shares[rank] && record < block.shares[rank + 1], out);
        ++record;
      }
    }
  }
  return out.take();
}

DealtWindow read_window(WireReader in, const std::vector<DatasetFile>& files, size_t ranks) {
  DealtWindow dealt;
  Window& window = dealt.window;
  window.begin = read_place(in);
  window.end = read_place(in);
  window.blank_lines = in.signed_number();
  window.bad_records = in.signed_number();
  window.first_bad = in.text();
  dealt.blocks.resize(in.number());
  for (Block& block : dealt.blocks) {
    block.first = window.documents.size();
    block.last = block.first + in.number();
    block.shares.resize(ranks + 1);
    for (size_t& share : block.shares) share = in.number();
    while (window.documents.size() < block.last) {
      const size_t file = in.number();
      TESSERA_ASSERT(file < files.size(), "ranks have other files");
      StreamedDocument& document = window.documents.emplace_back(StreamedDocument{&files[file], {}});
      for (uint64_t left = in.number(); left > 0; --left) document.records.push_back(read_record(in));
    }
  }
  return dealt;
}

// A label is the token id at its place, or kIgnoreLabel. So it is enough to write the lengths of runs that
// are in turn masked and trained; the first run is masked, and may be empty.
void write_row(const Row& row, WireWriter& out) {
  out.ids(row.input_ids);
  bool trained = false;
  for (auto at = row.labels.begin(); at != row.labels.end(); trained = !trained) {
    const auto end =
        std::find_if(at, row.labels.end(), [&](int32_t label) { return (label != kIgnoreLabel) != trained; });
    out.number(static_cast<uint64_t>(end - at));
    at = end;
  }
}

Row read_row(WireReader& in) {
  Row row = {in.ids(), {}};
  row.labels.assign(row.input_ids.size(), kIgnoreLabel);
  bool trained = false;
  for (size_t at = 0; at < row.labels.size(); trained = !trained) {
    const size_t count = in.number();
    TESSERA_ASSERT(count <= row.labels.size() - at, "more labels than ids");
    const auto begin = static_cast<std::ptrdiff_t>(at);
    if (trained) std::copy_n(row.input_ids.begin() + begin, count, row.labels.begin() + begin);
    at += count;
  }
  return row;
}

std::string write_records(const std::vector<TokenizedRecord>& records) {
  WireWriter out = begin_message();
  for (const TokenizedRecord& record : records) {
    out.number(record.rows.size());
    for (const Row& row : record.rows) write_row(row, out);
    for (const auto count : kStatCounts) out.number(record.stats.*count);
    out.text(record.stats.details());
    out.number(uint64_t{record.error ? 1U : 0U} + (record.must_raise ? 2U : 0U));
    if (record.error) out.error(*record.error);
  }
  return out.take();
}

std::vector<TokenizedRecord> read_records(WireReader in) {
  std::vector<TokenizedRecord> records;
  while (!in.is_at_end()) {
    TokenizedRecord& record = records.emplace_back();
    for (uint64_t left = in.number(); left > 0; --left) record.rows.push_back(read_row(in));
    for (const auto count : kStatCounts) record.stats.*count = in.signed_number();
    record.stats.set_details(std::string(in.text()));
    const uint64_t flags = in.number();
    record.must_raise = (flags & 2U) != 0;
    if ((flags & 1U) != 0) record.error = in.error();
  }
  return records;
}

}  // namespace

std::vector<size_t> deal_by_size(std::span<const size_t> sizes, size_t ranks) {
  const size_t sum = std::accumulate(sizes.begin(), sizes.end(), size_t{0});
  std::vector<size_t> begins(ranks + 1, sizes.size());
  size_t rank = 0, before = 0;
  for (size_t i = 0; i < sizes.size(); before += sizes[i++]) {
    // A text belongs to the share in which its middle lies.
    const size_t share = sum == 0 ? 0 : std::min(ranks - 1, (2 * before + sizes[i]) * ranks / (2 * sum));
    while (rank <= share) begins[rank++] = i;
  }
  return begins;
}

std::vector<Block> cut_blocks(const Window& window, size_t first, size_t ranks) {
  const size_t most = std::min(kMostAtOnce, kTextAtOnce * ranks);
  std::vector<Block> blocks;
  while (first < window.documents.size()) {
    Block& block = blocks.emplace_back(Block{first, first, {}});
    std::vector<size_t> sizes;
    for (size_t bytes = 0; block.last < window.documents.size() && bytes < most; ++block.last) {
      for (const RawRecord& record : window.documents[block.last].records) {
        sizes.push_back(static_cast<size_t>(record.bytes()));
        bytes += sizes.back();
      }
    }
    block.shares = deal_by_size(sizes, ranks);
    first = block.last;
  }
  return blocks;
}

DealtWindow deal_window(StreamExchange& exchange, size_t reader, const std::vector<DatasetFile>& files,
                        const std::function<Window()>& read) {
  if (exchange.rank() != reader) {
    const std::string told = exchange.scatter(reader, {});
    return read_window(open_message(told), files, exchange.size());
  }
  DealtWindow dealt;
  std::vector<std::string> parts(exchange.size());
  std::exception_ptr failure;
  try {
    dealt.window = read();
    dealt.blocks = cut_blocks(dealt.window, 0, exchange.size());
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      if (rank != reader) parts[rank] = write_window(dealt, files, rank);
    }
  } catch (...) {
    failure = std::current_exception();
    // See [Note: a failure is dealt too].
    parts.assign(exchange.size(), failure_message(failure, reader));
  }
  exchange.scatter(reader, parts);
  if (failure) std::rethrow_exception(failure);
  return dealt;
}

std::vector<TokenizedRecord> deal_records(
    StreamExchange& exchange, const Block& block,
    const std::function<std::vector<TokenizedRecord>(size_t begin, size_t end)>& make) {
  std::vector<TokenizedRecord> own;
  std::exception_ptr failure;
  std::string told;
  try {
    own = make(block.shares[exchange.rank()], block.shares[exchange.rank() + 1]);
    told = write_records(own);
  } catch (...) {
    failure = std::current_exception();
    // See [Note: a failure is dealt too].
    told = failure_message(failure, exchange.rank());
  }
  const std::vector<std::string> all = exchange.all_gather(told);
  if (failure) std::rethrow_exception(failure);
  std::vector<TokenizedRecord> records;
  records.reserve(block.shares.back());
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const WireReader in = open_message(all[rank]);
    // The own share is at hand as it was made.
    std::vector<TokenizedRecord> share = rank == exchange.rank() ? std::move(own) : read_records(in);
    TESSERA_ASSERT(share.size() == block.shares[rank + 1] - block.shares[rank], "ranks deal otherwise");
    std::move(share.begin(), share.end(), std::back_inserter(records));
  }
  return records;
}

}  // namespace tessera::data

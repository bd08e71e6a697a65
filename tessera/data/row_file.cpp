#include "tessera/data/row_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "tessera/core/content_hash.h"
#include "tessera/core/error.h"

namespace tessera::data {
namespace {

// Version of the file's form. A file of another version counts as missing.
constexpr int64_t kVersion = 6;
constexpr char kMagic[8] = {'T', 'E', 'S', 'S', 'R', 'O', 'W', 'S'};
constexpr size_t kBufferedWords = size_t{1} << 20;

// The end of the file. A file holds: words, filled up to 8 bytes; entries; the texts of `first_bad` and of
// the counts' details, filled up to 8 bytes; this footer. The footer comes last because a file is written
// from start to end.
struct Footer {
  char magic[8];
  int64_t version, num_rows, num_words, num_tokens, text_size, details_size;
  int64_t counts[std::size(kStatCounts)];
  uint64_t hash;  // hash of the entries, the text and all fields above
};

constexpr int64_t filled_up(int64_t bytes) { return (bytes + 7) / 8 * 8; }

uint64_t hash_of_index(std::string_view entries_and_text, Footer footer) {
  footer.hash = 0;
  ContentHash hash;
  hash.add(entries_and_text);
  hash.add(std::span<const Footer>(&footer, 1));
  return hash.value();
}

bool is_sound(const RowEntry& entry, int64_t num_words) {
  return entry.length >= 1 && entry.num_runs >= 0 && entry.num_further >= 0 && entry.offset >= 0 &&
         entry.offset <= num_words &&
         entry.length + 2 * int64_t{entry.num_runs} + entry.num_further <= num_words - entry.offset;
}

}  // namespace

uint64_t hash_of_row(std::span<const int32_t> tokens, std::span<const LabelRun> runs,
                     std::span<const int32_t> further) {
  ContentHash hash;
  hash.add(tokens);
  hash.add(runs);
  if (!further.empty()) hash.add(further);
  return hash.value();
}

void RowBuffer::append(std::span<const int32_t> input_ids, std::span<const int32_t> labels,
                       int64_t first_word) {
  append(input_ids, labels, {}, {}, first_word);
}

void RowBuffer::append(const Row& row, int64_t first_word) {
  std::vector<int32_t> further;
  if (!row.targets.empty() || !row.type_ids.empty()) {
    TESSERA_ASSERT(row.type_ids.empty() || row.type_ids.size() == row.input_ids.size(),
                   "row with type ids of another length");
    further.push_back(static_cast<int32_t>(row.targets.size()));
    for (const float target : row.targets) further.push_back(std::bit_cast<int32_t>(target));
    further.insert(further.end(), row.type_ids.begin(), row.type_ids.end());
  }
  append(row.input_ids, row.labels, row.run_starts, further, first_word);
}

void RowBuffer::append(std::span<const int32_t> input_ids, std::span<const int32_t> labels,
                       std::span<const int32_t> run_starts, std::span<const int32_t> further,
                       int64_t first_word) {
  // A target may be read at the first position, but no token is predicted there.
  const bool has_targets = !further.empty() && further.front() > 0;
  TESSERA_ASSERT(input_ids.size() == labels.size(), "row with labels of another length");
  TESSERA_ASSERT(input_ids.size() <= static_cast<size_t>(std::numeric_limits<int32_t>::max()),
                 "row too long");
  RowEntry entry;
  entry.offset = first_word + static_cast<int64_t>(words.size());
  entry.length = static_cast<int32_t>(input_ids.size());
  words.insert(words.end(), input_ids.begin(), input_ids.end());
  std::vector<LabelRun> runs;
  for (int32_t i = 0; i < entry.length; ++i) {
    if (labels[i] == kIgnoreLabel) continue;
    TESSERA_ASSERT(labels[i] == input_ids[i], "label that is not the row's own token");
    entry.num_labels += i > 0 || has_targets ? 1 : 0;
    const bool begins_run = std::ranges::binary_search(run_starts, i);
    if (i > 0 && labels[i - 1] != kIgnoreLabel && !begins_run) {
      runs.back().end = i + 1;
    } else {
      runs.push_back({i, i + 1});
    }
  }
  entry.num_runs = static_cast<int32_t>(runs.size());
  for (const LabelRun& run : runs) words.insert(words.end(), {run.begin, run.end});
  words.insert(words.end(), further.begin(), further.end());
  entry.num_further = static_cast<int32_t>(further.size());
  entry.hash = hash_of_row(input_ids, runs, further);
  entries.push_back(entry);
  num_tokens += entry.length;
}

std::shared_ptr<const RowFile> RowFile::open(const std::string& path) {
  if (!io::exists(path)) return nullptr;
  const auto rows = std::make_shared<RowFile>();
  rows->file_ = io::MappedFile(path);
  std::string_view bytes = rows->file_.bytes();
  Footer footer;
  if (bytes.size() < sizeof footer) return nullptr;
  std::memcpy(&footer, bytes.data() + bytes.size() - sizeof footer, sizeof footer);
  bytes.remove_suffix(sizeof footer);
  const auto size = static_cast<int64_t>(bytes.size());
  if (std::memcmp(footer.magic, kMagic, sizeof kMagic) != 0 || footer.version != kVersion) return nullptr;
  for (const int64_t count :
       {footer.num_rows, footer.num_words, footer.num_tokens, footer.text_size, footer.details_size}) {
    if (count < 0 || count > size) return nullptr;
  }
  // The sizes in the footer are checked before anything is read at an offset that follows from them.
  const int64_t word_bytes = filled_up(footer.num_words * static_cast<int64_t>(sizeof(int32_t)));
  const int64_t entry_bytes = footer.num_rows * static_cast<int64_t>(sizeof(RowEntry));
  if (size != word_bytes + entry_bytes + filled_up(footer.text_size + footer.details_size)) return nullptr;
  const std::string_view index = bytes.substr(static_cast<size_t>(word_bytes));
  if (hash_of_index(index, footer) != footer.hash) return nullptr;

  rows->words_ = reinterpret_cast<const int32_t*>(bytes.data());
  rows->entries_ = {reinterpret_cast<const RowEntry*>(index.data()), static_cast<size_t>(footer.num_rows)};
  const auto sound = [&](const RowEntry& entry) { return is_sound(entry, footer.num_words); };
  if (!std::ranges::all_of(rows->entries_, sound)) return nullptr;
  rows->num_tokens_ = footer.num_tokens;
  rows->notes_.first_bad =
      index.substr(static_cast<size_t>(entry_bytes), static_cast<size_t>(footer.text_size));
  rows->notes_.stats.set_details(std::string(index.substr(static_cast<size_t>(entry_bytes + footer.text_size),
                                                          static_cast<size_t>(footer.details_size))));
  for (size_t i = 0; i < std::size(kStatCounts); ++i) rows->notes_.stats.*kStatCounts[i] = footer.counts[i];
  return rows;
}

void RowFileWriter::append(const Row& row) {
  buffer_.append(row, written_words_);
  if (buffer_.words.size() >= kBufferedWords) flush();
}

void RowFileWriter::flush() {
  file_.append(buffer_.words.data(), static_cast<int64_t>(buffer_.words.size() * sizeof(int32_t)));
  written_words_ += static_cast<int64_t>(buffer_.words.size());
  buffer_.words.clear();
}

void RowFileWriter::finish(const RowFileNotes& notes) {
  Footer footer = {};
  std::memcpy(footer.magic, kMagic, sizeof kMagic);
  footer.version = kVersion;
  footer.num_rows = static_cast<int64_t>(buffer_.entries.size());
  footer.num_words = written_words_ + static_cast<int64_t>(buffer_.words.size());
  footer.num_tokens = buffer_.num_tokens;
  const std::string details = notes.stats.details();
  footer.text_size = static_cast<int64_t>(notes.first_bad.size());
  footer.details_size = static_cast<int64_t>(details.size());
  for (size_t i = 0; i < std::size(kStatCounts); ++i) footer.counts[i] = notes.stats.*kStatCounts[i];
  // The entries must begin at a multiple of 8 bytes.
  if (footer.num_words % 2 != 0) buffer_.words.push_back(0);
  flush();
  std::string index(reinterpret_cast<const char*>(buffer_.entries.data()),
                    buffer_.entries.size() * sizeof(RowEntry));
  index += notes.first_bad + details;
  index.resize(static_cast<size_t>(filled_up(static_cast<int64_t>(index.size()))), '\0');
  footer.hash = hash_of_index(index, footer);
  file_.append(index);
  file_.append(&footer, sizeof footer);
  file_.commit();
}

}  // namespace tessera::data

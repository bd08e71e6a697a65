#include "tessera/data/stream/window_reader.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/data/loader.h"
#include "tessera/data/readers/split.h"

namespace tessera::data {
namespace {

// [Note: files stay as they are] A window must be the same whenever and wherever it is read, but ranks read
// it at different moments, and a resumed run reads it again. So each file is checked by its mark when it is
// opened, when it ends, and at the end of each window that was read from it: a change in between is an error,
// not another order of the data.

constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

RecordRange range_of(const config::DatasetConfig& dataset) {
  const SplitSlice slice = parse_split(dataset);
  if (slice.needs_count() || dataset.shards > 1) {
    throw entry_error(dataset, "SPLIT", "a percentage of a stream is unknown before all of it is read")
        .got(dataset.shards > 1 ? "shards: " + std::to_string(dataset.shards) : "split: " + dataset.split)
        .need("numbers of records, such as train[1000:], or separate files");
  }
  RecordRange range = resolve_range(slice, 1, 0, kNoEnd);
  range.begin = std::min(range.begin + dataset.skip, range.end);
  return range;
}

}  // namespace

WindowReader::WindowReader(const config::DatasetConfig& dataset, const std::string& source_folder,
                           const WindowOptions& options)
    : options_(options),
      files_(find_dataset_files(dataset, source_folder)),
      range_(range_of(dataset)),
      order_(files_.size()) {
  std::iota(order_.begin(), order_.end(), 0);
  for (const DatasetFile& file : files_) marks_.emplace_back(file.path);
}

const DatasetFile& WindowReader::file_at(int64_t pass, int64_t place) {
  // Files are shuffled only if all records are read: in another order of the files, a range of record numbers
  // would select other records.
  const bool is_whole = range_.begin == 0 && range_.end == kNoEnd;
  if (options_.shuffles && is_whole && ordered_pass_ != pass) {
    const std::string stream = "stream.files." + std::to_string(options_.dataset);
    order_ = random_order(static_cast<int64_t>(files_.size()), options_.seed, stream.c_str(),
                          static_cast<uint64_t>(pass));
    ordered_pass_ = pass;
  }
  return files_[static_cast<size_t>(order_[static_cast<size_t>(place)])];
}

void WindowReader::check_file(const StreamPlace& place) {
  const DatasetFile& file = file_at(place.pass, place.file);
  marks_[static_cast<size_t>(&file - files_.data())].check();
}

void WindowReader::open_file(const StreamPlace& place) {
  check_file(place);
  const DatasetFile& file = file_at(place.pass, place.file);
  reader_ = open_records(file.path, file.format);
  blank_lines_ = 0;
}

void WindowReader::open(const StreamPlace& place) {
  // The reader may stand in the right file before `place`, since other ranks have read the windows between.
  // Then it skips ahead, and does not read the file from its beginning.
  const bool is_ahead =
      reader_ && at_.pass == place.pass && at_.file == place.file && at_.record < place.record;
  const int64_t passed = is_ahead ? at_.record : 0;
  at_ = place;
  at_.document = at_.token = 0;
  if (!is_ahead) reader_.reset();
  if (place.pass < 0 || place.record < 0 || place.file < 0 || place.file >= std::ssize(files_)) {
    throw Error(ErrorKind::Checkpoint, "CURSOR", "the data position lies outside the dataset")
        .got("file " + std::to_string(place.file))
        .need("below " + std::to_string(files_.size()))
        .hint("the dataset differs from the run that saved the position");
  }
  if (place.record == 0) return;
  if (!is_ahead) open_file(place);
  reader_->skip(place.record - passed, place.line, place.offset);
  blank_lines_ = reader_->counts().blank_lines;
}

// Reads the next record of the pass that is to be read, and counts bad records and blank lines in `window`.
// Returns false at the end of the pass.
bool WindowReader::read_record(RawRecord& record, Window& window) {
  while (at_.index < range_.end) {
    if (!reader_) {
      if (at_.file == std::ssize(files_)) return false;
      open_file(at_);
    }
    bool is_bad = false, is_there = false;
    try {
      is_there = reader_->next(record);
    } catch (const Error& error) {
      if (!options_.skips_bad || error.kind() != ErrorKind::Data || !reader_->can_continue()) throw;
      is_bad = true;
      if (window.first_bad.empty()) window.first_bad = error.what();
    }
    window.blank_lines += reader_->counts().blank_lines - blank_lines_;
    blank_lines_ = reader_->counts().blank_lines;
    if (!is_bad && !is_there) {
      check_file(at_);
      reader_.reset();
      ++at_.file;
      at_.record = at_.offset = 0;
      at_.line = 1;
      continue;
    }
    ++at_.record;
    // Records before the range are read and left out.
    if (at_.index++ < range_.begin) continue;
    if (!is_bad) return true;
    ++window.bad_records;
  }
  return false;
}

Window WindowReader::read(const StreamPlace& begin) {
  StreamPlace wanted = begin, here = at_;
  wanted.document = wanted.token = 0;
  // Line and offset only help to open a file, and are not kept in at_.
  here.line = wanted.line;
  here.offset = wanted.offset;
  if (here != wanted) open(begin);
  Window window;
  window.begin = wanted;
  int64_t bytes = 0;
  while (bytes < options_.most_bytes && std::ssize(window.documents) < options_.most_documents) {
    RawRecord record;
    if (!read_record(record, window)) {
      if (reader_) check_file(at_);
      // The pass ends, and the window with it.
      window.end = StreamPlace{.pass = at_.pass + 1};
      open(window.end);
      shuffle(window);
      return window;
    }
    bytes += record.bytes();
    if (window.documents.empty() || record.begins_document) {
      window.documents.push_back({&file_at(at_.pass, at_.file), {}});
    }
    window.documents.back().records.push_back(std::move(record));
  }
  check_file(at_);
  const RawRecord& last = window.documents.back().records.back();
  window.end = at_;
  window.end.line = last.line;
  window.end.offset = last.byte_offset;
  shuffle(window);
  return window;
}

// Shuffles the documents of a window. A document of which a part lies in the window before or behind stays at
// that side, so that its parts follow each other.
void WindowReader::shuffle(Window& window) const {
  auto& documents = window.documents;
  if (!options_.shuffles || documents.size() < 2) return;
  const size_t first = documents.front().records.front().begins_document ? 0 : 1;
  const size_t last = documents.size() - (documents.back().records.back().ends_document ? 0 : 1);
  if (last <= first + 1) return;
  const std::string stream =
      "stream.documents." + std::to_string(options_.dataset) + '.' + std::to_string(window.begin.pass);
  const std::vector<int64_t> order = random_order(static_cast<int64_t>(last - first), options_.seed,
                                                  stream.c_str(), static_cast<uint64_t>(window.begin.index));
  std::vector<StreamedDocument> shuffled;
  shuffled.reserve(order.size());
  for (const int64_t i : order) shuffled.push_back(std::move(documents[first + static_cast<size_t>(i)]));
  std::move(shuffled.begin(), shuffled.end(), documents.begin() + static_cast<std::ptrdiff_t>(first));
}

}  // namespace tessera::data

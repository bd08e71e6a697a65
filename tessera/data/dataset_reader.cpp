#include "tessera/data/dataset_reader.h"

#include <algorithm>
#include <filesystem>
#include <future>
#include <limits>
#include <thread>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/data/file_identity.h"
#include "tessera/data/prepare_progress.h"
#include "tessera/data/prepared_rows.h"
#include "tessera/data/tokenize_records.h"

namespace tessera::data {
namespace {

// Thrown when rows cannot be written where they are to be kept. This is no reason to stop: the rows are then
// made without being kept.
struct CannotKeep {
  Error error;
};

template <class Action>
auto keeping(Action&& action) {
  try {
    return action();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Storage) throw;
    throw CannotKeep{error};
  }
}

// Reads the next batch on a thread while the last one is worked on.
class ReadAhead {
 public:
  explicit ReadAhead(RecordBatches batches) : batches_(std::move(batches)) { start(); }

  bool next(RecordBatch& batch) {
    if (!next_.valid()) return false;
    batch = next_.get();
    if (batch.file == nullptr) return false;
    start();
    return true;
  }

 private:
  void start() {
    next_ = std::async(std::launch::async, [this] {
      RecordBatch batch;
      batches_.next(batch);
      return batch;
    });
  }

  RecordBatches batches_;
  std::future<RecordBatch> next_;
};

}  // namespace

const std::string& shown_path(const config::DatasetConfig& dataset) {
  return dataset.hub_id.empty() ? dataset.path : dataset.hub_id;
}

std::string short_name(const config::DatasetConfig& dataset) {
  std::filesystem::path path = shown_path(dataset);
  while (path.has_parent_path() && path.filename().string().find_first_of("*?[") != std::string::npos)
    path = path.parent_path();
  if (const auto extension = path.extension();
      extension == ".gz" || extension == ".zst" || extension == ".zstd")
    path = path.stem();
  return path.stem();
}

config::DatasetConfig entry_for(const config::DatasetConfig& dataset, const DatasetFile& file) {
  config::DatasetConfig entry = dataset;
  if (file.format != FileFormat::Text || dataset.type == "pretrain") return entry;
  if (!dataset.type.empty() && dataset.type != "completion") {
    throw Error(ErrorKind::Config, "DATASET-TYPE", "'" + file.path + "' is a text file, which has no columns")
        .at(dataset.source_file, dataset.source_line)
        .got("type: " + dataset.type)
        .need("type: completion or pretrain");
  }
  entry.type = "completion";
  return entry;
}

struct DatasetReader::Source {
  const config::DatasetConfig& dataset;
  std::vector<DatasetFile> files;
  std::string identity;  // file_identity() of all files
  bool skips_bad;
  int64_t batch_bytes;

  static std::string identity_of(const std::vector<DatasetFile>& files) {
    std::string identity;
    for (const DatasetFile& file : files) identity += file_identity(file.path) + '\n';
    return identity;
  }

  RecordBatches batches() const {
    const SplitSlice slice = parse_split(dataset);
    const bool needs_count = slice.needs_count() || dataset.shards > 1;
    const int64_t num_records =
        needs_count ? count_records(files, skips_bad) : std::numeric_limits<int64_t>::max();
    RecordRange range = resolve_range(slice, dataset.shards, dataset.shards_idx, num_records);
    range.begin = std::min(range.begin + dataset.skip, range.end);
    return {files, range, skips_bad, batch_bytes};
  }
};

DatasetReader::DatasetReader(const PromptContext& context, const PrepareOptions& options)
    : context_(context), config_(context.config), options_(options) {
  if (options_.num_threads <= 0) options_.num_threads = std::max(1U, std::thread::hardware_concurrency());
  if (context.tokenizer != nullptr) control_tokens_.emplace(*context.tokenizer);
}

bool spells_plain_text(const config::DatasetConfig& entry) {
  return entry.type != "input_output" && !entry.type.empty();
}

bool DatasetReader::keeps() const {
  return !config_.dataset_prepared_path.empty() && !options_.tokenizer_fingerprint.empty();
}

DatasetStats DatasetReader::read(const config::DatasetConfig& dataset, RowStore& store) {
  Source source = {dataset, find_dataset_files(dataset, config_.source_folder), "",
                   config_.on_bad_line == "skip", std::max<int64_t>(1, options_.chunk_bytes / 4)};
  source.identity = Source::identity_of(source.files);
  notes_ = RowFileNotes{};
  const int64_t bad_before = bad_records_;
  bool is_read = false;
  if (keeps()) {
    try {
      read_kept(source, store);
      is_read = true;
    } catch (const CannotKeep& failure) {
      log::warn(std::string("prepared rows cannot be stored; training continues: ") + failure.error.what());
      notes_ = RowFileNotes{};
      bad_records_ = bad_before;
    }
  }
  if (!is_read) read_into(source, store);
  notes_.stats.path = shown_path(dataset);
  notes_.stats.type = dataset.type;
  check(dataset);
  return notes_.stats;
}

void DatasetReader::read_kept(const Source& source, RowStore& store) {
  const std::string key =
      prepared_key(source.dataset, source.files, context_, options_.tokenizer_fingerprint);
  const auto kept =
      keeping([&] { return std::make_unique<PreparedRows>(config_.dataset_prepared_path, key); });
  auto files = keeping([&] { return kept->load(); });
  if (files) {
    log::info(shown_path(source.dataset) + ": prepared rows taken from " + kept->path());
  } else {
    const int64_t bad_before = bad_records_;
    // wait_for() returns false if another process ended before it had made the chunk that it had claimed; the
    // next round makes that chunk.
    while (!files) {
      const int64_t num_chunks = make_chunks(source, *kept);
      if (num_chunks == 0) return;
      if (keeping([&] { return kept->wait_for(num_chunks); })) files = keeping([&] { return kept->load(); });
    }
    bad_records_ = bad_before;
  }
  // The files hold the counts of all chunks, also of those that were made here.
  for (auto& file : *files) {
    add(file->notes());
    store.append(std::move(file));
  }
}

void DatasetReader::read_into(const Source& source, RowStore& store) {
  PrepareProgress progress(shown_path(source.dataset), source.files);
  ReadAhead batches(source.batches());
  for (RecordBatch batch; batches.next(batch);) {
    RowFileNotes notes;
    tokenize(source, batch, notes, [&](const Row& row) { store.append(row); });
    add(notes);
    progress.tell(batch);
  }
}

// Goes over all records once, and makes the chunks that nobody has made and nobody else is making. Returns
// the number of all chunks.
int64_t DatasetReader::make_chunks(const Source& source, PreparedRows& kept) {
  PrepareProgress progress(shown_path(source.dataset), source.files);
  ReadAhead batches(source.batches());
  RecordBatch batch;
  bool is_left = batches.next(batch);
  int64_t chunk = 0;
  for (; is_left; ++chunk) {
    std::optional<RowFileWriter> writer;
    if (keeping([&] { return kept.claim(chunk); })) keeping([&] { writer.emplace(kept.chunk_path(chunk)); });
    RowFileNotes notes;
    for (int64_t bytes = 0; is_left && bytes < options_.chunk_bytes; is_left = batches.next(batch)) {
      bytes += batch.bytes;
      if (writer) {
        tokenize(source, batch, notes, [&](const Row& row) { keeping([&] { writer->append(row); }); });
        limit_bad_records(notes.stats.bad_records, notes.first_bad);
      }
      progress.tell(batch);
    }
    if (!writer) continue;
    bad_records_ += notes.stats.bad_records;
    // The files must be those that the key was made of.
    if (Source::identity_of(source.files) != source.identity) {
      throw Error(ErrorKind::Data, "FILE-CHANGED", "a file was changed while it was read")
          .in(shown_path(source.dataset));
    }
    keeping([&] {
      writer->finish(notes);
      kept.give_back(chunk);
    });
  }
  return chunk;
}

void DatasetReader::tokenize(const Source& source, const RecordBatch& batch, RowFileNotes& notes,
                             const Keep& keep) {
  const config::DatasetConfig entry = entry_for(source.dataset, *batch.file);
  const auto prompt = make_prompt_type(entry, context_);
  const RecordTokenizer tokenizer(*prompt, entry, *batch.file, config_, context_.vocab_size,
                                  options_.num_threads,
                                  control_tokens_ && spells_plain_text(entry) ? &*control_tokens_ : nullptr);
  const auto skip = [&](int64_t count, const std::string& what) {
    notes.stats.records += count;
    notes.stats.bad_records += count;
    if (count > 0 && notes.first_bad.empty()) notes.first_bad = what;
  };
  skip(batch.bad_records, batch.first_bad);
  notes.stats.blank_lines += batch.blank_lines;
  for (TokenizedRecord& record : tokenizer.run(batch.records)) {
    if (record.error) {
      if (!source.skips_bad || record.error->kind() != ErrorKind::Data || record.must_raise)
        throw *record.error;
      skip(1, record.error->what());
      continue;
    }
    ++notes.stats.records;
    notes.stats += record.stats;
    for (const Row& row : record.rows) keep(row);
  }
}

void DatasetReader::add(const RowFileNotes& notes) {
  notes_.stats += notes.stats;
  if (notes_.first_bad.empty()) notes_.first_bad = notes.first_bad;
  limit_bad_records(notes.stats.bad_records, notes_.first_bad);
  bad_records_ += notes.stats.bad_records;
}

void DatasetReader::limit_bad_records(int64_t more, const std::string& first) {
  if (bad_records_ + more <= config_.max_bad_lines) return;
  throw Error(ErrorKind::Data, "TOO-MANY-BAD-LINES",
              "too many bad records; the first of this dataset: " + first)
      .got(std::to_string(bad_records_ + more))
      .need("at most " + std::to_string(config_.max_bad_lines) + " (max_bad_lines)");
}

void DatasetReader::check(const config::DatasetConfig& dataset) const {
  const DatasetStats& stats = notes_.stats;
  if (stats.bad_records > 0) {
    log::warn(stats.path + ": skipped " + std::to_string(stats.bad_records) + " bad of " +
              std::to_string(stats.records) + " records; the first: " + notes_.first_bad);
  }
  if (!dataset.type.empty()) {
    for (const std::string& warning : data_warnings(stats)) log::warn(stats.path + ": " + warning);
  }
  if (stats.rows > 0) return;
  Error error(ErrorKind::Data, "NO-ROWS", "the dataset leaves no row to train on");
  error.in(stats.path)
      .got(std::to_string(stats.records) + " records (" + std::to_string(stats.bad_records) +
           " bad), of their rows " + std::to_string(stats.dropped_long) + " too long, " +
           std::to_string(stats.dropped_short) + " too short, " + std::to_string(stats.dropped_unlabelled) +
           " without labels");
  error.need("at least 1 row");
  const bool takes_part = !dataset.split.empty() || dataset.shards > 1 || dataset.skip > 0;
  if (stats.records == 0) {
    error.hint(takes_part ? "the part that split, shards and skip select has no record"
                          : "the file contains no record");
  } else if (stats.dropped_long > 0) {
    error.hint("raise sequence_len (" + std::to_string(config_.sequence_len) + "; the longest row has " +
               std::to_string(stats.longest) + " tokens) or set excess_length_strategy: truncate");
  } else if (stats.dropped_unlabelled > 0) {
    error.hint(
        "no row has tokens to train: are the answers in another column (field_output), or do they have "
        "another role (roles_to_train)?");
  }
  throw error;
}

}  // namespace tessera::data

#include "tessera/data/prepare.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/data/loader.h"
#include "tessera/data/prepared_rows.h"
#include "tessera/data/prompts/llama_factory.h"
#include "tessera/data/readers/dataset_files.h"
#include "tessera/data/tokenize_records.h"

namespace tessera::data {
namespace {

const std::string& shown_path(const config::DatasetConfig& dataset) {
  return dataset.hub_id.empty() ? dataset.path : dataset.hub_id;
}

// "gsm8k" of openai/gsm8k, "chats" of data/chats.jsonl.gz and of chats/*.jsonl.
std::string short_name(const config::DatasetConfig& dataset) {
  std::filesystem::path path = shown_path(dataset);
  while (path.has_parent_path() && path.filename().string().find_first_of("*?[") != std::string::npos)
    path = path.parent_path();
  if (const auto extension = path.extension();
      extension == ".gz" || extension == ".zst" || extension == ".zstd")
    path = path.stem();
  return path.stem();
}

class DatasetReader {
 public:
  DatasetReader(const PromptContext& context, int64_t num_threads, RowStore& store)
      : config_(context.config), context_(context), num_threads_(num_threads), store_(store) {
    if (context.tokenizer != nullptr) control_tokens_.emplace(*context.tokenizer);
  }

  // Also keeps what was read, and takes from there what was kept.
  DatasetStats read_kept(const config::DatasetConfig& dataset, const std::string& tokenizer_fingerprint) {
    const PreparedRows kept(config_.dataset_prepared_path);
    const auto key = [&] {
      return prepared_key(dataset, find_dataset_files(dataset, config_.source_folder), context_,
                          tokenizer_fingerprint);
    };
    const std::string before = key();
    const int64_t vocab_size =
        context_.vocab_size > 0 ? context_.vocab_size : context_.tokenizer->vocab_size();
    if (auto stats = kept.load(before, vocab_size, store_)) {
      stats_ = *stats;
      stats_.path = shown_path(dataset);
      stats_.type = dataset.type;
      log::info(shown_path(dataset) + ": prepared rows taken from " + kept.path_of(before));
      check(dataset);
      return stats_;
    }
    const int64_t first_row = store_.size();
    const DatasetStats stats = read(dataset);
    // Bad records are told of in every run, and a file that grew meanwhile is another one.
    if (stats.bad_records == 0 && key() == before) kept.save(before, store_, first_row, stats);
    return stats;
  }

  DatasetStats read(const config::DatasetConfig& dataset) {
    const std::vector<DatasetFile> files = find_dataset_files(dataset, config_.source_folder);
    const SplitSlice slice = parse_split(dataset);
    const bool needs_count = slice.needs_count() || dataset.shards > 1;
    const int64_t num_records = needs_count ? count_records(files) : std::numeric_limits<int64_t>::max();
    const RecordRange range = resolve_range(slice, dataset.shards, dataset.shards_idx, num_records);

    stats_ = DatasetStats{};
    stats_.path = shown_path(dataset);
    stats_.type = dataset.type;
    first_bad_.clear();
    int64_t index = 0;
    for (const DatasetFile& file : files) {
      if (index >= range.end) break;
      const config::DatasetConfig entry = entry_for(dataset, file);
      const auto prompt = make_prompt_type(entry, context_);
      RecordTokenizer tokenizer(*prompt, entry, file, config_, context_.vocab_size, num_threads_,
                                spells_plain_text(entry) ? &*control_tokens_ : nullptr);
      const auto reader = open_records(file.path, file.format);
      std::vector<RawRecord> batch;
      int64_t batch_bytes = 0;
      const auto flush = [&] {
        for (TokenizedRecord& record : tokenizer.run(batch)) take(std::move(record));
        batch.clear();
        batch_bytes = 0;
      };
      RawRecord record;
      for (; index < range.end; ++index) {
        const Next next = next_record(*reader, record, index >= range.begin);
        if (next == Next::End) break;
        if (index < range.begin || next == Next::Bad) continue;
        batch_bytes += static_cast<int64_t>(record.text.size());
        batch.push_back(std::move(record));
        if (batch_bytes >= kBatchBytes) flush();
      }
      flush();
      stats_.blank_lines += reader->counts().blank_lines;
    }
    check(dataset);
    return stats_;
  }

 private:
  static constexpr int64_t kBatchBytes = int64_t{16} << 20;

  // Text files hold completions, whatever else the folder holds.
  static config::DatasetConfig entry_for(const config::DatasetConfig& dataset, const DatasetFile& file) {
    config::DatasetConfig entry = dataset;
    if (file.format != FileFormat::Text) return entry;
    if (dataset.type == "pretrain") return entry;
    if (!dataset.type.empty() && dataset.type != "completion") {
      throw Error(ErrorKind::Config, "DATASET-TYPE",
                  "'" + file.path + "' is a text file, which has no columns")
          .at(dataset.source_file, dataset.source_line)
          .got("type: " + dataset.type)
          .need("type: completion or pretrain");
    }
    entry.type = "completion";
    return entry;
  }

  // In the texts of other types control tokens are meant.
  bool spells_plain_text(const config::DatasetConfig& entry) const {
    return control_tokens_ && entry.type != "input_output" && !entry.type.empty();
  }

  bool skips() const { return config_.on_bad_line == "skip"; }

  enum class Next { Record, Bad, End };

  // Bad: one that was skipped.
  Next next_record(RecordReader& reader, RawRecord& record, bool counts) {
    try {
      return reader.next(record) ? Next::Record : Next::End;
    } catch (const Error& error) {
      if (!skips() || error.kind() != ErrorKind::Data || !reader.can_continue()) throw;
      if (counts) take_bad(error);
      return Next::Bad;
    }
  }

  int64_t count_records(const std::vector<DatasetFile>& files) {
    int64_t count = 0;
    RawRecord record;
    for (const DatasetFile& file : files) {
      const auto reader = open_records(file.path, file.format);
      while (next_record(*reader, record, false) != Next::End) ++count;
    }
    return count;
  }

  void take(TokenizedRecord&& record) {
    if (record.error) {
      if (!skips() || record.error->kind() != ErrorKind::Data || record.must_raise) throw *record.error;
      take_bad(*record.error);
      return;
    }
    ++stats_.records;
    stats_ += record.stats;
    for (const Row& row : record.rows) store_.append(row);
  }

  void take_bad(const Error& error) {
    ++stats_.records;
    ++stats_.bad_records;
    if (first_bad_.empty()) first_bad_ = error.what();
    if (++bad_records_ > config_.max_bad_lines) {
      throw Error(ErrorKind::Data, "TOO-MANY-BAD-LINES",
                  "too many bad records; the first of this dataset: " + first_bad_)
          .got(std::to_string(bad_records_))
          .need("at most " + std::to_string(config_.max_bad_lines) + " (max_bad_lines)");
    }
  }

  void check(const config::DatasetConfig& dataset) const {
    if (stats_.bad_records > 0) {
      log::warn(shown_path(dataset) + ": skipped " + std::to_string(stats_.bad_records) + " bad of " +
                std::to_string(stats_.records) + " records; the first: " + first_bad_);
    }
    if (!dataset.type.empty()) {
      for (const std::string& warning : data_warnings(stats_))
        log::warn(shown_path(dataset) + ": " + warning);
    }
    if (stats_.rows > 0) return;
    Error error(ErrorKind::Data, "NO-ROWS", "the dataset leaves no row to train on");
    error.in(shown_path(dataset))
        .got(std::to_string(stats_.records) + " records (" + std::to_string(stats_.bad_records) +
             " bad), of their rows " + std::to_string(stats_.dropped_long) + " too long, " +
             std::to_string(stats_.dropped_short) + " too short, " +
             std::to_string(stats_.dropped_unlabelled) + " without labels");
    error.need("at least 1 row");
    if (stats_.dropped_long > 0) {
      error.hint("raise sequence_len (" + std::to_string(config_.sequence_len) + "; the longest row has " +
                 std::to_string(stats_.longest) + " tokens) or set excess_length_strategy: truncate");
    }
    throw error;
  }

  const config::DataConfig& config_;
  const PromptContext& context_;
  int64_t num_threads_;
  RowStore& store_;
  DatasetStats stats_;
  std::string first_bad_;
  int64_t bad_records_ = 0;  // of all datasets
  std::optional<ControlTokens> control_tokens_;
};

// The last rows become evaluation rows.
void split_off_eval(double val_set_size, PreparedData& data) {
  if (val_set_size <= 0.0) return;
  const int64_t num_rows = data.train.size();
  const double wanted = val_set_size < 1.0 ? val_set_size * static_cast<double>(num_rows) : val_set_size;
  const auto num_eval = static_cast<int64_t>(std::ceil(std::min(wanted, 9e15)));
  if (num_eval >= num_rows) {
    throw Error(ErrorKind::Data, "VAL-SET-SIZE", "val_set_size leaves no row to train on")
        .got(std::to_string(num_eval) + " of " + std::to_string(num_rows) + " rows")
        .need("less than all");
  }
  data.eval.store = data.train.store;
  data.eval.rows.assign(data.train.rows.end() - num_eval, data.train.rows.end());
  data.train.rows.resize(static_cast<size_t>(num_rows - num_eval));
}

PreparedData prepare(const PromptContext& context, const PrepareOptions& options) {
  const config::DataConfig& config = context.config;
  const auto store = std::make_shared<RowStore>();
  const int64_t num_threads =
      options.num_threads > 0 ? options.num_threads : std::max(1U, std::thread::hardware_concurrency());
  DatasetReader reader(context, num_threads, *store);

  PreparedData data;
  const bool is_kept = !config.dataset_prepared_path.empty() && !options.tokenizer_fingerprint.empty();
  const auto read = [&](const config::DatasetConfig& entry) {
    const config::DatasetConfig dataset = resolve_dataset_info(entry, config.source_folder);
    store->begin_dataset(short_name(dataset));
    return is_kept ? reader.read_kept(dataset, options.tokenizer_fingerprint) : reader.read(dataset);
  };
  for (const config::DatasetConfig& dataset : config.datasets) data.train_stats.push_back(read(dataset));
  const int64_t num_train = store->size();
  for (const config::DatasetConfig& dataset : config.test_datasets) data.eval_stats.push_back(read(dataset));
  if (num_train == 0) {
    throw Error(ErrorKind::Data, "NO-ROWS", "the recipe names no datasets").got("0 rows").need("datasets:");
  }

  data.train.store = store;
  data.eval.store = store;
  if (config.shuffle_merged_datasets) {
    data.train.rows = random_order(num_train, options.seed, "data.merge");
  } else {
    data.train.rows.resize(static_cast<size_t>(num_train));
    std::iota(data.train.rows.begin(), data.train.rows.end(), 0);
  }
  if (config.test_datasets.empty()) {
    split_off_eval(config.val_set_size, data);
  } else {
    data.eval.rows.resize(static_cast<size_t>(store->size() - num_train));
    std::iota(data.eval.rows.begin(), data.eval.rows.end(), num_train);
  }
  return data;
}

}  // namespace

DatasetStats& DatasetStats::operator+=(const DatasetStats& other) {
  records += other.records;
  bad_records += other.bad_records;
  blank_lines += other.blank_lines;
  rows += other.rows;
  tokens += other.tokens;
  label_tokens += other.label_tokens;
  end_labels += other.end_labels;
  untrained_ends += other.untrained_ends;
  repeated_ends += other.repeated_ends;
  control_texts += other.control_texts;
  longest = std::max(longest, other.longest);
  dropped_long += other.dropped_long;
  truncated += other.truncated;
  cut_tokens += other.cut_tokens;
  dropped_short += other.dropped_short;
  dropped_unlabelled += other.dropped_unlabelled;
  return *this;
}

std::vector<std::string> data_warnings(const DatasetStats& stats) {
  std::vector<std::string> warnings;
  const std::string of_rows = " of " + std::to_string(stats.rows) + " rows ";
  if (stats.rows > 0 && stats.end_labels == 0) {
    warnings.emplace_back("no end-of-turn or EOS token is ever trained: the model will not learn to stop");
  } else if (stats.untrained_ends > 0) {
    warnings.push_back("in " + std::to_string(stats.untrained_ends) + of_rows +
                       "a trained turn ends in a token that is not trained (train_on_eos, train_on_eot)");
  }
  if (stats.repeated_ends > 0) {
    warnings.push_back("in " + std::to_string(stats.repeated_ends) + of_rows +
                       "an end-of-turn or EOS token stands twice in a row: does the text hold one already?");
  }
  if (stats.control_texts > 0) {
    warnings.push_back(std::to_string(stats.control_texts) + " of " + std::to_string(stats.records) +
                       " records spell a control token, as \"<|im_end|>\" is one: in them it is plain text");
  }
  return warnings;
}

PreparedData prepare_data(const config::DataConfig& config, const text::Tokenizer& tokenizer,
                          const text::ChatTemplate* chat_template, const PrepareOptions& options) {
  return prepare(
      {config, &tokenizer, chat_template, options.vocab_size, options.now.value_or(text::local_clock())},
      options);
}

PreparedData prepare_token_ids(const config::DataConfig& config, const PrepareOptions& options) {
  TESSERA_ASSERT(options.vocab_size > 0, "without a tokenizer the vocabulary's size must be given");
  return prepare({config, nullptr, nullptr, options.vocab_size}, options);
}

}  // namespace tessera::data

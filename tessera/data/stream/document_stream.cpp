#include "tessera/data/stream/document_stream.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/run_on_threads.h"
#include "tessera/data/dataset_reader.h"

namespace tessera::data {
namespace {

// Number of records after which warnings about them are given.
constexpr int64_t kToldAfter = 1000;

// [Note: how ranks share a stream] With an exchange, all ranks hold the same place_, the same blocks_ and the
// same rows in made_, and a window_ that differs in texts alone. peek() does the same on each of them:
//  1. If the window is used up, rank next_reader_ reads the next one, and deal_window() gives each rank the
//     documents, with the texts that it is to tokenise. The ranks take turns, so that no rank reads
//     everything.
//  2. If the block of the document at hand has not been tokenised, each rank tokenises its share of it, and
//     deal_records() gives every rank the rows of all shares.
//
// The next collective call depends on place_, blocks_ and made_ alone, so all ranks make it at the same
// point. stats_ follows from the outcomes that every rank gets, and so is the same everywhere; an error is
// thrown on every rank. seek() calls nothing collective: every rank reads the window by itself, with all
// texts.

// Returns the limits for rows of an entry. Documents of type pretrain have none: they are cut into sequences
// later.
config::DataConfig limits_of(const config::DatasetConfig& dataset, const config::DataConfig& config) {
  config::DataConfig limits = config;
  if (dataset.type == "pretrain") {
    limits.sequence_len = std::numeric_limits<int32_t>::max();
    limits.min_sample_len = 0;
  }
  return limits;
}

}  // namespace

struct DocumentStream::OfFile {
  config::DatasetConfig entry;
  std::unique_ptr<const PromptType> prompt;
  std::optional<RecordTokenizer> tokenizer;
};

DocumentStream::DocumentStream(const config::DatasetConfig& dataset, const PromptContext& context,
                               const WindowOptions& options, int64_t num_threads, StreamExchange* exchange)
    : dataset_(dataset),
      context_(context),
      limits_(limits_of(dataset, context.config)),
      skips_bad_(options.skips_bad),
      num_threads_(std::max<int64_t>(1, num_threads)),
      exchange_(exchange),
      reader_(dataset, context.config.source_folder, options),
      // The datasets begin with different ranks, so that their first windows are read by several ranks.
      next_reader_(exchange == nullptr ? 0 : static_cast<size_t>(options.dataset) % exchange->size()) {
  if (context.tokenizer != nullptr && spells_plain_text(dataset)) control_tokens_.emplace(*context.tokenizer);
  // The tokenizers are made now, so that an error in the entry shows before the first step.
  for (const DatasetFile& file : reader_.files()) tokenizer_of(file);
  stats_.path = shown_path(dataset);
  stats_.type = dataset.type;
}

const RecordTokenizer& DocumentStream::tokenizer_of(const DatasetFile& file) {
  std::shared_ptr<const OfFile>& of_file = of_files_[&file];
  if (!of_file) {
    const auto made = std::make_shared<OfFile>();
    made->entry = entry_for(dataset_, file);
    made->prompt = make_prompt_type(made->entry, context_);
    made->tokenizer.emplace(*made->prompt, made->entry, file, limits_, context_.vocab_size, num_threads_,
                            control_tokens_ ? &*control_tokens_ : nullptr);
    of_file = made;
  }
  return *of_file->tokenizer;
}

RowRest DocumentStream::peek() {
  for (;;) {
    if (!window_) read_window();
    if (place_.document == std::ssize(window_->documents)) {
      tell(true);
      place_ = window_->end;
      window_.reset();
      continue;
    }
    const auto document = static_cast<size_t>(place_.document);
    if (document < first_made_ || document >= first_made_ + made_.size()) tokenize_some();
    const std::vector<Row>& rows = made_[document - first_made_];
    const auto token = static_cast<size_t>(place_.token);
    // Goes on to the row that the next token is in: after take() or seek() it may be a later one.
    while (row_ < rows.size() && token >= row_begin_ + rows[row_].input_ids.size())
      row_begin_ += rows[row_++].input_ids.size();
    if (row_ == rows.size()) {
      end_document();
      continue;
    }
    pass_with_rows_ = place_.pass;
    const size_t used = token - row_begin_;
    return {std::span(rows[row_].input_ids).subspan(used), std::span(rows[row_].labels).subspan(used)};
  }
}

void DocumentStream::take(size_t count) { place_.token += static_cast<int64_t>(count); }

void DocumentStream::end_document() {
  ++place_.document;
  place_.token = 0;
  row_ = row_begin_ = 0;
}

void DocumentStream::seek(const StreamPlace& place) {
  StreamPlace begin = place;
  begin.document = begin.token = 0;
  Window window = read(begin);
  if (place.document < 0 || place.document > std::ssize(window.documents) || place.token < 0) {
    throw Error(ErrorKind::Checkpoint, "CURSOR", "the data position lies outside the dataset")
        .in(stats_.path)
        .got("document " + std::to_string(place.document))
        .need("at most " + std::to_string(window.documents.size()))
        .hint("the dataset differs from the run that saved the position");
  }
  place_ = place;
  window_ = std::move(window);
  blocks_ = cut_blocks(*window_, static_cast<size_t>(place.document), num_ranks());
  made_.clear();
  first_made_ = row_ = row_begin_ = 0;
  pass_with_rows_ = place.pass;
}

void DocumentStream::read_window() {
  // A whole pass has gone by without a row, and the next would be the same.
  if (place_.pass > pass_with_rows_ + 1) {
    throw Error(ErrorKind::Data, "NO-ROWS", "the dataset leaves no row to train on")
        .in(stats_.path)
        .got(std::to_string(stats_.records) + " records (" + std::to_string(stats_.bad_records) +
             " bad), of their rows " + std::to_string(stats_.dropped_long) + " too long, " +
             std::to_string(stats_.dropped_short) + " too short, " +
             std::to_string(stats_.dropped_unlabelled) + " without labels")
        .need("at least 1 row");
  }
  if (exchange_ == nullptr) {
    window_ = read(place_);
    blocks_ = cut_blocks(*window_, 0, 1);
  } else {
    DealtWindow dealt =
        deal_window(*exchange_, next_reader_, reader_.files(), [this] { return read(place_); });
    window_ = std::move(dealt.window);
    blocks_ = std::move(dealt.blocks);
    next_reader_ = (next_reader_ + 1) % exchange_->size();
  }
  made_.clear();
  first_made_ = row_ = row_begin_ = 0;
  // In later passes the same records come once more, and are not counted again.
  if (place_.pass > 0) return;
  stats_.records += window_->bad_records;
  stats_.bad_records += window_->bad_records;
  stats_.blank_lines += window_->blank_lines;
  if (first_bad_.empty()) first_bad_ = window_->first_bad;
  limit_bad_records();
}

Window DocumentStream::read(const StreamPlace& begin) {
  Window window = reader_.read(begin);
  for (const StreamedDocument& document : window.documents) records_read_ += std::ssize(document.records);
  return window;
}

// Tokenises the block that the document at hand is in, and puts its rows into made_.
void DocumentStream::tokenize_some() {
  const auto block = std::ranges::find_if(
      blocks_, [&](const Block& one) { return static_cast<size_t>(place_.document) < one.last; });
  struct Task {
    size_t document;
    const RawRecord* record;
    const RecordTokenizer* tokenizer;
  };
  std::vector<Task> tasks;
  for (size_t d = block->first; d < block->last; ++d) {
    const StreamedDocument& document = window_->documents[d];
    for (const RawRecord& record : document.records)
      tasks.push_back({d, &record, &tokenizer_of(*document.file)});
  }
  const auto make = [&](size_t begin, size_t end) {
    std::vector<TokenizedRecord> own(end - begin);
    run_on_threads(own.size(), num_threads_, [&](size_t i) {
      const Task& task = tasks[begin + i];
      own[i] = task.tokenizer->tokenize(*task.record);
    });
    records_tokenized_ += std::ssize(own);
    return own;
  };
  std::vector<TokenizedRecord> made =
      exchange_ == nullptr ? make(0, tasks.size()) : deal_records(*exchange_, *block, make);
  first_made_ = block->first;
  made_.assign(block->last - block->first, {});
  row_ = row_begin_ = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    note(window_->documents[tasks[i].document], *tasks[i].record, made[i]);
    std::vector<Row>& rows = made_[tasks[i].document - first_made_];
    std::move(made[i].rows.begin(), made[i].rows.end(), std::back_inserter(rows));
  }
  tell(false);
}

void DocumentStream::note(const StreamedDocument& document, const RawRecord& record, TokenizedRecord& made) {
  if (made.error) {
    if (!skips_bad_ || made.error->kind() != ErrorKind::Data || made.must_raise) throw *made.error;
    if (first_bad_.empty()) first_bad_ = made.error->what();
  }
  if (place_.pass > 0) return;
  ++stats_.records;
  if (made.error) {
    ++stats_.bad_records;
    limit_bad_records();
    return;
  }
  stats_ += made.stats;
  if (made.stats.own_ends == 0 || std::exchange(has_told_ends_, true)) return;
  const std::string place =
      record.line > 0 ? std::to_string(record.line) : "row " + std::to_string(record.element);
  log::warn(document.file->path + ":" + place + ": the text itself begins or ends with a BOS or EOS token" +
            (dataset_.type == "pretrain"
                 ? ", which is removed, so that there is exactly one separator between documents"
                 : ", in addition to the one that is added"));
}

void DocumentStream::limit_bad_records() const {
  if (stats_.bad_records <= context_.config.max_bad_lines) return;
  throw Error(ErrorKind::Data, "TOO-MANY-BAD-LINES",
              "too many bad records; the first of this dataset: " + first_bad_)
      .got(std::to_string(stats_.bad_records))
      .need("at most " + std::to_string(context_.config.max_bad_lines) + " (max_bad_lines)");
}

// Warns once about the records seen by then: after kToldAfter records, or at the end of a window.
void DocumentStream::tell(bool is_end_of_window) {
  if (is_told_ || place_.pass > 0 || (stats_.records < kToldAfter && !is_end_of_window)) return;
  is_told_ = true;
  if (dataset_.type.empty()) return;
  for (const std::string& warning : data_warnings(stats_))
    log::warn(stats_.path + ": among its first records, " + warning);
}

}  // namespace tessera::data

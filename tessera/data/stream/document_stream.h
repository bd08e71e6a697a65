// Gives the rows of one dataset without end, and makes them as they are used.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/data/control_tokens.h"
#include "tessera/data/prompts/prompt.h"
#include "tessera/data/stream/deal_records.h"
#include "tessera/data/stream/window_reader.h"
#include "tessera/data/tokenize_records.h"

namespace tessera::data {

// The part of a row that has not been used yet.
struct RowRest {
  std::span<const int32_t> input_ids, labels;  // as in Row; not empty
};

// Reads a window, tokenises some of its documents at a time, and goes on with the next pass at the end of
// one. It holds in memory one window, and the rows of a few documents.
//
// Ranks with an exchange share the work: they take turns in reading windows, and each rank is given the texts
// of its share of every block of documents, which it tokenises. The rows are the same for any number of
// ranks.
class DocumentStream {
 public:
  // Everything but `options` is borrowed. With `exchange`, peek() is collective over its ranks, and all of
  // them must make the same calls of all functions here.
  DocumentStream(const config::DatasetConfig& dataset, const PromptContext& context,
                 const WindowOptions& options, int64_t num_threads, StreamExchange* exchange = nullptr);

  // Returns the row that comes next, or what is left of it; valid until take(). Throws what reading and
  // tokenising throw, as prepare_data() has it, and Error(Data, "NO-ROWS") if a whole pass has no rows.
  RowRest peek();
  // Marks the first `count` tokens of what peek() gave as used. Requires a peek() before.
  void take(size_t count);

  // place() is that of the next token. seek() goes on from a place as if all tokens before it had been used;
  // it reads a window and throws what reading throws, and Error(Checkpoint) for a place that the dataset does
  // not have. It is not collective.
  StreamPlace place() const { return place_; }
  void seek(const StreamPlace& place);

  const std::vector<DatasetFile>& files() const { return reader_.files(); }
  const std::vector<FileMark>& marks() const { return reader_.marks(); }
  // Returns the counts of the records that were tokenised in the first pass.
  const DatasetStats& stats() const { return stats_; }
  // Numbers of records that this rank has read, and that it has tokenised, for itself or others, in all
  // passes.
  int64_t records_read() const { return records_read_; }
  int64_t records_tokenized() const { return records_tokenized_; }

 private:
  size_t num_ranks() const { return exchange_ == nullptr ? 1 : exchange_->size(); }
  void end_document();
  void read_window();
  Window read(const StreamPlace& begin);
  void tokenize_some();
  const RecordTokenizer& tokenizer_of(const DatasetFile& file);
  void note(const StreamedDocument& document, const RawRecord& record, TokenizedRecord& made);
  void limit_bad_records() const;
  void tell(bool is_end_of_window);

  const config::DatasetConfig& dataset_;
  const PromptContext& context_;
  config::DataConfig limits_;  // limits of a row's length; documents have none
  const bool skips_bad_;
  const int64_t num_threads_;
  StreamExchange* const exchange_;
  std::optional<ControlTokens> control_tokens_;
  WindowReader reader_;
  // Everything that is needed to tokenise the records of a file, by file, at addresses that stay.
  struct OfFile;
  std::map<const DatasetFile*, std::shared_ptr<const OfFile>> of_files_;

  StreamPlace place_;
  std::optional<Window> window_;
  std::vector<Block> blocks_;           // blocks of window_
  size_t next_reader_;                  // the rank that reads the next window
  std::vector<std::vector<Row>> made_;  // rows of the window's documents from first_made_ on
  size_t first_made_ = 0;
  size_t row_ = 0, row_begin_ = 0;  // the row at hand of the document, and the tokens before it
  int64_t pass_with_rows_ = 0;      // the last pass that had a row, or the pass begun with

  DatasetStats stats_;  // of the first pass, since the stream was opened
  int64_t records_read_ = 0, records_tokenized_ = 0;
  std::string first_bad_;
  bool is_told_ = false, has_told_ends_ = false;
};

}  // namespace tessera::data

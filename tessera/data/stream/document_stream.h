// The rows of one dataset, without end, made as they are used.
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

// What is left of a row.
struct RowRest {
  std::span<const int32_t> input_ids, labels;  // as of a Row; not empty
  bool begins_row = true;
};

// Reads a window, tokenises some of its documents at a time, and goes on with the next pass at the end of
// one. The memory is that of a window and of the rows of a few documents.
//
// Ranks with an exchange share the work: they take turns in reading windows, and each tokenises a share of
// every block of documents, whose texts alone it is given. What comes is the same for any number of ranks.
class DocumentStream {
 public:
  // All is borrowed but `options`. With `exchange`, peek() is collective over its ranks, which make the same
  // calls of everything here.
  DocumentStream(const config::DatasetConfig& dataset, const PromptContext& context,
                 const WindowOptions& options, int64_t num_threads, RowExchange* exchange = nullptr);

  // The row that comes next; valid until take(). Throws what reading and tokenising throw, as prepare_data()
  // has it, and Error(Data, "NO-ROWS") where a whole pass has none.
  RowRest peek();
  // Its first `count` tokens are used. Requires a peek().
  void take(size_t count);

  // Of the next token. Goes on from there, as if all before had been used.
  StreamPlace place() const { return place_; }
  void seek(const StreamPlace& place);

  const std::vector<DatasetFile>& files() const { return reader_.files(); }
  const std::vector<FileMark>& marks() const { return reader_.marks(); }
  // What became of the records that were tokenised in the first pass.
  const DatasetStats& stats() const { return stats_; }
  // Records that this rank has read, and those that it has tokenised, for itself or others, in all passes.
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
  config::DataConfig limits_;  // of a row: documents have none
  const bool skips_bad_;
  const int64_t num_threads_;
  RowExchange* const exchange_;
  std::optional<ControlTokens> control_tokens_;
  WindowReader reader_;
  // By file: what it takes to tokenise its records, at an address that stays.
  struct OfFile;
  std::map<const DatasetFile*, std::shared_ptr<const OfFile>> of_files_;

  StreamPlace place_;
  std::optional<Window> window_;
  std::vector<Block> blocks_;           // of it
  size_t next_reader_;                  // the rank whose turn it is
  std::vector<std::vector<Row>> made_;  // of documents of the window from first_made_ on
  size_t first_made_ = 0;
  size_t row_ = 0, row_begin_ = 0;  // of the document: the row at hand, and the tokens before it
  int64_t pass_with_rows_ = 0;      // the last one, or the one begun with

  DatasetStats stats_;  // since the stream was opened
  int64_t records_read_ = 0, records_tokenized_ = 0;
  std::string first_bad_;
  bool is_told_ = false, has_told_ends_ = false;
};

}  // namespace tessera::data

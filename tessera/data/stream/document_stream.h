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
class DocumentStream {
 public:
  // All is borrowed but `options`.
  DocumentStream(const config::DatasetConfig& dataset, const PromptContext& context,
                 const WindowOptions& options, int64_t num_threads);

  // The row that comes next; valid until take(). Throws what reading and tokenising throw, as prepare_data()
  // has it, and Error(Data, "NO-ROWS") where a whole pass has none.
  RowRest peek();
  // Its first `count` tokens are used. Requires a peek().
  void take(size_t count);

  // Of the next token. Goes on from there, as if all before had been used.
  StreamPlace place() const { return place_; }
  void seek(const StreamPlace& place);

  const std::vector<DatasetFile>& files() const { return reader_.files(); }
  // What became of the records that were tokenised in the first pass.
  const DatasetStats& stats() const { return stats_; }

 private:
  void end_document();
  void read_window();
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
  std::optional<ControlTokens> control_tokens_;
  WindowReader reader_;
  // By file: what it takes to tokenise its records, at an address that stays.
  struct OfFile;
  std::map<const DatasetFile*, std::shared_ptr<const OfFile>> of_files_;

  StreamPlace place_;
  std::optional<Window> window_;
  std::vector<std::vector<Row>> made_;  // of documents of the window from first_made_ on
  size_t first_made_ = 0;
  size_t row_ = 0, row_begin_ = 0;  // of the document: the row at hand, and the tokens before it
  int64_t pass_with_rows_ = 0;      // the last one, or the one begun with

  DatasetStats stats_;  // since the stream was opened
  std::string first_bad_;
  bool is_told_ = false, has_told_ends_ = false;
};

}  // namespace tessera::data

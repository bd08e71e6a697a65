// Deals steps of rows that are made while the run goes on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/data/mixed_loader.h"
#include "tessera/data/stream/document_stream.h"

namespace tessera::data {

// Deals sequences of the rows of `datasets`. A step's sequences are a function of the data, the seed and
// their number alone, so that any number of ranks sees the same. Ranks with an exchange read and tokenise a
// share of the documents each, and send the rows to the others; without an exchange every rank does all.
//
// Rows of type pretrain fill a sequence to its last token, and go on in the next one. Rows of other types are
// laid whole into a sequence: one row, or with packing as many of the next rows as there is room for.
class StreamLoader : public MixedLoader {
 public:
  // `tokenizer` is borrowed; it is null for rows of token ids. groups_by_length and packs_in_order of
  // `options` are ignored. With `exchange`, next_step() and sample() are collective over its ranks. These
  // need not be the data ranks of `options`: several of them may share one. Throws what opening the datasets
  // throws.
  StreamLoader(const config::DataConfig& config, const text::Tokenizer* tokenizer,
               std::shared_ptr<const text::ChatTemplate> chat_template, const PrepareOptions& prepare,
               const LoaderOptions& options, std::shared_ptr<StreamExchange> exchange = nullptr);
  StreamLoader(const StreamLoader&) = delete;
  StreamLoader& operator=(const StreamLoader&) = delete;

  // Returns the next `num_sequences` sequences as rows to look at, with the counts of each dataset up to
  // then. The sequences are consumed.
  PreparedData sample(int64_t num_sequences);

  // Sums over all datasets of what DocumentStream counts on this rank.
  int64_t records_read() const;
  int64_t records_tokenized() const;

  // Returns a hash of all that sequences are made from: names, sizes, beginnings and ends of the files, the
  // tokenizer, the chat template, and the keys that shape and order rows.
  std::string fingerprint() const;

 private:
  struct Source {
    std::unique_ptr<DocumentStream> documents;
    bool is_cut = false;  // rows are laid end to end and cut; else they stay whole
  };
  struct Sequence {
    std::vector<int32_t> input_ids, labels;
    std::vector<int64_t> starts;  // [parts]: starts of the parts inside which attention stays
  };

  Sequence make_sequence(Source& source) const;
  SequenceCounts take(size_t source, MicroBatch* batch) override;
  StreamPlace place_of(size_t source) const override { return sources_[source].documents->place(); }
  void seek_source(size_t source, const StreamPlace& place, bool) override {
    sources_[source].documents->seek(place);
  }

  const config::DataConfig config_;
  const std::shared_ptr<const text::ChatTemplate> chat_template_;
  const PromptContext context_;
  const std::string tokenizer_fingerprint_;
  const std::shared_ptr<StreamExchange> exchange_;
  std::vector<Source> sources_;
};

}  // namespace tessera::data

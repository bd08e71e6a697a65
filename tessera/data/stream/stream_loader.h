// Steps of rows that are made while the run goes on.
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
// share of the documents each, and tell it to the others; without one every rank does all.
//
// Rows of type pretrain fill a sequence to its last token, and go on in the next one; others are laid whole
// into it, one or, with packing, as many of those that come next as it has room for.
class StreamLoader : public MixedLoader {
 public:
  // `tokenizer` is borrowed; null for rows of ids. `options`: packing, shuffling and seed are looked at,
  // grouping and packing in order are not. With `exchange`, next_step() and sample() are collective over its
  // ranks, which may belong to other data ranks than `options` says, or share one. Throws what opening the
  // datasets throws.
  StreamLoader(const config::DataConfig& config, const text::Tokenizer* tokenizer,
               std::shared_ptr<const text::ChatTemplate> chat_template, const PrepareOptions& prepare,
               const LoaderOptions& options, std::shared_ptr<RowExchange> exchange = nullptr);
  StreamLoader(const StreamLoader&) = delete;
  StreamLoader& operator=(const StreamLoader&) = delete;

  // The sequences that come next, up to so many, as rows to look at, with what has been counted of each
  // dataset by then. They are used up.
  PreparedData sample(int64_t num_sequences);

  // See DocumentStream.
  int64_t records_read() const;
  int64_t records_tokenized() const;

  // Of all that sequences are made from: names, sizes, beginnings and ends of the files, and the keys that
  // shape and order rows.
  std::string fingerprint() const;

 private:
  struct Source {
    std::unique_ptr<DocumentStream> documents;
    bool is_cut = false;  // documents end to end, else whole rows
  };
  struct Sequence {
    std::vector<int32_t> input_ids, labels;
    std::vector<int64_t> starts;  // of what attention stays inside
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
  const std::shared_ptr<RowExchange> exchange_;
  std::vector<Source> sources_;
};

}  // namespace tessera::data

// Steps of rows that are made while the run goes on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/data/loader.h"
#include "tessera/data/mix.h"
#include "tessera/data/stream/document_stream.h"

namespace tessera::data {

// Deals the rows of `datasets` without end. A step's sequences are a function of the data, the seed and their
// number alone, so that any number of ranks sees the same. Ranks with an exchange read and tokenise a share
// of the documents each, and tell it to the others; without one every rank does all.
//
// Each sequence is of one dataset, drawn by the weights that hold at its step. Rows of type pretrain fill a
// sequence to its last token, and go on in the next one; others are laid whole into it, one or, with packing,
// as many of those that come next as it has room for.
class StreamLoader : public StepSource {
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

  Step next_step() override;
  Cursor cursor() const override;
  // One of other data begins them anew.
  void seek(const Cursor& cursor, bool takes_other_data = false) override;

  std::vector<std::string> datasets() const override;
  int64_t samples_per_step() const override {
    return options_.dp_size * options_.accumulation * options_.micro_batch_size;
  }
  int64_t steps_per_epoch() const override { return 0; }

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
    std::string name;
    bool is_cut = false;  // documents end to end, else whole rows
  };
  struct Sequence {
    std::vector<int32_t> input_ids, labels;
    std::vector<int64_t> starts;  // of what attention stays inside
    int64_t dataset = 0;
  };

  Sequence make_sequence(int64_t sample);
  void append(const Sequence& sequence, MicroBatch& batch) const;
  bool has_several() const { return sources_.size() > 1; }

  const config::DataConfig config_;
  const std::shared_ptr<const text::ChatTemplate> chat_template_;
  const PromptContext context_;
  const std::string tokenizer_fingerprint_;
  const LoaderOptions options_;
  const std::shared_ptr<RowExchange> exchange_;
  const StepMix mix_;
  std::vector<Source> sources_;
  int64_t sample_ = 0;  // sequences given
};

}  // namespace tessera::data

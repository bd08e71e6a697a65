// Chooses the tokens that a masked language model has to tell.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tessera/data/row_file.h"

namespace tessera::data {

struct MaskOptions {
  double probability = 0.15;  // of a unit to be masked
  // Shares of the masked tokens in whose place the mask token stands, and any token of the vocabulary. The
  // others stay as they are.
  double mask_share = 0.8, random_share = 0.1;
  int64_t mask_token_id = 0, vocab_size = 1;
  bool whole_runs = false;  // a unit is a label run, and is masked as a whole; else it is a token
  uint64_t seed = 42;
  const char* stream = "data.masks";  // separates the rows of training from those of evaluation
};

struct MaskedToken {
  int32_t position = 0;          // in its row
  std::optional<int64_t> shown;  // the token that stands there now; nothing: its own one
};

// Masks as BERT has them (Devlin et al., arXiv 1810.04805, section 3.1), drawn by counter: they are a
// function of the seed, the epoch, the place of a row among its rows and the position in the row alone.
class TokenMasks {
 public:
  explicit TokenMasks(const MaskOptions& options) : options_(options) {}

  // Returns the masked ones among the tokens of `runs`, in order. Each unit is masked with the same
  // probability; if none would be, the one that came nearest is, so that every row has something to tell.
  std::vector<MaskedToken> draw(std::span<const LabelRun> runs, int64_t place, int64_t epoch) const;

  const MaskOptions& options() const { return options_; }

 private:
  const MaskOptions options_;
};

}  // namespace tessera::data

// Tokenises the plain texts of a dataset.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/data/batch.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::data {

struct DocumentEnds {
  bool bos = false;  // keep a BOS that the tokenizer's post-processor puts first
  bool eos = false;  // end with EOS, if the tokenizer has one
};

// Returns the ids of a text in which nothing is a control token, with the asked ends.
std::vector<int32_t> encode_document(const text::Tokenizer& tokenizer, std::string_view text,
                                     DocumentEnds ends);

// Sets the ends of `ids`, which must have been encoded with special tokens if `ends.bos`: takes an EOS away
// that the tokenizer's post-processor put last, and adds one if `ends.eos`.
std::vector<int32_t> set_ends(const text::Tokenizer& tokenizer, std::vector<int32_t> ids, DocumentEnds ends);

// Returns the text without the BOS tokens at its start and the EOS tokens at its end that it spells out
// itself, as texts do that were made for another trainer, and without the white space around these.
std::string_view without_own_ends(const text::Tokenizer& tokenizer, std::string_view text);
// Returns whether the text spells out a BOS at its start or an EOS at its end.
bool spells_own_ends(const text::Tokenizer& tokenizer, std::string_view text);

// Appends ids to a row, trained or masked.
void append_ids(Row& row, const std::vector<int32_t>& ids, bool trained);

// Returns EOS as a list, which is empty if the tokenizer has none.
std::vector<int32_t> eos_tokens(const text::Tokenizer& tokenizer);

}  // namespace tessera::data

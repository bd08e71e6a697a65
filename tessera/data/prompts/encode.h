// Tokenising the plain texts of a dataset.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/data/batch.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::data {

struct DocumentEnds {
  bool bos = false;  // keep a BOS that the tokenizer's post-processor puts first
  bool eos = false;  // end with EOS, where the tokenizer has one
};

// The ids of a text in which nothing is a control token, between the asked ends.
std::vector<int32_t> encode_document(const text::Tokenizer& tokenizer, std::string_view text,
                                     DocumentEnds ends);

// Of ids that were encoded with special tokens where `ends.bos`: takes an EOS away that the tokenizer's
// post-processor put last, and adds one where it is asked for.
std::vector<int32_t> set_ends(const text::Tokenizer& tokenizer, std::vector<int32_t> ids, DocumentEnds ends);

// The text without the BOS tokens at its start and the EOS tokens at its end that it spells out itself, as
// texts do that were made for another trainer, and the white space around them.
std::string_view without_own_ends(const text::Tokenizer& tokenizer, std::string_view text);
// Whether it has any.
bool spells_own_ends(const text::Tokenizer& tokenizer, std::string_view text);

// Appends ids to a row, trained or masked.
void append_ids(Row& row, const std::vector<int32_t>& ids, bool trained);

// EOS as a list; empty where the tokenizer has none.
std::vector<int32_t> eos_tokens(const text::Tokenizer& tokenizer);

}  // namespace tessera::data

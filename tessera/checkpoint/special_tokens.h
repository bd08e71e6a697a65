// The ids of special tokens in a model's config.json and generation_config.json.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/checkpoint/save_folder.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::checkpoint {

struct SpecialTokenIds {
  std::optional<int64_t> bos, eos, pad;
};

// Returns the ids that the tokenizer gives these roles.
SpecialTokenIds special_token_ids(const text::Tokenizer& tokenizer);

// Returns the files with these ids in them, so that generate() of Transformers stops at the end token and
// pads with the padding token. An id takes the place of the one that was there. An end token joins a list of
// them, and the one that generation_config.json has, since all of them end a text. Ids beyond the model's
// vocabulary are left out. A file that says the same already stays as it is, byte for byte.
BaseFiles with_special_tokens(BaseFiles files, const SpecialTokenIds& ids);

}  // namespace tessera::checkpoint

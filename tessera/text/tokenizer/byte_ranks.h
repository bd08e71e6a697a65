// Tokenizers that are lists of byte strings in the order of their ranks: tiktoken's files and Mistral's
// tekken.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/text/tokenizer/document_text.h"
#include "tessera/text/tokenizer/folder_hints.h"

namespace tessera::text {

// Such a tokenizer merges the two neighbours whose union has the lowest rank, and takes a word that is in the
// list as one token.
struct ByteRanks {
  std::vector<std::string> tokens;                                // by rank; empty where there is none
  std::string pattern;                                            // cuts the text into words
  std::vector<std::string> specials;                              // empty where an id has none
  std::vector<std::pair<int64_t, std::string>> specials_in_gaps;  // with ids between those of other tokens
  bool specials_first = false;  // ids of special tokens come before the others
  std::string bos, eos, unk, pad;
  bool adds_bos = false;
};

// Returns the same tokenizer as a tokenizer.json, as Transformers converts it. `place` names the file.
ConvertedTokenizer convert_byte_ranks(const ByteRanks& ranks, const std::string& place);

// Reads a file of tiktoken, whose `name` or size tells the family, since the file holds neither the pattern
// nor the special tokens. Throws Error(Model) for an unknown family.
ByteRanks read_tiktoken(std::string_view bytes, const std::string& name, const FolderHints& hints,
                        const std::string& place);
ByteRanks read_tekken(const std::string& bytes, const std::string& place);

}  // namespace tessera::text

// Tokenizers that are bare lists of tokens: vocab.txt of BERT, and vocab.json with merges.txt.
#pragma once

#include <string>
#include <string_view>

#include "tessera/text/tokenizer/document_text.h"
#include "tessera/text/tokenizer/folder_hints.h"

namespace tessera::text {

// Both give the same tokenizer as a tokenizer.json, as Transformers converts it, and throw Error(Model) for
// what they cannot read. `place` names the file.

// vocab.txt: WordPiece with BERT's steps.
ConvertedTokenizer convert_vocab_txt(std::string_view bytes, const FolderHints& hints,
                                     const std::string& place);
// vocab.json and merges.txt: byte-level BPE in the pipeline of the class: GPT-2's, RoBERTa's, Qwen 2's or
// CLIP's.
ConvertedTokenizer convert_vocab_merges(const std::string& vocab, std::string_view merges,
                                        const FolderHints& hints, const std::string& place);

}  // namespace tessera::text

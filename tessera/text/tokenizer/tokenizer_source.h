// Chooses the file of a folder that holds the tokenizer.
#pragma once

#include <optional>
#include <string>

namespace tessera::text {

enum class SourceKind { Json, Tekken, SentencePiece, Tiktoken, VocabMerges, VocabTxt };

struct TokenizerSource {
  SourceKind kind;
  std::string name;  // of the file; vocab.json stands for merges.txt too
};

// Returns the first that is there: tokenizer.json, tekken.json, SentencePiece's file, tiktoken's, vocab.json
// with merges.txt, vocab.txt. That is the order of Transformers, and of mistral-common for the second.
std::optional<TokenizerSource> find_tokenizer_source(const std::string& folder);

}  // namespace tessera::text

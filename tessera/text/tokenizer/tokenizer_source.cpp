#include "tessera/text/tokenizer/tokenizer_source.h"

#include "tessera/io/file.h"

namespace tessera::text {

std::optional<TokenizerSource> find_tokenizer_source(const std::string& folder) {
  const auto has = [&](const std::string& name) { return io::exists(io::join_path(folder, name)); };
  if (has("tokenizer.json")) return TokenizerSource{SourceKind::Json, "tokenizer.json"};
  if (has("tekken.json")) return TokenizerSource{SourceKind::Tekken, "tekken.json"};
  for (const char* name :
       {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "sentencepiece.model"})
    if (has(name)) return TokenizerSource{SourceKind::SentencePiece, name};
  const auto ranks = io::list_files(folder, ".tiktoken");
  if (!ranks.empty()) return TokenizerSource{SourceKind::Tiktoken, ranks.front()};
  if (has("vocab.json") && has("merges.txt")) return TokenizerSource{SourceKind::VocabMerges, "vocab.json"};
  if (has("vocab.txt")) return TokenizerSource{SourceKind::VocabTxt, "vocab.txt"};
  return std::nullopt;
}

}  // namespace tessera::text

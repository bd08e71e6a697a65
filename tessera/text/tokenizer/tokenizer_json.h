// Reads tokenizer.json into its parts.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tessera/text/tokenizer/added_tokens.h"
#include "tessera/text/tokenizer/decoder.h"
#include "tessera/text/tokenizer/normalizer.h"
#include "tessera/text/tokenizer/post_processor.h"
#include "tessera/text/tokenizer/pre_tokenizer.h"
#include "tessera/text/tokenizer/word_model.h"

namespace tessera::text {

// The parsed document; its large tables are in flat lists.
struct TokenizerDocument {
  TokenizerDocument();
  TokenizerDocument(TokenizerDocument&&) noexcept;
  ~TokenizerDocument();

  std::unique_ptr<nlohmann::json> root;  // all but model.vocab and model.merges
  bool has_vocab = false, has_merges = false;
  std::vector<std::pair<std::string, int64_t>> vocab;  // model.vocab, if it maps tokens to ids
  bool has_scores = false;                             // model.vocab is a list
  std::vector<std::pair<std::string, double>> scored;  // that list, of tokens and scores
  std::vector<std::pair<std::string, std::string>> merges;
};

// Parses the text of a tokenizer.json without recursion; refuses nesting deeper than 64 and keys given twice.
// Throws Error(Model) with line and column, or the JSON path.
TokenizerDocument parse_tokenizer_document(std::string_view text, const std::string& file);

// All steps between text and ids. Immutable.
struct TokenizerPipeline {
  std::unique_ptr<Normalizer> normalizer;  // may be null
  PreTokenizer pre_tokenizer;
  std::unique_ptr<WordModel> model;
  AddedTokens added;
  PostProcessor post_processor;
  TokenDecoder decoder;

  // Looks in the added tokens first, then in the vocabulary.
  std::optional<int32_t> token_to_id(std::string_view token) const;
  // Returns the text of an id in the file; null for an unused id.
  const std::string* token_text(int32_t id) const;
  // Returns the text that the decoder sees of an id; null for an unused id.
  const std::string* decoder_text(int32_t id) const;
  int64_t id_limit() const;
};

// Builds the steps. `extra` are added tokens of another file (tokenizer_config.json), whose settings replace
// those of the same token in the document, as in Transformers. Throws Error(Model), naming the JSON path, for
// anything that is not supported or does not fit together.
TokenizerPipeline build_pipeline(TokenizerDocument document, const std::string& file,
                                 std::vector<AddedToken> extra);

// Adds the tokens that the pipeline does not have yet. Throws Error(Model) if an id is taken.
void add_extra_tokens(TokenizerPipeline& pipeline, std::vector<AddedToken> extra);
// Has the token found whole in the text; it is new if the vocabulary does not have it. One that was added
// before becomes special if `is_special`. Returns whether that changes anything. `place` is for errors.
bool add_whole_token(TokenizerPipeline& pipeline, const std::string& content, bool is_special,
                     const std::string& place);

}  // namespace tessera::text

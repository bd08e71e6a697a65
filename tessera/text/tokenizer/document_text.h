// Writes tokenizers of other formats as the text of a tokenizer.json.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace tessera::text {

// A tokenizer that was read from another format.
struct ConvertedTokenizer {
  std::string document;  // the text of its tokenizer.json
  std::map<std::string, std::string>
      roles;  // token of each role (kRoleNames), unless the folder says otherwise
};

// Returns the document. `head` holds all fields but "model", and `model` all of that but its tables, which
// are large and written piece by piece. An empty text of the vocabulary means that no token has that id. A
// null `merges` leaves them out.
std::string document_text(const nlohmann::ordered_json& head, const nlohmann::ordered_json& model,
                          const std::vector<std::string>& vocabulary,
                          const std::vector<std::pair<std::string, std::string>>* merges);

// Returns the fields of a tokenizer.json besides "model". A step is null where the tokenizer has none.
nlohmann::ordered_json document_head(nlohmann::ordered_json added_tokens, nlohmann::ordered_json normalizer,
                                     nlohmann::ordered_json pre_tokenizer,
                                     nlohmann::ordered_json post_processor, nlohmann::ordered_json decoder);
// Returns a byte-pair encoding without its tables. `unk_token` and `suffix`, the end of the last token of a
// word, are null where there is none. With `has_bytes`, unknown characters become the tokens of their bytes.
nlohmann::ordered_json bpe_model(const nlohmann::ordered_json& unk_token,
                                 const nlohmann::ordered_json& suffix, bool has_bytes, bool ignores_merges);

nlohmann::ordered_json byte_level_step(bool adds_space, bool use_regex);
// Returns a Split that isolates the matches of an expression.
nlohmann::ordered_json split_step(const std::string& regex);
nlohmann::ordered_json sequence_step(const char* list, const nlohmann::ordered_json& steps);
// Returns an entry of "added_tokens".
nlohmann::ordered_json added_token_entry(int64_t id, const std::string& content, bool special);

// A special token at an end of a text.
struct EndToken {
  std::string text;
  int64_t id;
};
// Returns a TemplateProcessing that puts tokens around a text, and between the two of a pair. With
// `second_type`, the second text and what follows it have the type id 1.
nlohmann::ordered_json template_step(const std::vector<EndToken>& before,
                                     const std::vector<EndToken>& between,
                                     const std::vector<EndToken>& behind, bool second_type);

}  // namespace tessera::text

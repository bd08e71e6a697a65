#include "tessera/text/tokenizer/gguf_encoders.h"

#include <cmath>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "tessera/core/base64.h"
#include "tessera/core/error.h"
#include "tessera/core/utf8.h"
#include "tessera/io/gguf.h"
#include "tessera/text/tokenizer/gguf_families.h"
#include "tessera/text/tokenizer/vocabulary.h"

namespace tessera::text {
namespace {

using nlohmann::ordered_json;

Error gguf_error(const io::GgufFile& file, const std::string& key, const std::string& what) {
  Error error(ErrorKind::Model, "TOKENIZER-GGUF", what);
  error.in(file.path() + ": key 'tokenizer.ggml." + key + "'");
  return error;
}

struct Tokens {
  std::vector<std::string> texts;
  std::vector<int64_t> types;
};

Tokens read_tokens(const io::GgufFile& file) {
  Tokens out;
  out.texts = file.get_strings("tokenizer.ggml.tokens");
  out.types.assign(out.texts.size(), kNormal);
  if (file.contains("tokenizer.ggml.token_type")) out.types = file.get_ints("tokenizer.ggml.token_type");
  if (out.types.size() != out.texts.size())
    throw gguf_error(file, "token_type", "its length is not that of tokenizer.ggml.tokens");
  if (std::ssize(out.texts) > kMaxTokenId) throw gguf_error(file, "tokens", "too many tokens");
  for (size_t id = 0; id < out.texts.size(); ++id)
    if (out.texts[id].empty() || valid_utf8_prefix(out.texts[id]) != out.texts[id].size())
      throw gguf_error(file, "tokens", "token " + std::to_string(id) + " is empty or not valid UTF-8");
  while (!out.types.empty() && out.types.back() == kUnused) {
    out.types.pop_back();
    out.texts.pop_back();
  }
  return out;
}

// Returns the token of an id that the file names, or `otherwise` by default; nothing where there is none.
std::optional<EndToken> token_of(const io::GgufFile& file, const Tokens& tokens, const char* key,
                                 int64_t otherwise) {
  const std::string name = std::string("tokenizer.ggml.") + key;
  const int64_t id = file.contains(name) ? file.get_int(name) : otherwise;
  if (id < 0 || id >= std::ssize(tokens.texts)) return std::nullopt;
  return EndToken{tokens.texts[static_cast<size_t>(id)], id};
}

ordered_json added_tokens(const Tokens& tokens, const std::vector<EndToken>& specials) {
  ordered_json added = ordered_json::array();
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    bool special = tokens.types[id] == kControl || tokens.types[id] == kUnknown;
    for (const EndToken& token : specials) special = special || token.id == static_cast<int64_t>(id);
    if (special || tokens.types[id] == kUserDefined)
      added.push_back(added_token_entry(static_cast<int64_t>(id), tokens.texts[id], special));
  }
  return added;
}

}  // namespace

// In this kind "▁word" begins a word and "ing" goes on, where BERT spells "word" and "##ing".
ConvertedTokenizer convert_gguf_bert(const io::GgufFile& file) {
  Tokens tokens = read_tokens(file);
  const std::string_view mark = kSpaceSign;
  for (std::string& text : tokens.texts) {
    if (text.starts_with('[') && text.ends_with(']')) continue;
    text = text.starts_with(mark) ? text.substr(mark.size()) : "##" + text;
  }
  ConvertedTokenizer out;
  std::vector<EndToken> specials;
  const std::pair<const char*, std::pair<const char*, int64_t>> roles[] = {
      {"unk_token", {"unknown_token_id", 100}},
      {"sep_token", {"seperator_token_id", 102}},
      {"pad_token", {"padding_token_id", 0}},
      {"cls_token", {"cls_token_id", 101}},
      {"mask_token", {"mask_token_id", 103}}};
  for (const auto& [role, place] : roles) {
    const auto token = token_of(file, tokens, place.first, place.second);
    if (!token) continue;
    out.roles[role] = token->text;
    specials.push_back(*token);
  }
  for (const char* role : {"unk_token", "cls_token", "sep_token"})
    if (!out.roles.contains(role)) throw gguf_error(file, "tokens", std::string("no token is the ") + role);
  const auto end = [&](const char* role) {
    for (const EndToken& token : specials)
      if (token.text == out.roles.at(role)) return token;
    return specials.front();
  };
  const std::vector<EndToken> cls = {end("cls_token")}, sep = {end("sep_token")};
  out.document =
      document_text(document_head(added_tokens(tokens, specials),
                                  {{"type", "BertNormalizer"},
                                   {"clean_text", true},
                                   {"handle_chinese_chars", true},
                                   {"strip_accents", nullptr},
                                   {"lowercase", true}},
                                  {{"type", "BertPreTokenizer"}}, template_step(cls, sep, sep, true),
                                  {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}),
                    {{"type", "WordPiece"},
                     {"unk_token", out.roles.at("unk_token")},
                     {"continuing_subword_prefix", "##"},
                     {"max_input_chars_per_word", 100}},
                    tokens.texts, nullptr);
  return out;
}

ConvertedTokenizer convert_gguf_t5(const io::GgufFile& file) {
  const Tokens tokens = read_tokens(file);
  const std::vector<double> scores = file.get_floats("tokenizer.ggml.scores");
  if (scores.size() < tokens.texts.size())
    throw gguf_error(file, "scores", "its length is not that of tokenizer.ggml.tokens");
  ConvertedTokenizer out;
  std::vector<EndToken> specials;
  const std::pair<const char*, std::pair<const char*, int64_t>> roles[] = {
      {"bos_token", {"bos_token_id", -1}},
      {"eos_token", {"eos_token_id", 1}},
      {"unk_token", {"unknown_token_id", 2}},
      {"pad_token", {"padding_token_id", 0}}};
  std::vector<EndToken> bos, eos;
  int64_t unk_id = -1;
  for (const auto& [role, place] : roles) {
    const auto token = token_of(file, tokens, place.first, place.second);
    if (!token) continue;
    out.roles[role] = token->text;
    specials.push_back(*token);
    if (std::string_view(role) == "bos_token") bos = {*token};
    if (std::string_view(role) == "eos_token") eos = {*token};
    if (std::string_view(role) == "unk_token") unk_id = token->id;
  }
  if (unk_id < 0) throw gguf_error(file, "unknown_token_id", "no token is the unknown one");
  if (!file.get_bool("tokenizer.ggml.add_bos_token", false)) bos.clear();
  if (!file.get_bool("tokenizer.ggml.add_eos_token", true)) eos.clear();

  ordered_json steps = ordered_json::array();
  if (file.contains("tokenizer.ggml.precompiled_charsmap")) {
    std::string map;
    for (const int64_t byte : file.get_ints("tokenizer.ggml.precompiled_charsmap"))
      map += static_cast<char>(byte);
    steps.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", base64(map)}});
  }
  if (file.get_bool("tokenizer.ggml.remove_extra_whitespaces", false)) {
    steps.push_back({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}});
    steps.push_back({{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}});
  }
  const ordered_json metaspace = {
      {"type", "Metaspace"},
      {"replacement", kSpaceSign},
      {"prepend_scheme", file.get_bool("tokenizer.ggml.add_space_prefix", true) ? "always" : "never"},
      {"split", true}};
  ordered_json pieces = ordered_json::array();
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    if (!std::isfinite(scores[id]))
      throw gguf_error(file, "scores", "the score of token " + std::to_string(id) + " is not finite");
    pieces.push_back(ordered_json::array({tokens.texts[id], scores[id]}));
  }
  ordered_json document = document_head(
      added_tokens(tokens, specials), sequence_step("normalizers", steps), metaspace,
      bos.empty() && eos.empty() ? ordered_json() : template_step(bos, eos, eos, false), metaspace);
  document["model"] = {
      {"type", "Unigram"}, {"unk_id", unk_id}, {"vocab", std::move(pieces)}, {"byte_fallback", false}};
  out.document = document.dump(1) + "\n";
  return out;
}

}  // namespace tessera::text

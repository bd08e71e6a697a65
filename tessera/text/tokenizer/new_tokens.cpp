// Tokens that are added to a tokenizer after it was read, and how its files then name them.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/utf8.h"
#include "tessera/text/tokenizer/json_places.h"
#include "tessera/text/tokenizer/tokenizer_impl.h"

namespace tessera::text {
namespace {

using nlohmann::ordered_json;

constexpr const char* kDocument = "tokenizer.json";
constexpr const char* kConfig = "tokenizer_config.json";

// Returns the fields of a token as tokenizer_config.json has them; tokenizer.json has the id before them.
ordered_json flags_of(const AddedToken& token) {
  return {{"content", token.content}, {"single_word", token.single_word}, {"lstrip", token.lstrip},
          {"rstrip", token.rstrip},   {"normalized", token.normalized},   {"special", token.special}};
}

std::string indented(const std::string& json) {
  std::string text;
  for (const char c : json) {
    text += c;
    if (c == '\n') text += "  ";
  }
  return text;
}

// Puts the tokens into the list of added tokens of a tokenizer.json. Its other bytes stay as they are.
void put_in_document(std::string& document, const std::vector<AddedToken>& tokens) {
  const auto place = find_json_value(document, {"added_tokens"});
  ordered_json list = ordered_json::array();
  if (place) list = ordered_json::parse(document.substr(place->begin, place->end - place->begin));
  if (!list.is_array()) list = ordered_json::array();  // null
  for (const AddedToken& token : tokens) {
    const auto known = std::ranges::find_if(
        list, [&](const ordered_json& item) { return item.value("content", "") == token.content; });
    if (known != list.end()) {
      (*known)["special"] = token.special;
      continue;
    }
    ordered_json entry = {{"id", token.id}};
    entry.update(flags_of(token));
    list.push_back(std::move(entry));
  }
  const std::string text = indented(list.dump(2));
  if (place) {
    document.replace(place->begin, place->end - place->begin, text);
  } else {
    const size_t brace = document.find('{');
    const bool is_empty = document.find_first_not_of(" \t\r\n", brace + 1) == document.find('}', brace);
    document.insert(brace + 1, "\n  \"added_tokens\": " + text + (is_empty ? "\n" : ","));
  }
}

// Puts the tokens into tokenizer_config.json: into its table of added tokens if it has one, or if there is no
// tokenizer.json to hold them, and the names in `listed` into its list of further special tokens.
void put_in_config(Tokenizer::Impl& impl, const std::vector<AddedToken>& tokens,
                   const std::vector<std::string>& listed) {
  std::map<std::string, std::string>& files = impl.files;
  auto found = files.find(kConfig);
  if (found == files.end()) {
    const ordered_json made = {{"tokenizer_class", impl.class_name}, {"clean_up_tokenization_spaces", false}};
    found = files.emplace(kConfig, made.dump()).first;
    for (size_t role = 0; role < kRoleNames.size(); ++role)
      impl.role_changed[role] = impl.roles[role].has_value();
  }
  ordered_json config = ordered_json::parse(found->second);
  if (config.contains("added_tokens_decoder") || !files.contains(kDocument)) {
    for (const AddedToken& token : tokens)
      config["added_tokens_decoder"][std::to_string(token.id)] = flags_of(token);
  }
  const char* const key = config.contains("extra_special_tokens") && config["extra_special_tokens"].is_array()
                              ? "extra_special_tokens"
                              : "additional_special_tokens";
  for (const std::string& content : listed) {
    ordered_json& list = config[key];
    if (!list.is_array()) list = ordered_json::array();
    if (std::ranges::find(list, ordered_json(content)) == list.end()) list.push_back(content);
  }
  found->second = config.dump(2) + "\n";
}

}  // namespace

bool Tokenizer::has_new_tokens() const { return impl_->has_new_tokens; }

void Tokenizer::add_tokens(std::span<const NewToken> tokens) {
  TokenizerPipeline& pipeline = impl_->pipeline;
  std::vector<AddedToken> changed;
  std::vector<std::string> listed;
  for (const NewToken& token : tokens) {
    const auto refuse = [&](const char* what) {
      return Error(ErrorKind::Model, "TOKENIZER-ADDED", what).in(impl_->place).got("'" + token.content + "'");
    };
    if (token.content.empty()) throw refuse("a new token is empty");
    if (find_invalid_utf8(token.content) >= 0) throw refuse("a new token is not valid UTF-8");
  }
  const int64_t before = pipeline.id_limit();
  for (const NewToken& token : tokens) {
    if (token.is_listed) listed.push_back(token.content);
    if (add_whole_token(pipeline, token.content, token.is_special, impl_->place))
      changed.push_back(*pipeline.added.find(token.content));
  }
  impl_->has_new_tokens = impl_->has_new_tokens || pipeline.id_limit() > before;
  if (changed.empty() && listed.empty()) return;
  if (const auto document = impl_->files.find(kDocument); document != impl_->files.end())
    put_in_document(document->second, changed);
  put_in_config(*impl_, changed, listed);
}

}  // namespace tessera::text

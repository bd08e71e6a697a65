// Added tokens under other names, as Axolotl's added_tokens_overrides gives them.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/io/file.h"
#include "tessera/io/temporary_folder.h"
#include "tessera/text/tokenizer/tokenizer_impl.h"

namespace tessera::text {
namespace {

using nlohmann::ordered_json;
using Files = std::map<std::string, std::string>;

struct Renamed {
  int32_t id;
  std::string before, now;
};

constexpr const char* kDocument = "tokenizer.json";

void rename_in_document(ordered_json& document, const Renamed& token) {
  for (ordered_json& item : document["added_tokens"]) {
    if (item.value("id", int64_t{-1}) == token.id) item["content"] = token.now;
  }
  // Vocabularies of words are maps from text to id, or lists of text and score.
  ordered_json& vocabulary = document["model"]["vocab"];
  if (vocabulary.is_array()) {
    const auto place = static_cast<size_t>(token.id);
    if (place < vocabulary.size() && vocabulary[place].is_array()) vocabulary[place][0] = token.now;
  } else if (vocabulary.is_object() && vocabulary.contains(token.before)) {
    ordered_json changed = ordered_json::object();
    for (const auto& [text, id] : vocabulary.items()) changed[text == token.before ? token.now : text] = id;
    vocabulary = std::move(changed);
  }
}

void rename_value(ordered_json& value, const Renamed& token) {
  if (value.is_string() && value == token.before) value = token.now;
  if (value.is_object() && value.value("content", "") == token.before) value["content"] = token.now;
}

// Renames the token in tokenizer_config.json or special_tokens_map.json, wherever these name tokens.
void rename_in_side_file(ordered_json& file, const Renamed& token) {
  for (auto& [key, value] : file.items()) {
    if (std::ranges::find(kRoleNames, key) != kRoleNames.end()) rename_value(value, token);
    if (key != "additional_special_tokens" && key != "extra_special_tokens") continue;
    for (ordered_json& item : value) rename_value(item, token);
  }
  const auto decoder = file.find("added_tokens_decoder");
  if (decoder != file.end() && decoder->contains(std::to_string(token.id)))
    (*decoder)[std::to_string(token.id)]["content"] = token.now;
}

}  // namespace

Tokenizer Tokenizer::with_renamed_tokens(const std::map<int32_t, std::string>& names) const {
  Files files = saved_files();
  const auto refuse = [&](const std::string& what) {
    return Error(ErrorKind::Model, "TOKENIZER-RENAME", what).in(impl_->place);
  };
  if (!files.contains(kDocument)) throw refuse("only the tokens of a tokenizer.json can be renamed");
  std::vector<Renamed> renamed;
  for (const auto& [id, name] : names) {
    if (!is_added(id))
      throw refuse("no added token has this id").got(std::to_string(id)).need("the id of an added token");
    if (name.empty()) throw refuse("the new name of a token is empty").got("id " + std::to_string(id));
    const auto owner = token_to_id(name);
    if (owner && *owner != id)
      throw refuse("another token has this name").got("'" + name + "', of id " + std::to_string(*owner));
    renamed.push_back({id, id_to_token(id), name});
  }
  for (const char* name : {kDocument, "tokenizer_config.json", "special_tokens_map.json"}) {
    const auto file = files.find(name);
    if (file == files.end()) continue;
    ordered_json json = ordered_json::parse(file->second);
    for (const Renamed& token : renamed) {
      if (name == kDocument) {
        rename_in_document(json, token);
      } else {
        rename_in_side_file(json, token);
      }
    }
    file->second = json.dump(2) + "\n";
  }
  const io::TemporaryFolder folder("the tokenizer with renamed tokens");
  for (const auto& [name, contents] : files) {
    const std::string path = io::join_path(folder.path(), name);
    io::make_directories(io::parent_path(path));
    io::write_file_atomic(path, contents);
  }
  Tokenizer tokenizer = from_folder(folder.path());
  tokenizer.impl_->place = impl_->place;
  return tokenizer;
}

}  // namespace tessera::text

#include <algorithm>
#include <charconv>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/io/file.h"
#include "tessera/text/tokenizer/json_field.h"
#include "tessera/text/tokenizer/pipeline_steps.h"
#include "tessera/text/tokenizer/template_files.h"
#include "tessera/text/tokenizer/tokenizer_impl.h"

namespace tessera::text {
namespace {

constexpr int64_t kMaxTokenizerBytes = int64_t{256} << 20;
constexpr int64_t kMaxSideFileBytes = int64_t{64} << 20;

// Reads a file beside tokenizer.json into `impl.files`. Returns false if there is none.
bool read_optional(Tokenizer::Impl& impl, const std::string& folder, const std::string& name) {
  const std::string path = io::join_path(folder, name);
  if (!io::exists(path)) return false;
  impl.files[name] = io::read_file(path, kMaxSideFileBytes);
  return true;
}

void read_main_file(Tokenizer::Impl& impl, const std::string& path) {
  if (!io::exists(path))
    throw Error(ErrorKind::Model, "TOKENIZER-MISSING", "no tokenizer file").in(path).need("a tokenizer.json");
  impl.files["tokenizer.json"] = io::read_file(path, kMaxTokenizerBytes);
}

// Returns the text of a special token, which is written as a string or as an object with its flags.
std::optional<std::string> token_content(const JsonField& field) {
  if (field.is_null()) return std::nullopt;
  return field.is_object() ? field.at("content").as_string() : field.as_string();
}

// Reads "added_tokens_decoder" of tokenizer_config.json: {"0": {"content": ...}}.
std::vector<AddedToken> read_added_tokens_decoder(const JsonField& field) {
  std::vector<AddedToken> tokens;
  if (field.is_null()) return tokens;
  for (const auto& [key, value] : field.fields()) {
    AddedToken token = read_token_flags(value);
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (error != std::errc() || end != key.data() + key.size() || token.id < 0 || token.id >= kMaxTokenId)
      throw value.error("TOKENIZER-ADDED", "an id is not a number in range").got("'" + key + "'");
    tokens.push_back(std::move(token));
  }
  std::sort(tokens.begin(), tokens.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return tokens;
}

// Sets a role, and makes its token a special one if it was a plain word of the vocabulary.
void set_role(Tokenizer::Impl& impl, size_t role, const std::string& content, const JsonField& place) {
  TokenizerPipeline& pipeline = impl.pipeline;
  const auto id = pipeline.token_to_id(content);
  if (!id)
    throw place.error("TOKENIZER-SPECIAL", std::string(kRoleNames[role]) + " is not in the vocabulary")
        .got("'" + content + "'")
        .need("a token of tokenizer.json");
  impl.roles[role] = *id;
  if (pipeline.added.find(content) == nullptr) {
    AddedToken token;
    token.id = *id;
    token.content = content;
    token.special = true;
    token.normalized = false;
    pipeline.added.add(std::move(token), nullptr);
  }
}

// Reads one id, a list of ids, or null. Published models give -1 for "none", and ids beyond their vocabulary:
// such ids mean no token, so they are told and left out.
std::vector<int32_t> read_ids(const Tokenizer::Impl& impl, const JsonField& field) {
  std::vector<JsonField> items;
  if (field.value().is_array()) {
    items = field.items();
  } else if (!field.is_null()) {
    items.push_back(field);
  }
  std::vector<int32_t> ids;
  for (const JsonField& item : items) {
    const bool is_none = item.value() == -1;
    const int64_t id = is_none ? -1 : item.as_int(INT64_MAX);
    if (!is_none && id < kMaxTokenId && impl.pipeline.token_text(static_cast<int32_t>(id)) != nullptr) {
      ids.push_back(static_cast<int32_t>(id));
      continue;
    }
    log::warn(item.place() + ": no token has the id " + std::to_string(id) +
              ", so it is ignored; the vocabulary has ids below " + std::to_string(impl.pipeline.id_limit()));
  }
  return ids;
}

void read_generation_config(Tokenizer::Impl& impl, const JsonField& root) {
  const std::pair<SpecialRole, const char*> keys[] = {{SpecialRole::Bos, "bos_token_id"},
                                                      {SpecialRole::Eos, "eos_token_id"},
                                                      {SpecialRole::Pad, "pad_token_id"}};
  for (const auto& [role, key] : keys) {
    const std::vector<int32_t> ids = read_ids(impl, root.at(key));
    if (role == SpecialRole::Eos) impl.more_stop_ids = ids;
    if (!ids.empty() && !impl.role(role)) impl.role(role) = ids[0];
  }
}

// Reads "chat_template" of tokenizer_config.json: a template, a list of {name, template}, or null.
std::map<std::string, std::string> read_chat_templates(const JsonField& field) {
  if (field.is_null()) return {};
  if (field.is_string()) return {{kDefaultTemplate, field.as_string()}};
  std::map<std::string, std::string> templates;
  for (const JsonField& item : field.items())
    templates[item.at("name").as_string()] = item.at("template").as_string();
  return templates;
}

constexpr std::string_view kTemplateEnd = ".jinja";

// Reads the files of templates into `impl.files`, and returns their contents by template.
std::map<std::string, std::string> read_template_files(Tokenizer::Impl& impl, const std::string& folder) {
  std::map<std::string, std::string> templates;
  const auto read = [&](const std::string& name, const std::string& file) {
    if (read_optional(impl, folder, file)) templates[name] = impl.files[file];
  };
  read(kDefaultTemplate, "chat_template.jinja");
  const size_t begin = std::string_view(kTemplateFolder).size() + 1;
  for (const std::string& file : named_template_files(folder))
    read(file.substr(begin, file.size() - begin - kTemplateEnd.size()), file);
  return templates;
}

}  // namespace

std::vector<std::string> named_template_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const std::string& file : io::list_files(io::join_path(folder, kTemplateFolder), kTemplateEnd))
    files.push_back(io::join_path(kTemplateFolder, file));
  return files;
}

void Tokenizer::Impl::build(const std::string& file, std::vector<AddedToken> extra) {
  const std::string& text = files.at("tokenizer.json");
  pipeline = build_pipeline(parse_tokenizer_document(text, file), file, std::move(extra));
}

Tokenizer Tokenizer::from_file(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->place = path;
  read_main_file(*impl, path);
  impl->build(path, {});
  impl->role(SpecialRole::Unk) = impl->pipeline.model->unk_id();
  return Tokenizer(std::move(impl));
}

Tokenizer Tokenizer::from_folder(const std::string& folder) {
  auto impl = std::make_unique<Impl>();
  impl->place = folder;
  const auto path = [&](const char* name) { return io::join_path(folder, name); };
  read_main_file(*impl, path("tokenizer.json"));

  // Reads a side file as a document; an empty object stands for one that is not there.
  const auto read_side = [&](const char* name) {
    const bool found = read_optional(*impl, folder, name);
    return parse_tokenizer_document(found ? impl->files.at(name) : "{}", path(name));
  };
  const TokenizerDocument config_document = read_side("tokenizer_config.json");
  const TokenizerDocument map_document = read_side("special_tokens_map.json");
  const TokenizerDocument generation_document = read_side("generation_config.json");
  const JsonField config(*config_document.root, path("tokenizer_config.json"));
  const JsonField map(*map_document.root, path("special_tokens_map.json"));
  const JsonField generation(*generation_document.root, path("generation_config.json"));

  impl->build(path("tokenizer.json"), read_added_tokens_decoder(config.at("added_tokens_decoder")));

  for (size_t role = 0; role < kRoleNames.size(); ++role) {
    const JsonField in_config = config.at(kRoleNames[role]), in_map = map.at(kRoleNames[role]);
    if (const auto content = token_content(in_config)) {
      set_role(*impl, role, *content, in_config);
    } else if (const auto mapped = token_content(in_map); mapped && !config.contains(kRoleNames[role])) {
      set_role(*impl, role, *mapped, in_map);
    }
  }
  read_generation_config(*impl, generation);
  impl->files.erase("generation_config.json");  // belongs to the model, not to the tokenizer

  impl->chat_templates = read_template_files(*impl, folder);
  if (impl->chat_templates.empty()) impl->chat_templates = read_chat_templates(config.at("chat_template"));
  std::erase_if(impl->chat_templates, [](const auto& named) { return named.second.empty(); });
  return Tokenizer(std::move(impl));
}

}  // namespace tessera::text

#include <algorithm>
#include <charconv>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/io/file.h"
#include "tessera/text/tokenizer/byte_ranks.h"
#include "tessera/text/tokenizer/folder_hints.h"
#include "tessera/text/tokenizer/json_field.h"
#include "tessera/text/tokenizer/pipeline_steps.h"
#include "tessera/text/tokenizer/sentencepiece_pipeline.h"
#include "tessera/text/tokenizer/template_files.h"
#include "tessera/text/tokenizer/tokenizer_impl.h"
#include "tessera/text/tokenizer/tokenizer_source.h"
#include "tessera/text/tokenizer/vocabulary_files.h"

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

Error no_tokenizer(const std::string& path) {
  Error error(ErrorKind::Model, "TOKENIZER-MISSING", "no tokenizer file");
  error.in(path).need(
      "a tokenizer.json, or else tekken.json, tokenizer.model, spiece.model, sentencepiece.bpe.model, a "
      ".tiktoken "
      "file, vocab.json with merges.txt, or vocab.txt");
  return error;
}

using Roles = std::map<std::string, std::string>;

// Takes over a tokenizer that was converted, whose source is in `impl.files` already.
Roles take(Tokenizer::Impl& impl, ConvertedTokenizer converted, const std::string& path,
           std::vector<AddedToken> extra) {
  impl.files["tokenizer.json"] = std::move(converted.document);
  impl.build(path, std::move(extra));
  return converted.roles;
}

// Builds the pipeline from the folder's tokenizer file, and returns the tokens of roles that this file names.
Roles read_source(Tokenizer::Impl& impl, const std::string& folder, const TokenizerSource& source,
                  const FolderHints& hints, std::vector<AddedToken> extra) {
  const std::string path = io::join_path(folder, source.name);
  std::string& bytes = impl.files[source.name];
  bytes = io::read_file(path, kMaxTokenizerBytes);
  switch (source.kind) {
    case SourceKind::Json: impl.build(path, std::move(extra)); return {};
    case SourceKind::Tekken:
      return take(impl, convert_byte_ranks(read_tekken(bytes, path), path), path, std::move(extra));
    case SourceKind::VocabTxt:
      return take(impl, convert_vocab_txt(bytes, hints, path), path, std::move(extra));
    case SourceKind::VocabMerges: {
      std::string& merges = impl.files["merges.txt"];
      merges = io::read_file(io::join_path(folder, "merges.txt"), kMaxTokenizerBytes);
      return take(impl, convert_vocab_merges(bytes, merges, hints, path), path, std::move(extra));
    }
    case SourceKind::SentencePiece: {
      // Llama 3 keeps a file of tiktoken under this name.
      if (!is_sentencepiece_model(bytes)) break;
      auto built = build_sentencepiece_pipeline(read_sentencepiece_model(bytes, path), hints, path);
      impl.pipeline = std::move(built.pipeline);
      impl.class_name = hints.tokenizer_class;
      add_extra_tokens(impl.pipeline, std::move(extra));
      return built.roles;
    }
    case SourceKind::Tiktoken: break;
  }
  const ByteRanks ranks = read_tiktoken(bytes, source.name, hints, path);
  return take(impl, convert_byte_ranks(ranks, path), path, std::move(extra));
}

// Returns the class of the tokenizer, which for a file of SentencePiece follows from its name if the
// configuration does not tell it.
std::string class_of(const JsonField& config, const TokenizerSource& source) {
  if (!config.at("tokenizer_class").is_null()) return config.at("tokenizer_class").as_string();
  if (source.kind != SourceKind::SentencePiece) return "";
  if (source.name == "spiece.model") return "T5Tokenizer";
  return source.name == "sentencepiece.bpe.model" ? "XLMRobertaTokenizer" : "LlamaTokenizer";
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
  // Configurations of decoders often name such a role without a token for it.
  if (!id && role >= static_cast<size_t>(SpecialRole::Cls)) {
    log::warn(place.place() + ": no token '" + content + "', so " + kRoleNames[role] + " is ignored");
    return;
  }
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

// Reads further special tokens: a list, or in Transformers 5 also a map by name; each a text or an object.
void read_special_tokens(Tokenizer::Impl& impl, const JsonField& field) {
  if (field.is_null()) return;
  std::vector<JsonField> items;
  if (field.value().is_array()) {
    items = field.items();
  } else {
    for (const auto& [name, item] : field.fields()) items.push_back(item);
  }
  for (const JsonField& item : items) {
    const auto content = token_content(item);
    if (content && !content->empty())
      add_whole_token(impl.pipeline, *content, /*is_special=*/true, item.place());
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
  if (!io::exists(path)) throw no_tokenizer(path);
  impl->files["tokenizer.json"] = io::read_file(path, kMaxTokenizerBytes);
  impl->build(path, {});
  impl->role(SpecialRole::Unk) = impl->pipeline.model->unk_id();
  return Tokenizer(std::move(impl));
}

bool Tokenizer::is_in_folder(const std::string& folder) { return find_tokenizer_source(folder).has_value(); }

Tokenizer Tokenizer::from_folder(const std::string& folder) {
  auto impl = std::make_unique<Impl>();
  impl->place = folder;
  const auto path = [&](const char* name) { return io::join_path(folder, name); };
  const auto source = find_tokenizer_source(folder);
  if (!source) throw no_tokenizer(path("tokenizer.json"));

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

  const FolderHints hints{class_of(config, *source), config};
  const Roles roles = read_source(*impl, folder, *source, hints,
                                  read_added_tokens_decoder(config.at("added_tokens_decoder")));

  for (size_t role = 0; role < kRoleNames.size(); ++role) {
    const JsonField in_config = config.at(kRoleNames[role]), in_map = map.at(kRoleNames[role]);
    if (const auto content = token_content(in_config)) {
      set_role(*impl, role, *content, in_config);
    } else if (const auto mapped = token_content(in_map); mapped && !config.contains(kRoleNames[role])) {
      set_role(*impl, role, *mapped, in_map);
    } else if (const auto own = roles.find(kRoleNames[role]); own != roles.end()) {
      set_role(*impl, role, own->second, in_config);
    }
  }
  for (const JsonField& place : {config, map}) {
    read_special_tokens(*impl, place.at("additional_special_tokens"));
    read_special_tokens(*impl, place.at("extra_special_tokens"));
  }
  read_generation_config(*impl, generation);
  impl->files.erase("generation_config.json");  // belongs to the model, not to the tokenizer

  impl->chat_templates = read_template_files(*impl, folder);
  if (impl->chat_templates.empty()) impl->chat_templates = read_chat_templates(config.at("chat_template"));
  std::erase_if(impl->chat_templates, [](const auto& named) { return named.second.empty(); });
  return Tokenizer(std::move(impl));
}

}  // namespace tessera::text

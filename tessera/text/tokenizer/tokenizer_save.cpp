#include <algorithm>

#include <nlohmann/json.hpp>

#include "tessera/io/file.h"
#include "tessera/text/tokenizer/tokenizer_impl.h"

namespace tessera::text {
namespace {

using nlohmann::ordered_json;

constexpr const char* kTemplateFile = "chat_template.jinja";

// Parses a side file into an object that keeps the file's order; empty if there was no file.
ordered_json parse_side_file(const std::map<std::string, std::string>& files, const char* name) {
  const auto found = files.find(name);
  return found != files.end() ? ordered_json::parse(found->second) : ordered_json::object();
}

bool is_template_file(const std::string& name) {
  return name == kTemplateFile || name.starts_with(kTemplateFolder + std::string("/"));
}

// Returns the value of "chat_template" in tokenizer_config.json: a template, or a list of named ones.
ordered_json template_entry(const std::map<std::string, std::string>& templates) {
  if (templates.size() == 1 && templates.begin()->first == kDefaultTemplate) return templates.begin()->second;
  ordered_json list = ordered_json::array();
  for (const auto& [name, source] : templates) list.push_back({{"name", name}, {"template", source}});
  return list;
}

// Puts the templates wherever the base keeps its own: Transformers prefers files, and other readers read the
// configuration alone. Only the default one is ever changed: where the base has files, those of other names
// are in them already.
void put_templates(const Tokenizer& tokenizer, std::map<std::string, std::string>& files,
                   ordered_json& config) {
  const bool has_files =
      std::ranges::any_of(files, [](const auto& file) { return is_template_file(file.first); });
  files.erase(kTemplateFolder + ("/" + std::string(kToolTemplate)) + ".jinja");
  if (has_files) files[kTemplateFile] = tokenizer.chat_template();
  if (has_files && config.contains("chat_template")) config["chat_template"] = tokenizer.chat_template();
  if (has_files) return;
  if (tokenizer.chat_templates().empty()) {
    config.erase("chat_template");
  } else {
    config["chat_template"] = template_entry(tokenizer.chat_templates());
  }
}

}  // namespace

std::map<std::string, std::string> Tokenizer::saved_files() const {
  const Impl& impl = *impl_;
  std::map<std::string, std::string> files = impl.files;

  bool changed = false;
  for (const bool role_changed : impl.role_changed) changed = changed || role_changed;
  const auto put_roles = [&](ordered_json& json, bool all) {
    for (size_t role = 0; role < kRoleNames.size(); ++role)
      if (impl.roles[role] && (all || impl.role_changed[role]))
        json[kRoleNames[role]] = id_to_token(*impl.roles[role]);
  };

  if (changed || impl.template_changed || files.count("tokenizer_config.json") == 0) {
    const bool made = files.count("tokenizer_config.json") == 0;
    ordered_json config = parse_side_file(files, "tokenizer_config.json");
    if (made) {
      config["tokenizer_class"] = impl.class_name;
      config["clean_up_tokenization_spaces"] = false;
    }
    put_roles(config, made);
    if (impl.template_changed) put_templates(*this, files, config);
    files["tokenizer_config.json"] = config.dump(2) + "\n";
  }
  if (changed || files.count("special_tokens_map.json") == 0) {
    ordered_json map = parse_side_file(files, "special_tokens_map.json");
    put_roles(map, files.count("special_tokens_map.json") == 0);
    files["special_tokens_map.json"] = map.dump(2) + "\n";
  }
  return files;
}

int64_t Tokenizer::saved_bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, contents] : saved_files()) bytes += static_cast<int64_t>(contents.size());
  return bytes;
}

void Tokenizer::save(const std::string& folder) const {
  for (const auto& [name, contents] : saved_files()) {
    const std::string path = io::join_path(folder, name);
    io::make_directories(io::parent_path(path));
    io::write_file_atomic(path, contents);
  }
}

}  // namespace tessera::text

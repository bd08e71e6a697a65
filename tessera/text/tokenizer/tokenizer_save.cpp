#include <nlohmann/json.hpp>

#include "tessera/io/file.h"
#include "tessera/text/tokenizer/tokenizer_impl.h"

namespace tessera::text {
namespace {

using nlohmann::ordered_json;

// Parses a side file into an object that keeps the file's order; empty if there was no file.
ordered_json parse_side_file(const std::map<std::string, std::string>& files, const char* name) {
  const auto found = files.find(name);
  return found != files.end() ? ordered_json::parse(found->second) : ordered_json::object();
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

  // A new template must replace the old one wherever the base keeps it, since Transformers prefers the file
  // and other readers read the configuration alone.
  const bool has_template_file = files.count("chat_template.jinja") > 0;
  if (impl.template_changed && has_template_file) files["chat_template.jinja"] = impl.chat_template;
  if (changed || impl.template_changed || files.count("tokenizer_config.json") == 0) {
    const bool made = files.count("tokenizer_config.json") == 0;
    ordered_json config = parse_side_file(files, "tokenizer_config.json");
    if (made) {
      config["tokenizer_class"] = "PreTrainedTokenizerFast";
      config["clean_up_tokenization_spaces"] = false;
    }
    put_roles(config, made);
    const bool keeps_template = config.contains("chat_template") || !has_template_file;
    if ((made || impl.template_changed) && keeps_template && !impl.chat_template.empty())
      config["chat_template"] = impl.chat_template;
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
  io::make_directories(folder);
  for (const auto& [name, contents] : saved_files())
    io::write_file_atomic(io::join_path(folder, name), contents);
}

}  // namespace tessera::text

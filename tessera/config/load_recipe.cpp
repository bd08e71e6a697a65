#include "tessera/config/load_recipe.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "tessera/config/bind.h"
#include "tessera/config/overrides.h"
#include "tessera/config/problems.h"
#include "tessera/config/resolve_paths.h"
#include "tessera/config/settle_keys.h"
#include "tessera/config/translate.h"
#include "tessera/config/validate.h"
#include "tessera/config/yaml_reader.h"

namespace tessera::config {

namespace {

Node parse_file(std::string_view text, std::string_view file_name, const char* what) {
  Place file;
  file.file = std::make_shared<const std::string>(file_name);
  Node root = parse_yaml(text, file);
  if (!root.is_map() && !root.is_null()) {
    throw config_error("TYPE", std::string(what) + " is a map of keys", root.place)
        .got(describe(root))
        .need("key: value lines");
  }
  root.place.file = file.file;
  return root;
}

Recipe read(std::string_view text, std::string_view file_name, const std::vector<std::string>& overrides,
            const std::string& accelerate_config, Problems& problems) {
  Recipe recipe;
  recipe.source_file = file_name;
  recipe.source_folder = std::filesystem::path(recipe.source_file).parent_path().string();
  std::vector<SourceFile> files = {{parse_file(text, file_name, "a recipe")}};
  apply_overrides(overrides, files.front().root, problems);
  if (!accelerate_config.empty()) {
    files.push_back(
        {parse_file(read_config_file(accelerate_config), accelerate_config, "an Accelerate configuration")});
  }
  Node native = translate(files, recipe.source_folder, problems);
  settle_keys(native, problems);
  check_required(native, problems);
  bind_recipe(native, recipe, problems);
  validate(recipe, problems);
  return recipe;
}

}  // namespace

Recipe parse_recipe(std::string_view text, std::string_view file_name,
                    const std::vector<std::string>& overrides) {
  Problems problems;
  Recipe recipe = read(text, file_name, overrides, "", problems);
  problems.settle();
  return recipe;
}

Recipe load_recipe_alone(const std::string& path, const std::vector<std::string>& overrides,
                         const std::string& accelerate_config) {
  Problems problems;
  Recipe recipe = read(read_config_file(path), path, overrides, accelerate_config, problems);
  problems.settle();
  return recipe;
}

Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides,
                   const std::string& accelerate_config) {
  Problems problems;
  Recipe recipe = read(read_config_file(path), path, overrides, accelerate_config, problems);
  resolve_paths(recipe, problems);
  problems.settle();
  return recipe;
}

std::string dump_recipe(const Recipe& recipe) { return write_yaml(recipe); }

std::string explain_recipe(const Recipe& recipe) {
  return write_yaml(recipe, KeysToWrite::All, PlacesToWrite::AsComments);
}

std::vector<std::pair<std::string, std::string>> top_level_values(const std::string& dumped) {
  std::vector<std::pair<std::string, std::string>> values;
  for (size_t begin = 0; begin < dumped.size();) {
    const size_t end = std::min(dumped.find('\n', begin), dumped.size());
    const std::string line = dumped.substr(begin, end - begin);
    begin = end + 1;
    const size_t colon = line.find(':');
    const bool starts_key =
        colon != std::string::npos && std::string_view(" -#").find(line[0]) == std::string_view::npos;
    if (starts_key) {
      values.emplace_back(line.substr(0, colon),
                          line.substr(std::min(line.find_first_not_of(' ', colon + 1), line.size())));
    } else if (!values.empty()) {
      std::string& text = values.back().second;
      text += (text.empty() ? "" : "\n") + line;
    }
  }
  return values;
}

std::vector<std::string> known_keys() { return all_key_paths(); }

}  // namespace tessera::config

#include "tessera/data/readers/dataset_card.h"

#include <algorithm>
#include <memory>

#include "tessera/config/node.h"
#include "tessera/config/yaml_reader.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/data/readers/split.h"
#include "tessera/io/file.h"

namespace tessera::data {
namespace {

using config::Node;

constexpr int64_t kMaxCardBytes = int64_t{64} << 20;

// Parses the YAML between the first two lines of "---"; the result is empty if there is none.
Node read_card(const std::string& path) {
  const std::string text = io::read_file(path, kMaxCardBytes);
  if (!text.starts_with("---\n")) return {};
  const size_t end = text.find("\n---", 4);
  if (end == std::string::npos) return {};
  return config::parse_yaml(text.substr(4, end - 3), {std::make_shared<const std::string>(path)});
}

std::string text_of(const Node& map, std::string_view key) {
  const auto* const entry = map.find(key);
  return entry != nullptr && entry->value.is_scalar() ? entry->value.text : "";
}

std::vector<std::string> texts_of(const Node& node) {
  std::vector<std::string> texts;
  if (node.is_scalar()) texts.push_back(node.text);
  for (const Node& item : node.items) {
    if (item.is_scalar()) texts.push_back(item.text);
  }
  return texts;
}

const Node& choose(const config::DatasetConfig& dataset, const std::vector<Node>& configs) {
  std::vector<std::string> names;
  for (const Node& node : configs) {
    names.push_back(text_of(node, "config_name"));
    if (!dataset.name.empty() ? names.back() == dataset.name : text_of(node, "default") == "true")
      return node;
  }
  const auto usual = std::ranges::find(names, "default");
  if (dataset.name.empty() && usual != names.end()) return configs[usual - names.begin()];
  if (dataset.name.empty() && configs.size() == 1) return configs[0];
  throw entry_error(dataset, "DATASET-NAME",
                    dataset.name.empty() ? "datasets: the dataset has several configurations, and no default"
                                         : "datasets: the dataset has no configuration of this name")
      .got("name: " + (dataset.name.empty() ? "(none)" : dataset.name))
      .need("one of " + join(names, ", "));
}

}  // namespace

std::optional<std::vector<std::string>> files_of_card(const config::DatasetConfig& dataset,
                                                      const std::string& folder) {
  const std::string path = io::join_path(folder, "README.md");
  if (!io::exists(path)) return std::nullopt;
  Node card;
  try {
    card = read_card(path);
  } catch (const Error& error) {
    log::warn(std::string("the dataset's card cannot be read: ") + error.what());
    return std::nullopt;
  }
  const auto* const configs = card.find("configs");
  if (configs == nullptr || configs->value.items.empty()) return std::nullopt;
  const Node& chosen = choose(dataset, configs->value.items);
  const auto* const files = chosen.find("data_files");
  if (files == nullptr) return std::nullopt;

  const std::string split = parse_split(dataset).name;
  std::vector<std::string> patterns, others;
  for (const Node& item : files->value.items) {
    if (!item.is_map()) continue;
    others.push_back(text_of(item, "split"));
    const auto* const found = item.find("path");
    if (found == nullptr || usual_split_name(others.back()) != split) continue;
    for (std::string& pattern : texts_of(found->value)) patterns.push_back(std::move(pattern));
  }
  if (others.empty() && split == "train") patterns = texts_of(files->value);
  if (patterns.empty()) throw no_split_error(dataset, "the dataset", others);
  return patterns;
}

}  // namespace tessera::data

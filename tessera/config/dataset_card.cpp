#include "tessera/config/dataset_card.h"

#include <algorithm>
#include <memory>

#include "tessera/config/entry_error.h"
#include "tessera/config/node.h"
#include "tessera/config/yaml_reader.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"

namespace tessera::config {

Error entry_error(const DatasetConfig& dataset, std::string_view name, const std::string& what) {
  Error error(ErrorKind::Config, name, what);
  if (!dataset.source_file.empty()) error.at(dataset.source_file, dataset.source_line);
  return error;
}

namespace {

// Parses the YAML between the first two lines of "---", which may end as on Windows; the result is empty if
// there is none.
Node read_card(std::string text, const std::string& path) {
  std::erase(text, '\r');
  if (!text.starts_with("---\n")) return {};
  const size_t end = text.find("\n---", 4);
  if (end == std::string::npos) return {};
  return parse_yaml(text.substr(4, end - 3), {std::make_shared<const std::string>(path)});
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

const Node& choose(const DatasetConfig& dataset, const std::vector<Node>& configs) {
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

std::optional<std::vector<CardFiles>> files_of_card(const DatasetConfig& dataset, const std::string& text,
                                                    const std::string& path) {
  Node card;
  try {
    card = read_card(text, path);
  } catch (const Error& error) {
    log::warn(std::string("the dataset's card cannot be read: ") + error.what());
    return std::nullopt;
  }
  const auto* const configs = card.find("configs");
  if (configs == nullptr || configs->value.items.empty()) return std::nullopt;
  const Node& chosen = choose(dataset, configs->value.items);
  const auto* const files = chosen.find("data_files");
  if (files == nullptr) return std::nullopt;
  std::vector<CardFiles> splits;
  for (const Node& item : files->value.items) {
    if (!item.is_map()) continue;
    const auto* const found = item.find("path");
    splits.push_back(
        {text_of(item, "split"), found == nullptr ? std::vector<std::string>() : texts_of(found->value)});
  }
  if (splits.empty()) splits.push_back({"", texts_of(files->value)});
  return splits;
}

}  // namespace tessera::config

#include "tessera/config/key_help.h"

#include <algorithm>
#include <sstream>

#include "tessera/config/schema.h"

namespace tessera::config {
namespace {

constexpr std::string_view kDatasets = "Dataset entries";

// Returns the cells of a line of a Markdown table of keys; empty for other lines.
std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells;
  if (!line.starts_with("| `")) return cells;
  size_t start = 1;
  for (size_t end; (end = line.find(" |", start)) != std::string_view::npos; start = end + 2) {
    const size_t first = line.find_first_not_of(' ', start);
    cells.emplace_back(first < end ? line.substr(first, end - first) : "");
  }
  return cells;
}

// Removes Markdown's marks: "[text](link)" becomes "text".
std::string plain(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '`') continue;
    if (text[i] == ']' && i + 1 < text.size() && text[i + 1] == '(') {
      i = std::min(text.find(')', i), text.size());
      continue;
    }
    if (text[i] != '[' || text.find("](", i) == std::string::npos) out += text[i];
  }
  return out;
}

struct Line {
  std::string title, key, meaning;
};

// Returns the lines of the page's tables of keys, which have four columns: key, type, default, meaning.
std::vector<Line> table_lines() {
  std::vector<Line> lines;
  std::istringstream page(recipes_page());
  std::string title;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with('#')) title = line.substr(line.find_first_not_of("# "));
    const std::vector<std::string> cells = cells_of(line);
    if (cells.size() != 4) continue;
    lines.push_back({title, plain(cells[0]), plain(cells[3])});
  }
  return lines;
}

}  // namespace

std::string key_help(std::string_view key, bool is_of_dataset) {
  for (const Line& line : table_lines()) {
    if (line.key == key && (line.title == kDatasets) == is_of_dataset) return line.meaning;
  }
  return "";
}

std::vector<KeyGroup> key_groups() {
  std::vector<KeyGroup> groups;
  for (const Line& line : table_lines()) {
    const auto keys = recipe_keys();
    const bool is_key =
        std::any_of(keys.begin(), keys.end(), [&](const auto& key) { return key.name == line.key; });
    if (!is_key || line.title == kDatasets) continue;
    if (groups.empty() || groups.back().title != line.title) groups.push_back({line.title, {}});
    groups.back().keys.push_back(line.key);
  }
  return groups;
}

}  // namespace tessera::config

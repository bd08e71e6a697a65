#include "tessera/scoring/markdown_table.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "tessera/text/chat_template/text.h"

namespace tessera::scoring {
namespace {

using text::jinja::length_of;

std::string padded(const std::string& text, int64_t width, double share_left) {
  const int64_t space = std::max<int64_t>(0, width - length_of(text));
  const auto left = static_cast<int64_t>(static_cast<double>(space) * share_left);
  return std::string(static_cast<size_t>(left), ' ') + text +
         std::string(static_cast<size_t>(space - left), ' ');
}

}  // namespace

std::string markdown_table(const std::vector<TableColumn>& columns) {
  std::string head = "|", rule = "|";
  std::vector<std::string> rows(columns.front().cells.size(), "|");
  for (const TableColumn& column : columns) {
    int64_t width = std::max<int64_t>(3, length_of(column.title));
    for (const std::string& cell : column.cells) width = std::max(width, length_of(cell));
    head += padded(column.title, width, 0.5) + "|";
    rule += std::string(static_cast<size_t>(width - 1), '-') + (column.is_right ? ":|" : "-|");
    for (size_t i = 0; i < rows.size(); ++i)
      rows[i] += padded(column.cells[i], width, column.is_right ? 1.0 : 0.0) + "|";
  }
  std::string table = head + "\n" + rule + "\n";
  for (const std::string& row : rows) table += row + "\n";
  return table;
}

std::string formatted(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace tessera::scoring

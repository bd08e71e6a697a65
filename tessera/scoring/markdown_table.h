// Tables of results in Markdown, in the form of lm-evaluation-harness.
#pragma once

#include <string>
#include <vector>

namespace tessera::scoring {

// A column of a table; texts stand left and numbers right.
struct TableColumn {
  std::string title;
  bool is_right = false;
  std::vector<std::string> cells = {};
};

// Returns the table of columns with equally many cells, each as wide as its longest cell.
std::string markdown_table(const std::vector<TableColumn>& columns);

// Returns a number in a format of printf().
std::string formatted(const char* format, double value);

}  // namespace tessera::scoring

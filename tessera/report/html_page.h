// The frame of every page that the program makes, and tables on it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::report {

// Writes a page that needs nothing else: `begin`, its first bytes, which tell what it is; the style of
// page_style.h; a heading; and `body`. `title` is plain text.
std::string html_page(std::string_view begin, const std::string& title, const std::string& body);

// Writes a table of plain texts. The first row is a heading, and so is the first cell of every row.
std::string html_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace tessera::report

// How `--help` looks: values by short names, defaults in words, lines of the terminal's width.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace tessera::cli {

class HelpFormat : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* verb) const override;
};

// Returns the short name of a parser's type: N of "INT:INT in [1 - 8]", FOLDER of "TEXT:DIR", the choices of
// "TEXT:{a,b}"; "" for a flag.
std::string value_name(const std::string& type);

// Writes `head`, and `text` in a column behind it, in lines of at most `width` characters.
std::string help_lines(const std::string& head, const std::string& text, size_t column, size_t width);

}  // namespace tessera::cli

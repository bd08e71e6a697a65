#include "tessera/cli/help_format.h"

#include <algorithm>
#include <sstream>
#include <sys/ioctl.h>

#include <unistd.h>

namespace tessera::cli {
namespace {

constexpr size_t kUsualWidth = 100, kLeastWidth = 60, kGreatestWidth = 120;

size_t help_width() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsualWidth;
  return std::clamp<size_t>(size.ws_col, kLeastWidth, kGreatestWidth);
}

}  // namespace

std::string value_name(const std::string& type) {
  const size_t colon = type.find(':');
  const std::string base = type.substr(0, colon);
  const std::string check = colon == std::string::npos ? "" : type.substr(colon + 1);
  if (check.starts_with('{')) return check;
  if (base == "INT" || base == "UINT") return "N";
  if (base == "FLOAT") return "X";
  if (check == "DIR") return "FOLDER";
  if (check == "FILE" || check.find("PATH(") != std::string::npos) return "FILE";
  const bool is_plain = !check.empty() && check.find_first_of(" ([") == std::string::npos;
  return is_plain ? check : base;
}

std::string help_lines(const std::string& head, const std::string& text, size_t column, size_t width) {
  std::string out, line = "  " + head;
  if (line.size() + 1 > column) {
    out = line + '\n';
    line.clear();
  }
  line.resize(column, ' ');
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const bool is_begun = line.size() > column;
    if (is_begun && line.size() + 1 + word.size() > width) {
      out += line + '\n';
      line.assign(column, ' ');
    } else if (is_begun) {
      line += ' ';
    }
    line += word;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return out + line + '\n';
}

std::string HelpFormat::make_option(const CLI::Option* option, bool is_positional) const {
  std::string head = is_positional ? option->get_name(true) : option->get_name(false, true);
  if (!is_positional && option->get_type_size() != 0) head += ' ' + value_name(option->get_type_name());
  if (option->get_expected_max() > 1) head += " ...";
  std::string text = option->get_description();
  const std::string choices = is_positional ? value_name(option->get_type_name()) : "";
  if (choices.starts_with('{')) text += ": " + choices;
  const std::string usual = option->get_default_str();
  const bool tells_default = text.find("default:") != std::string::npos;
  if (option->get_type_size() != 0 && !tells_default && !usual.empty() && usual != "\"\"" && usual != "[]")
    text += " (default " + usual + ")";
  if (option->get_required() && !is_positional) text += " (required)";
  return help_lines(head, text, get_column_width(), help_width());
}

std::string HelpFormat::make_subcommand(const CLI::App* verb) const {
  return help_lines(verb->get_name(), verb->get_description(), get_column_width(), help_width());
}

}  // namespace tessera::cli

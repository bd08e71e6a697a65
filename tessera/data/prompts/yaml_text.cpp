#include "tessera/data/prompts/yaml_text.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <regex>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/utf8.h"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;
using CodePoints = std::u32string;

constexpr int64_t kWidth = 80;
constexpr int kMaxDepth = 64;

CodePoints decode(std::string_view text) {
  CodePoints out;
  for (size_t at = 0; at < text.size(); at += utf8_step(text, at))
    out += static_cast<char32_t>(utf8_decode(text, at));
  return out;
}

bool is_break(char32_t c) { return c == '\n' || c == 0x85 || c == 0x2028 || c == 0x2029; }
bool is_blank(char32_t c) { return c == 0 || c == ' ' || c == '\t' || c == '\r' || is_break(c); }
bool is_among(char32_t c, std::string_view set) {
  return c < 0x80 && set.find(static_cast<char>(c)) != std::string_view::npos;
}

// Returns whether YAML would read a plain scalar of this text as another type.
bool is_other_type(const std::string& text) {
  static const std::regex kOther(
      "|~|null|Null|NULL|<<|=|"
      "yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF|"
      "[-+]?[0-9][0-9_]*\\.[0-9_]*([eE][-+][0-9]+)?|\\.[0-9][0-9_]*([eE][-+][0-9]+)?|"
      "[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+\\.[0-9_]*|[-+]?\\.(inf|Inf|INF)|\\.(nan|NaN|NAN)|"
      "[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+|"
      "[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+|"
      "[0-9]{4}-[0-9]{2}-[0-9]{2}|"
      "[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt]|[ \\t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(\\.[0-9]*)?"
      "([ \\t]*(Z|[-+][0-9]{1,2}(:[0-9]{2})?))?");
  // A long text is none of these, and is not matched because std::regex recurses for each character.
  return text.size() <= 64 && std::regex_match(text, kOther);
}

struct ScalarForms {
  bool plain = true, single_quoted = true;
};

ScalarForms forms_of(const CodePoints& text) {
  if (text.empty()) return {};
  const size_t size = text.size();
  bool indicators = text.starts_with(U"---") || text.starts_with(U"...");
  bool breaks = false, special = false, break_space = false, space_break = false;
  bool after_space = false, after_break = false;
  for (size_t i = 0; i < size; ++i) {
    const char32_t c = text[i];
    const bool before_blank = i + 1 >= size || is_blank(text[i + 1]);
    const bool after_blank = i == 0 || is_blank(text[i - 1]);
    if (i == 0) {
      indicators = indicators || is_among(c, "#,[]{}&*!|>'\"%@`") || (is_among(c, "?:-") && before_blank);
    } else {
      indicators = indicators || (c == ':' && before_blank) || (c == '#' && after_blank);
    }
    breaks = breaks || is_break(c);
    special = special || !(c == '\n' || (c >= 0x20 && c <= 0x7E));
    break_space = break_space || (c == ' ' && after_break);
    space_break = space_break || (is_break(c) && after_space);
    after_space = c == ' ';
    after_break = is_break(c);
  }
  const bool edges =
      text.front() == ' ' || text.back() == ' ' || is_break(text.front()) || is_break(text.back());
  ScalarForms forms;
  forms.single_quoted = !break_space && !space_break && !special;
  forms.plain = forms.single_quoted && !edges && !breaks && !indicators;
  return forms;
}

class Writer {
 public:
  std::string write(const Json& value) {
    node(value, -1, false, 0);
    if (!value.is_structured() && is_open_ended_) out_ += "\n...";
    if (!out_.ends_with('\n')) out_ += '\n';
    return std::move(out_);
  }

 private:
  // Writes a value. `indent` is that of the collection that holds it, or -1 outside all.
  void node(const Json& value, int64_t indent, bool in_map, int depth) {
    if (depth > kMaxDepth) {
      throw Error(ErrorKind::Data, "RECORD", "a value is nested too deeply").need("at most 64 levels");
    }
    if (value.is_object() && !value.empty()) return map(value, indent < 0 ? 0 : indent + 2, depth);
    if (value.is_array() && !value.empty()) {
      return list(value, indent < 0 ? 0 : in_map ? indent : indent + 2, depth);
    }
    scalar(value, indent < 0 ? 2 : indent + 2, true);
  }

  void map(const Json& value, int64_t indent, int depth) {
    std::map<std::string, const Json*> sorted;
    for (const auto& [key, item] : value.items()) sorted[key] = &item;
    for (const auto& [key, item] : sorted) {
      new_line(indent);
      if (key.size() > 120) {
        throw Error(ErrorKind::Data, "RECORD", "a key is too long to be written as YAML")
            .got(std::to_string(key.size()) + " bytes")
            .need("at most 120");
      }
      scalar(Json(key), indent, false);
      put(":");
      is_after_blank_ = false;
      node(*item, indent, true, depth + 1);
    }
  }

  void list(const Json& value, int64_t indent, int depth) {
    for (const Json& item : value) {
      new_line(indent);
      put("-");
      is_after_blank_ = false;
      is_indention_ = true;
      node(item, indent, false, depth + 1);
    }
  }

  void scalar(const Json& value, int64_t indent, bool can_split) {
    is_open_ended_ = true;
    if (value.is_string()) return text(value.get_ref<const std::string&>(), indent, can_split);
    std::string plain;
    if (value.is_boolean()) {
      plain = value.get<bool>() ? "true" : "false";
    } else if (value.is_null()) {
      plain = "null";
    } else if (value.is_structured()) {
      plain = value.is_array() ? "[]" : "{}";
      is_open_ended_ = false;
    } else {
      plain = value.dump();
      const size_t e = plain.find('e');
      if (value.is_number_float() && e != std::string::npos && plain.find('.') == std::string::npos)
        plain.insert(e, ".0");
    }
    space();
    put(plain);
  }

  void text(const std::string& value, int64_t indent, bool can_split) {
    const CodePoints points = decode(value);
    const ScalarForms forms = forms_of(points);
    const bool is_multiline = std::any_of(points.begin(), points.end(), is_break);
    if (forms.plain && !is_other_type(value) && (can_split || !points.empty())) {
      space();
      folded(points, indent, can_split, false);
    } else {
      is_open_ended_ = false;
      space();
      if (forms.single_quoted && (can_split || !is_multiline)) {
        put("'");
        folded(points, indent, can_split, true);
        put("'");
      } else {
        put("\"");
        escaped(points, indent, can_split);
        put("\"");
      }
    }
  }

  // Writes plain and single-quoted text. It is folded at single spaces, and a line break is written as an
  // empty line.
  void folded(const CodePoints& text, int64_t indent, bool can_split, bool is_quoted) {
    const size_t size = text.size();
    for (size_t begin = 0; begin < size;) {
      size_t end = begin;
      const auto run = [&](auto is) {
        while (end < size && is(text[end])) ++end;
      };
      if (text[begin] == ' ') {
        run([](char32_t c) { return c == ' '; });
        const bool inside = !is_quoted || (begin != 0 && end != size);
        if (end == begin + 1 && column_ > kWidth && can_split && inside) {
          new_line(indent);
        } else {
          put(std::string(end - begin, ' '));
        }
      } else if (is_break(text[begin])) {
        run(is_break);
        if (text[begin] == '\n') line_break();
        for (size_t i = begin; i < end; ++i) line_break();
        new_line(indent);
      } else if (is_quoted && text[begin] == '\'') {
        put("''");
        ++end;
      } else {
        run([&](char32_t c) { return c != ' ' && !is_break(c) && !(is_quoted && c == '\''); });
        put(std::string(text.begin() + static_cast<ptrdiff_t>(begin),
                        text.begin() + static_cast<ptrdiff_t>(end)));
      }
      begin = end;
    }
  }

  void escaped(const CodePoints& text, int64_t indent, bool can_split) {
    size_t start = 0;
    const auto flush = [&](size_t end) {
      put(std::string(text.begin() + static_cast<ptrdiff_t>(start),
                      text.begin() + static_cast<ptrdiff_t>(end)));
      start = end;
    };
    for (size_t end = 0; end <= text.size(); ++end) {
      const bool at_end = end == text.size();
      const char32_t c = at_end ? 0 : text[end];
      if (at_end || c == '"' || c == '\\' || c < 0x20 || c > 0x7E) {
        if (start < end) flush(end);
        if (!at_end) {
          put(escape_of(c));
          start = end + 1;
        }
      }
      const auto pending = static_cast<int64_t>(end) - static_cast<int64_t>(start);
      if (end > 0 && end + 1 < text.size() && (c == ' ' || start >= end) && column_ + pending > kWidth &&
          can_split) {
        if (start < end) flush(end);
        put("\\");
        new_line(indent);
        if (text[start] == ' ') put("\\");
      }
    }
  }

  static std::string escape_of(char32_t c) {
    static const std::map<char32_t, const char*> kNamed = {
        {0, "0"},     {7, "a"},    {8, "b"},    {9, "t"},      {10, "n"},
        {11, "v"},    {12, "f"},   {13, "r"},   {0x1B, "e"},   {'"', "\""},
        {'\\', "\\"}, {0x85, "N"}, {0xA0, "_"}, {0x2028, "L"}, {0x2029, "P"}};
    if (const auto found = kNamed.find(c); found != kNamed.end()) return std::string("\\") + found->second;
    char text[16];
    std::snprintf(text, sizeof text,
                  c <= 0xFF     ? "\\x%02X"
                  : c <= 0xFFFF ? "\\u%04X"
                                : "\\U%08X",
                  static_cast<unsigned>(c));
    return text;
  }

  void put(const std::string& text) {
    out_ += text;
    column_ += static_cast<int64_t>(text.size());
    if (!text.empty()) is_after_blank_ = is_indention_ = false;
  }
  void space() {
    if (is_after_blank_) return;
    out_ += ' ';
    ++column_;
  }
  void line_break() {
    out_ += '\n';
    column_ = 0;
    is_after_blank_ = is_indention_ = true;
  }
  // Goes to column `indent`, on a line that holds nothing but indentation and the dashes of lists.
  void new_line(int64_t indent) {
    if (!is_indention_ || column_ > indent || (column_ == indent && !is_after_blank_)) line_break();
    if (column_ < indent) {
      out_ += std::string(static_cast<size_t>(indent - column_), ' ');
      column_ = indent;
      is_after_blank_ = true;
    }
  }

  std::string out_;
  int64_t column_ = 0;
  bool is_after_blank_ = true, is_indention_ = true, is_open_ended_ = false;
};

}  // namespace

std::string yaml_text(const Json& value) { return Writer().write(value); }

}  // namespace tessera::data

#include <charconv>
#include <cmath>
#include <cstdio>

#include <unicode/uchar.h>

#include "tessera/core/utf8.h"
#include "tessera/text/chat_template/runtime.h"
#include "tessera/text/chat_template/value.h"

namespace tessera::text::jinja {

// Returns the shortest digits that read back as the same number, in Python's layout: with an exponent from
// 1e16 up and below 1e-4, else with a point and at least one digit after it.
std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string scientific(buffer, end);
  const size_t mark = scientific.find('e');
  const int exponent = std::stoi(scientific.substr(mark + 1));
  std::string digits = scientific.substr(0, mark), out;
  if (digits[0] == '-') {
    out = "-";
    digits.erase(0, 1);
  }
  if (exponent < -4 || exponent >= 16) {
    std::snprintf(buffer, sizeof buffer, "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    return out + digits + buffer;
  }
  if (digits.size() > 1) digits.erase(1, 1);
  const auto count = static_cast<int>(digits.size());
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1)
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  return out + digits.insert(static_cast<size_t>(exponent + 1), ".");
}

namespace {

bool is_printable(int32_t c) {
  switch (u_charType(c)) {
    case U_UNASSIGNED:
    case U_CONTROL_CHAR:
    case U_FORMAT_CHAR:
    case U_PRIVATE_USE_CHAR:
    case U_SURROGATE:
    case U_LINE_SEPARATOR:
    case U_PARAGRAPH_SEPARATOR: return false;
    case U_SPACE_SEPARATOR: return c == ' ';
    default: return true;
  }
}

void append_quoted(Text& out, const Text& text, const Origin& around) {
  const bool doubled =
      text.bytes.find('\'') != std::string::npos && text.bytes.find('"') == std::string::npos;
  const char quote = doubled ? '"' : '\'';
  out.append(std::string_view(&quote, 1), around);
  size_t hint = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t next = at + utf8_step(text.bytes, at);
    const int32_t c = utf8_decode(text.bytes, at);
    char buffer[16];
    if (c == quote || c == '\\') {
      std::snprintf(buffer, sizeof buffer, "\\%c", c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      std::snprintf(buffer, sizeof buffer, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    } else if (!is_printable(c)) {
      std::snprintf(buffer, sizeof buffer,
                    c < 0x100     ? "\\x%02x"
                    : c < 0x10000 ? "\\u%04x"
                                  : "\\U%08x",
                    static_cast<unsigned>(c));
    } else {
      out.append(text, at, next);
      at = next;
      continue;
    }
    out.append(buffer, text.origin_at(at, hint));
    at = next;
  }
  out.append(std::string_view(&quote, 1), around);
}

void append_repr(Runtime& runtime, Text& out, const Value& value, Origin around, int depth);

void append_items(Runtime& runtime, Text& out, const std::vector<Value>& items, Origin around, int depth) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) out.append(", ", around);
    first = false;
    append_repr(runtime, out, item, around, depth);
  }
}

void append_entries(Runtime& runtime, Text& out, const Dict& dict, Origin around, int depth) {
  out.append("{", around);
  bool first = true;
  for (const auto& [key, item] : dict.entries) {
    if (!first) out.append(", ", around);
    first = false;
    append_repr(runtime, out, key, around, depth);
    out.append(": ", around);
    append_repr(runtime, out, item, around, depth);
  }
  out.append("}", around);
}

void append_repr(Runtime& runtime, Text& out, const Value& value, Origin around, int depth) {
  runtime.charge();
  if (depth > kMaxValueDepth + 8) runtime.fail_limit("a value nests more than 128 deep");
  const auto own = [&](const Origin& origin) { return around == Origin{} ? origin : around; };
  switch (value.kind()) {
    case Kind::String: runtime.charge_walk(value.bytes()); return append_quoted(out, value.text(), around);
    case Kind::Undefined: return out.append("Undefined", around);
    case Kind::None: return out.append("None", around);
    case Kind::Boolean: return out.append(value.boolean() ? "True" : "False", around);
    case Kind::Integer: return out.append(std::to_string(value.integer()), around);
    case Kind::Float: return out.append(float_repr(value.real()), around);
    case Kind::List: {
      const Origin origin = own(value.items().origin);
      out.append("[", origin);
      append_items(runtime, out, value.items().items, origin, depth + 1);
      return out.append("]", origin);
    }
    case Kind::Tuple: {
      out.append("(", around);
      append_items(runtime, out, value.items().items, around, depth + 1);
      return out.append(value.items().items.size() == 1 ? ",)" : ")", around);
    }
    case Kind::View: {
      out.append(std::string(value.items().name) + "([", around);
      append_items(runtime, out, value.items().items, around, depth + 1);
      return out.append("])", around);
    }
    case Kind::Range: {
      const std::vector<Value>& items = value.items().items;
      const int64_t first = items.empty() ? 0 : items[0].integer();
      const int64_t step = items.size() < 2 ? 1 : items[1].integer() - first;
      return out.append("range(" + std::to_string(first) + ", " + std::to_string(value.items().stop) +
                            (step == 1 ? "" : ", " + std::to_string(step)) + ")",
                        around);
    }
    case Kind::Dict: return append_entries(runtime, out, value.dict(), own(value.dict().origin), depth + 1);
    case Kind::Namespace: {
      out.append("<Namespace {", around);
      bool first = true;
      for (const auto& [name, item] : value.space().attributes) {
        out.append((first ? "'" : ", '") + name + "': ", around);
        first = false;
        append_repr(runtime, out, item, around, depth + 1);
      }
      return out.append("}>", around);
    }
    default: runtime.fail("a " + std::string(type_name(value)) + " cannot be printed");
  }
}

}  // namespace

Text to_text(Runtime& runtime, const Value& value) {
  if (value.is_string()) {
    runtime.charge_text(value.text());
    return value.text();
  }
  if (value.is_undefined()) return {};
  return repr(runtime, value);
}

Text repr(Runtime& runtime, const Value& value) {
  Text out;
  append_repr(runtime, out, value, {}, 0);
  return out;
}

}  // namespace tessera::text::jinja

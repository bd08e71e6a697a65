#include "tessera/text/chat_template/json_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "tessera/core/utf8.h"
#include "tessera/io/json_values.h"

namespace tessera::text::jinja {

namespace {

using Json = nlohmann::ordered_json;

Value convert(Runtime& runtime, const Json& json, Origin origin, int depth) {
  runtime.charge();
  if (depth > kMaxValueDepth) runtime.fail_limit("the messages or tools nest more than 128 deep");
  switch (json.type()) {
    case Json::value_t::null: return {};
    case Json::value_t::boolean: return Value::boolean(json.get<bool>());
    case Json::value_t::number_unsigned:
    case Json::value_t::number_integer:
      if (const auto number = io::integer_of(json)) return Value::integer(*number);
      return Value::real(json.get<double>());
    case Json::value_t::number_float: return Value::real(json.get<double>());
    case Json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      return Value::string(runtime, Text(text, origin));
    }
    case Json::value_t::array: {
      std::vector<Value> items;
      for (const Json& item : json) items.push_back(convert(runtime, item, origin, depth + 1));
      return Value::sequence(runtime, Kind::List, std::move(items), {}, origin);
    }
    case Json::value_t::object: {
      std::vector<std::pair<Value, Value>> entries;
      for (const auto& [key, item] : json.items()) {
        entries.emplace_back(Value::string(runtime, Text(key, origin)),
                             convert(runtime, item, origin, depth + 1));
      }
      return Value::dict(runtime, std::move(entries), origin);
    }
    default: runtime.fail("the messages or tools hold a value that is not JSON");
  }
}

}  // namespace

Value from_json(Runtime& runtime, const Json& json, Origin origin) {
  return convert(runtime, json, origin, 0);
}

Value message_from_json(Runtime& runtime, const Json& json, int32_t index) {
  const Origin origin{true, false, index};
  if (!json.is_object()) return convert(runtime, json, origin, 0);
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [key, item] : json.items()) {
    entries.emplace_back(Value::string(runtime, Text(key, origin)),
                         convert(runtime, item, key == "role" ? Origin{} : origin, 1));
  }
  return Value::dict(runtime, std::move(entries), origin);
}

namespace {

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style) {}

  void write(const Value& value, const Origin& around, int depth) {
    runtime_.charge();
    switch (value.kind()) {
      case Kind::None: return out.append("null", around);
      case Kind::Boolean: return out.append(value.boolean() ? "true" : "false", around);
      case Kind::Integer: return out.append(std::to_string(value.integer()), around);
      case Kind::Float: return out.append(number(value.real()), around);
      case Kind::String: return quoted(value.text(), around);
      case Kind::List:
      case Kind::Tuple: {
        const Origin origin = around == Origin{} ? value.items().origin : around;
        return block('[', ']', value.items().items.size(), origin, depth,
                     [&](size_t i) { write(value.items().items[i], origin, depth + 1); });
      }
      case Kind::Dict: return object(value.dict(), around == Origin{} ? value.dict().origin : around, depth);
      default:
        runtime_.fail("a value of type " + std::string(type_name(value)) + " cannot be written as JSON");
    }
  }

  Text out;

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_repr(value);
  }

  template <typename WriteItem>
  void block(char open, char close, size_t count, const Origin& origin, int depth,
             const WriteItem& write_item) {
    out.append(std::string(1, open), origin);
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) out.append(style_.item_separator, origin);
      if (style_.pretty) line(depth + 1, origin);
      write_item(i);
    }
    if (style_.pretty && count > 0) line(depth, origin);
    out.append(std::string(1, close), origin);
  }

  void line(int depth, const Origin& origin) {
    runtime_.charge_bytes(style_.indent.size() * static_cast<size_t>(depth));
    out.append("\n", origin);
    for (int i = 0; i < depth; ++i) out.append(style_.indent, origin);
  }

  void object(const Dict& dict, const Origin& origin, int depth) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return compare(runtime_, a->first, b->first) < 0;
      });
    }
    block('{', '}', entries.size(), origin, depth, [&](size_t i) {
      key(entries[i]->first, origin);
      out.append(style_.key_separator, origin);
      write(entries[i]->second, origin, depth + 1);
    });
  }

  void key(const Value& value, const Origin& origin) {
    switch (value.kind()) {
      case Kind::String: return quoted(value.text(), origin);
      case Kind::None: return out.append("\"null\"", origin);
      case Kind::Boolean: return out.append(value.boolean() ? "\"true\"" : "\"false\"", origin);
      case Kind::Integer: return out.append("\"" + std::to_string(value.integer()) + "\"", origin);
      case Kind::Float: return out.append("\"" + number(value.real()) + "\"", origin);
      default:
        runtime_.fail("keys of JSON must be str, int, float, bool or None, not " +
                      std::string(type_name(value)));
    }
  }

  void quoted(const Text& text, const Origin& around) {
    runtime_.charge_walk(text.bytes);
    // A string that has one origin throughout gives it to its quotes too, so that text and quotes are one
    // segment.
    const bool whole = text.spans.size() == 1 && text.spans[0].begin == 0 && text.spans[0].end == text.size();
    const Origin origin = around == Origin{} && whole ? text.spans[0].origin : around;
    out.append("\"", origin);
    size_t hint = 0, copied = 0;
    const auto put = [&](size_t at, size_t next, const char* escape) {
      out.append(text, copied, at);
      out.append(escape, text.origin_at(at, hint));
      copied = next;
    };
    for (size_t at = 0; at < text.size();) {
      const size_t next = at + utf8_step(text.bytes, at);
      const int32_t c = utf8_decode(text.bytes, at);
      char buffer[16];
      static constexpr std::string_view kPlain = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
      const size_t letter = c < 0x80 ? kPlain.find(static_cast<char>(c)) : std::string_view::npos;
      if (letter != std::string_view::npos) {
        std::snprintf(buffer, sizeof buffer, "\\%c", kLetters[letter]);
        put(at, next, buffer);
      } else if (c < 0x20 || (style_.ensure_ascii && c >= 0x7F)) {
        if (c == 0x7F) {
          at = next;
          continue;
        }
        if (c < 0x10000) {
          std::snprintf(buffer, sizeof buffer, "\\u%04x", static_cast<unsigned>(c));
        } else {
          std::snprintf(buffer, sizeof buffer, "\\u%04x\\u%04x", static_cast<unsigned>(0xD7C0 + (c >> 10)),
                        static_cast<unsigned>(0xDC00 + (c & 0x3FF)));
        }
        put(at, next, buffer);
      }
      at = next;
    }
    out.append(text, copied, text.size());
    out.append("\"", origin);
  }

  Runtime& runtime_;
  const JsonStyle& style_;
};

}  // namespace

Text to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  writer.write(value, {}, 0);
  return std::move(writer.out);
}

}  // namespace tessera::text::jinja

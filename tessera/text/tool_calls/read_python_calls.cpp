#include <cctype>
#include <utility>

#include "tessera/text/tool_calls/read_calls.h"

namespace tessera::text {
namespace {

using Json = nlohmann::ordered_json;

std::string json_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Turns the calls into JSON as it goes; the JSON parser then finds what is wrong with the literals.
class PythonCalls {
 public:
  explicit PythonCalls(std::string_view text) : text_(text) {}

  std::optional<std::vector<ToolCall>> read() {
    std::vector<ToolCall> calls;
    if (!skip('[')) return std::nullopt;
    do {
      ToolCall call{name(/*has_dots=*/true), ""};
      if (call.name.empty() || !skip('(') || !read_arguments(call.arguments)) return std::nullopt;
      calls.push_back(std::move(call));
    } while (skip(','));
    if (!skip(']') || next() != '\0') return std::nullopt;
    return calls;
  }

 private:
  char now() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  // Returns the next character behind white space.
  char next() {
    while (std::isspace(static_cast<unsigned char>(now())) != 0) ++at_;
    return now();
  }
  bool skip(char wanted) {
    if (next() != wanted) return false;
    ++at_;
    return true;
  }
  std::string name(bool has_dots) {
    next();
    const size_t begin = at_;
    while (std::isalnum(static_cast<unsigned char>(now())) != 0 || now() == '_' || (has_dots && now() == '.'))
      ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  // Reads up to the bracket that closes the arguments.
  bool read_arguments(std::string& out) {
    Json arguments = Json::object();
    while (!skip(')')) {
      if (!arguments.empty() && !skip(',')) return false;
      const std::string key = name(/*has_dots=*/false);
      if (key.empty() || !skip('=')) return false;
      std::string literal;
      if (!read_literal(literal)) return false;
      Json value = Json::parse(literal, nullptr, /*allow_exceptions=*/false);
      if (value.is_discarded() || arguments.contains(key)) return false;
      arguments[key] = std::move(value);
    }
    out = json_text(arguments);
    return true;
  }

  // Reads up to a comma or bracket that is not its own, and writes it as JSON.
  bool read_literal(std::string& out) {
    for (int depth = 0; now() != '\0';) {
      const char c = now();
      if (depth == 0 && (c == ',' || c == ')')) return true;
      if (c == '"' || c == '\'') {
        std::string text;
        if (!read_string(text)) return false;
        out += json_text(text);
      } else if (std::isalpha(static_cast<unsigned char>(c)) != 0 && !is_exponent(out)) {
        const std::string word = name(/*has_dots=*/false);
        if (word != "True" && word != "False" && word != "None") return false;
        out += word == "True" ? "true" : word == "False" ? "false" : "null";
      } else {
        depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
        out += c;
        ++at_;
      }
    }
    return false;
  }
  bool is_exponent(const std::string& out) const {
    return (now() == 'e' || now() == 'E') && !out.empty() &&
           (std::isdigit(static_cast<unsigned char>(out.back())) != 0 || out.back() == '.');
  }

  bool read_string(std::string& out) {
    const char quote = text_[at_++];
    for (; now() != quote; ++at_) {
      if (now() == '\0' || now() == '\n') return false;
      if (now() != '\\') {
        out += now();
      } else if (!read_escape(out)) {
        return false;
      }
    }
    ++at_;
    return true;
  }
  // Leaves at_ at the last character of the escape. Python keeps the backslash before a letter that means
  // nothing.
  bool read_escape(std::string& out) {
    constexpr std::string_view kLetters = "ntrabfv\\'\"", kMeant = "\n\t\r\a\b\f\v\\'\"";
    ++at_;
    if (const size_t known = kLetters.find(now()); now() != '\0' && known != std::string_view::npos) {
      out += kMeant[known];
    } else if (now() == 'u' || now() == 'x') {
      const size_t digits = now() == 'u' ? 4 : 2;
      const std::string code = std::string(4 - digits, '0') + std::string(text_.substr(at_ + 1, digits));
      const Json read = Json::parse("\"\\u" + code + "\"", nullptr, /*allow_exceptions=*/false);
      if (!read.is_string()) return false;
      out += read.get<std::string>();
      at_ += digits;
    } else if (now() != '\n') {
      out += '\\';
      out += now();
    }
    return now() != '\0';
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<std::vector<ToolCall>> read_python_calls(std::string_view text) {
  return PythonCalls(text).read();
}

}  // namespace tessera::text

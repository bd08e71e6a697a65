#include "tessera/data/readers/parse_record.h"

#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/utf8.h"

namespace tessera::data {
namespace {

struct Problem {
  size_t byte = 0;
  std::string name, what;
};

// Returns the value of the four hexadecimal digits at `at`, behind "\u", or -1.
int64_t hex4(std::string_view text, size_t at) {
  if (at + 4 > text.size()) return -1;
  int64_t value = 0;
  for (const char c : text.substr(at, 4)) {
    int digit = -1;
    if (c >= '0' && c <= '9') digit = c - '0';
    if (c >= 'a' && c <= 'f') digit = c - 'a' + 10;
    if (c >= 'A' && c <= 'F') digit = c - 'A' + 10;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

std::optional<Problem> check_escape(std::string_view text, size_t backslash, size_t& next) {
  next = backslash + 2;
  if (next > text.size() || text[backslash + 1] != 'u') return std::nullopt;
  const int64_t code = hex4(text, backslash + 2);
  if (code < 0) return std::nullopt;  // the parser reports it
  next = backslash + 6;
  const std::string escape(text.substr(backslash, 6));
  if (code == 0) return Problem{backslash, "ENCODING", "a NUL character " + escape};
  if (code >= 0xD800 && code <= 0xDFFF) {
    const bool paired = code <= 0xDBFF && text.substr(next, 2) == "\\u" && hex4(text, next + 2) >= 0xDC00 &&
                        hex4(text, next + 2) <= 0xDFFF;
    if (!paired) return Problem{backslash, "ENCODING", "a lone surrogate " + escape};
    next += 6;
  }
  return std::nullopt;
}

// Returns the first problem that the JSON parser would accept, or report without a place. `num_members`
// becomes the number of members of all objects together, if the text is JSON.
std::optional<Problem> find_problem(std::string_view text, int64_t& num_members) {
  if (const int64_t bad = find_invalid_utf8(text); bad >= 0) {
    return Problem{static_cast<size_t>(bad), "ENCODING", "invalid UTF-8"};
  }
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos)
    return Problem{nul, "ENCODING", "a NUL byte"};
  int64_t depth = 0;
  num_members = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    size_t next = i + 1;
    if (c == '"') {
      in_string = !in_string;
    } else if (in_string && c == '\\') {
      if (auto problem = check_escape(text, i, next)) return problem;
    } else if (!in_string && (c == '{' || c == '[')) {
      if (++depth > kMaxRecordDepth)
        return Problem{i, "JSON-DEPTH", "nested deeper than " + std::to_string(kMaxRecordDepth) + " levels"};
    } else if (!in_string && (c == '}' || c == ']')) {
      --depth;
    } else if (!in_string && c == ':') {
      ++num_members;
    }
    i = next;
  }
  return std::nullopt;
}

int64_t count_members(const nlohmann::ordered_json& value) {
  auto count = static_cast<int64_t>(value.is_object() ? value.size() : 0);
  for (const nlohmann::ordered_json& inner : value) count += inner.is_structured() ? count_members(inner) : 0;
  return count;
}

// Returns the first key that its object has had before. Requires JSON with such a key.
Problem find_repeated_key(std::string_view text) {
  std::vector<std::set<std::string>> open;
  for (size_t i = 0;; ++i) {
    if (text[i] == '{' || text[i] == '[') open.emplace_back();
    if (text[i] == '}' || text[i] == ']') open.pop_back();
    if (text[i] != '"') continue;
    size_t end = i + 1;
    while (text[end] != '"') end += text[end] == '\\' ? 2 : 1;
    const size_t behind = text.find_first_not_of(" \t\r\n", end + 1);
    const std::string_view string = text.substr(i, end + 1 - i);
    if (behind < text.size() && text[behind] == ':' &&
        !open.back().insert(nlohmann::json::parse(string).get<std::string>()).second)
      return {i, "DUPLICATE-KEY", "the key " + std::string(string) + " stands twice in one object"};
    i = end;
  }
}

// Drops "[json.exception...] parse error at line 1, column 5: " and keeps the reason.
std::string reason(std::string_view what) {
  for (const std::string_view mark : {"column ", "] "}) {
    const size_t at = what.find(mark);
    if (at == std::string_view::npos) continue;
    const size_t colon = mark == "] " ? at : what.find(": ", at);
    if (colon == std::string_view::npos) continue;
    return std::string(what.substr(colon + 2));
  }
  return std::string(what);
}

Error place(Error error, const RawRecord& record, const std::string& file, size_t byte) {
  int64_t line = record.line, column = record.column;
  for (const char c : std::string_view(record.text).substr(0, byte)) {
    ++column;
    if (c == '\n') {
      ++line;
      column = 1;
    }
  }
  error.at(file, line, column);
  return error;
}

// Returns a hint about what stands at the byte where the parser stopped, if Python writes it and JSON has no
// such thing.
std::string hint_for(std::string_view text, size_t byte) {
  const size_t begin = text.find_last_of(" \t\n:,[{", byte);
  const std::string_view value = text.substr(begin == std::string_view::npos ? 0 : begin + 1);
  for (const std::string_view number : {"NaN", "Infinity", "-Infinity"}) {
    if (value.starts_with(number)) return "JSON has no NaN and no infinity: write null";
  }
  for (const std::string_view other : {"'", "None", "True", "False"}) {
    if (value.starts_with(other)) return "this is how Python prints an object: json.dumps() writes JSON";
  }
  return "";
}

std::string element_name(const RawRecord& record) {
  return record.element < 0 ? "" : " (element " + std::to_string(record.element) + ")";
}

}  // namespace

nlohmann::ordered_json parse_record(const RawRecord& record, const std::string& file) {
  if (record.value != nullptr) return *record.value;
  const auto refuse = [&](const Problem& problem) {
    const int64_t offset = record.byte_offset + static_cast<int64_t>(problem.byte);
    throw place(Error(ErrorKind::Data, problem.name,
                      problem.what + " at byte offset " + std::to_string(offset) + element_name(record)),
                record, file, problem.byte);
  };
  int64_t num_members = 0;
  if (const auto problem = find_problem(record.text, num_members)) refuse(*problem);
  nlohmann::ordered_json value;
  try {
    value = nlohmann::ordered_json::parse(record.text);
  } catch (const nlohmann::json::parse_error& error) {
    const size_t byte = error.byte > 0 ? error.byte - 1 : 0;
    throw place(Error(ErrorKind::Data, "JSON", reason(error.what()) + element_name(record))
                    .hint(hint_for(record.text, byte)),
                record, file, byte);
  } catch (const nlohmann::json::exception& error) {
    throw place(Error(ErrorKind::Data, "JSON", reason(error.what()) + element_name(record)), record, file, 0);
  }
  if (!value.is_object()) {
    throw place(
        Error(ErrorKind::Data, "NOT-AN-OBJECT", "the record is not a JSON object" + element_name(record))
            .got(value.type_name())
            .need("object"),
        record, file, 0);
  }
  // If a key is given twice, the parser keeps its last value, so the object then has fewer members than the
  // text.
  if (count_members(value) < num_members) refuse(find_repeated_key(record.text));
  return value;
}

}  // namespace tessera::data

#include "tessera/io/json_file.h"

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/strings.h"
#include "tessera/core/utf8.h"
#include "tessera/io/file.h"

namespace tessera::io {
namespace {

// A first pass over the text, which builds nothing: it finds malformed JSON, duplicate keys and nesting that
// is too deep.
class Checker : public nlohmann::json_sax<nlohmann::json> {
 public:
  Checker(const std::string& place, ErrorKind kind, int64_t max_depth)
      : place_(place), kind_(kind), max_depth_(max_depth) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_array() override { return leave(); }

  bool key(string_t& name) override {
    levels_.back().key = name;
    if (levels_.back().seen.insert(name).second) return true;
    error_ =
        Error(kind_, "JSON-DUPLICATE-KEY", "the key appears twice").in(place_ + ": key '" + key_path() + "'");
    return false;
  }

  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::detail::exception&) override {
    error_ = json_error(place_, kind_, static_cast<int64_t>(position) - 1, "malformed JSON");
    if (!last_token.empty()) error_->got("'" + last_token.substr(0, 80) + "'");
    return false;
  }

  const std::optional<Error>& error() const { return error_; }

 private:
  struct Level {
    std::string key;
    std::unordered_set<std::string> seen;
  };

  bool enter() {
    if (static_cast<int64_t>(levels_.size()) >= max_depth_) {
      error_ = Error(kind_, "JSON-DEPTH", "the JSON is nested too deeply")
                   .in(place_ + ": key '" + key_path() + "'");
      error_->need("at most " + std::to_string(max_depth_) + " levels");
      return false;
    }
    levels_.emplace_back();
    return true;
  }
  bool leave() {
    levels_.pop_back();
    return true;
  }
  std::string key_path() const {
    std::vector<std::string> keys;
    for (const Level& level : levels_) {
      if (!level.key.empty()) keys.push_back(level.key.substr(0, 200));
    }
    return join(keys, ".");
  }

  const std::string& place_;
  ErrorKind kind_;
  int64_t max_depth_;
  std::vector<Level> levels_;
  std::optional<Error> error_;
};

}  // namespace

Error json_error(const std::string& place, ErrorKind kind, int64_t offset, std::string_view what) {
  Error error(kind, "JSON", std::string(what));
  error.in(place + ": byte " + std::to_string(std::max<int64_t>(offset, 0)));
  return error;
}

void check_json_bytes(std::string_view text, const std::string& place, ErrorKind kind, int64_t base_offset) {
  if (const int64_t bad = find_invalid_utf8(text); bad >= 0) {
    throw json_error(place, kind, base_offset + bad, "the text is not valid UTF-8");
  }
  // The parser takes NUL for the end of the text and would not look at what follows.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw json_error(place, kind, base_offset + static_cast<int64_t>(nul), "NUL byte in JSON");
  }
  if (text.starts_with("\xEF\xBB\xBF"))
    throw json_error(place, kind, base_offset, "byte-order mark before JSON");
}

nlohmann::json parse_json(std::string_view text, const std::string& place, ErrorKind kind,
                          const JsonLimits& limits) {
  check_json_bytes(text, place, kind);
  Checker checker(place, kind, limits.max_depth);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &checker)) {
    throw checker.error() ? *checker.error() : json_error(place, kind, 0, "malformed JSON");
  }
  return nlohmann::json::parse(text.begin(), text.end());
}

std::string read_json_text(const std::string& path, ErrorKind kind, const JsonLimits& limits) {
  const File file = File::open(path);
  if (file.size() > limits.max_bytes) {
    throw Error(kind, "JSON-SIZE", "the JSON file is too large")
        .in(path)
        .got(format_bytes(file.size()))
        .need("at most " + format_bytes(limits.max_bytes));
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read_at(0, text.data(), file.size());
  return text;
}

nlohmann::json read_json_file(const std::string& path, ErrorKind kind, const JsonLimits& limits) {
  return parse_json(read_json_text(path, kind, limits), path, kind, limits);
}

}  // namespace tessera::io

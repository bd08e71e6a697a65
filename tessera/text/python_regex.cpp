#include "tessera/text/python_regex.h"

#include <utility>

#include <unicode/regex.h>

#include "tessera/core/error.h"

namespace tessera::text {
namespace {

constexpr int32_t kTimeLimit = 5000;  // in units of ICU, each of about a millisecond
constexpr int32_t kMaxStackBytes = 64 << 20;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Returns whether "{...}" at `at` counts repetitions. In Python any other brace stands for itself.
bool is_counter(std::string_view pattern, size_t at) {
  size_t i = at + 1;
  while (i < pattern.size() && (is_digit(pattern[i]) || pattern[i] == ',')) ++i;
  return i > at + 1 && i < pattern.size() && pattern[i] == '}' && pattern.substr(at, 3) != "{,}";
}

// Rewrites a pattern of Python in ICU's dialect.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (in_set_) {
        set_character(c);
      } else if (c == '[') {
        open_set();
      } else if (c == '{' && !is_counter(pattern_, at_)) {
        put("\\{");
      } else if (c == '{') {
        const size_t end = pattern_.find('}', at_);
        const std::string_view counter = pattern_.substr(at_, end + 1 - at_);
        out_ += counter.starts_with("{,") ? "{0" + std::string(counter.substr(1)) : std::string(counter);
        at_ = end + 1;
      } else if (c == '}') {
        put("\\}");
      } else if (pattern_.substr(at_).starts_with("(?P<")) {
        out_ += "(?<";
        at_ += 4;
      } else if (pattern_.substr(at_).starts_with("(?P=")) {
        const size_t end = std::min(pattern_.find(')', at_), pattern_.size());
        out_ += "\\k<" + std::string(pattern_.substr(at_ + 4, end - at_ - 4)) + ">";
        at_ = std::min(end + 1, pattern_.size());
      } else {
        put(std::string(1, c));
      }
    }
    return std::move(out_);
  }

 private:
  void put(std::string_view text, size_t taken = 1) {
    out_ += text;
    at_ += taken;
  }

  void escape() {
    const char next = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    // White space of Python that ICU's \s lacks.
    constexpr const char* kMoreSpace = "\\x0b\\x1c-\\x1f\\x85";
    if (next == 's') {
      put(in_set_ ? "\\s" + std::string(kMoreSpace) : "[\\s" + std::string(kMoreSpace) + "]", 2);
    } else if (next == 'S' && !in_set_) {
      put("[^\\s" + std::string(kMoreSpace) + "]", 2);
    } else if (next == 'Z') {
      put("\\z", 2);
    } else if (next == '\0') {
      put("\\");
    } else {
      put(pattern_.substr(at_, 2), 2);
    }
  }

  void open_set() {
    put("[");
    in_set_ = true;
    if (at_ < pattern_.size() && pattern_[at_] == '^') put("^");
    if (at_ < pattern_.size() && pattern_[at_] == ']') put("\\]");
  }

  void set_character(char c) {
    if (c == ']') {
      in_set_ = false;
      return put("]");
    }
    // ICU gives these a meaning inside a set: nested sets, intersection, variables.
    put(std::string(c == '[' || c == '&' || c == '$' || c == '{' || c == '}' ? "\\" : "") + c);
  }

  std::string_view pattern_;
  std::string out_;
  size_t at_ = 0;
  bool in_set_ = false;
};

std::string utf8_of(const icu::UnicodeString& text) {
  std::string out;
  text.toUTF8String(out);
  return out;
}

}  // namespace

struct PythonRegex::Impl {
  std::unique_ptr<icu::RegexPattern> pattern;
  std::string source, place;
  int32_t groups = 0;

  // Calls `sink` with the matcher at every match until it returns false.
  template <class Sink>
  void for_each_match(const icu::UnicodeString& text, Sink&& sink) const {
    UErrorCode status = U_ZERO_ERROR;
    std::unique_ptr<icu::RegexMatcher> matcher(pattern->matcher(text, status));
    if (U_SUCCESS(status)) {
      matcher->setTimeLimit(kTimeLimit, status);
      matcher->setStackLimit(kMaxStackBytes, status);
      while (U_SUCCESS(status) && matcher->find(status) && sink(*matcher)) {
      }
    }
    if (U_SUCCESS(status)) return;
    throw Error(ErrorKind::Config, "REGEX-LIMIT",
                std::string("the regular expression fails on a text: ") + u_errorName(status))
        .in(place)
        .got(source)
        .hint("the expression backtracks; rewrite it");
  }

  std::string group(const icu::RegexMatcher& matcher, int32_t number) const {
    UErrorCode status = U_ZERO_ERROR;
    const icu::UnicodeString text = matcher.group(number, status);
    return U_SUCCESS(status) ? utf8_of(text) : std::string();
  }

  // Returns the replacement for a match.
  std::string expand(const icu::RegexMatcher& matcher, std::string_view replacement) const {
    std::string out;
    for (size_t i = 0; i < replacement.size(); ++i) {
      if (replacement[i] != '\\' || i + 1 == replacement.size()) {
        out += replacement[i];
        continue;
      }
      const char next = replacement[++i];
      size_t begin = i, end = i;
      if (next == 'g' && replacement.substr(i).starts_with("g<")) begin = end = i + 2;
      while (end < replacement.size() && end < begin + 2 && is_digit(replacement[end])) ++end;
      if (end > begin) {
        const int32_t number = std::stoi(std::string(replacement.substr(begin, end - begin)));
        if (number > groups) {
          throw Error(ErrorKind::Config, "REGEX", "the replacement names a group that the pattern lacks")
              .in(place)
              .got("\\" + std::to_string(number))
              .need("at most " + std::to_string(groups));
        }
        out += group(matcher, number);
        i = begin > i ? end : end - 1;
      } else {
        out += next == 'n' ? '\n' : next == 't' ? '\t' : next == 'r' ? '\r' : next;
      }
    }
    return out;
  }
};

PythonRegex::PythonRegex(std::string_view pattern, std::string place) : impl_(std::make_unique<Impl>()) {
  UErrorCode status = U_ZERO_ERROR;
  UParseError where{};
  impl_->pattern.reset(icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(Translator(pattern).run()),
                                                  UREGEX_UNIX_LINES, where, status));
  if (U_FAILURE(status)) {
    throw Error(ErrorKind::Config, "REGEX",
                std::string("malformed regular expression: ") + u_errorName(status))
        .in(place)
        .got(pattern);
  }
  impl_->source = std::string(pattern);
  impl_->place = std::move(place);
  std::unique_ptr<icu::RegexMatcher> matcher(impl_->pattern->matcher(status));
  impl_->groups = matcher->groupCount();
}

PythonRegex::PythonRegex(PythonRegex&&) noexcept = default;
PythonRegex& PythonRegex::operator=(PythonRegex&&) noexcept = default;
PythonRegex::~PythonRegex() = default;

bool PythonRegex::has_groups() const { return impl_->groups > 0; }

std::vector<std::vector<std::string>> PythonRegex::find_all(std::string_view text) const {
  std::vector<std::vector<std::string>> found;
  impl_->for_each_match(icu::UnicodeString::fromUTF8(text), [&](const icu::RegexMatcher& matcher) {
    std::vector<std::string> groups;
    for (int32_t i = impl_->groups > 0 ? 1 : 0; i <= impl_->groups; ++i)
      groups.push_back(impl_->group(matcher, i));
    found.push_back(std::move(groups));
    return true;
  });
  return found;
}

std::string PythonRegex::replace(std::string_view text, std::string_view replacement, int64_t count) const {
  const icu::UnicodeString source = icu::UnicodeString::fromUTF8(text);
  std::string out;
  int32_t copied = 0;
  int64_t replaced = 0;
  impl_->for_each_match(source, [&](const icu::RegexMatcher& matcher) {
    UErrorCode status = U_ZERO_ERROR;
    const int32_t begin = matcher.start(status), end = matcher.end(status);
    out += utf8_of(source.tempSubStringBetween(copied, begin)) + impl_->expand(matcher, replacement);
    copied = end;
    return ++replaced != count;
  });
  return out + utf8_of(source.tempSubString(copied));
}

}  // namespace tessera::text

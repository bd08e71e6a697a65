#include "tessera/text/tokenizer/regex.h"

#include <cstdio>
#include <ctime>

#include <unicode/regex.h>
#include <unicode/utext.h>

#include "tessera/core/error.h"
#include "tessera/text/tokenizer/unicode_additions.h"

namespace tessera::text {
namespace {

constexpr int32_t kMaxStackBytes = 64 << 20;

// Returns whether the text before a '}' ends with a repetition, as "a{1,3", and not with a property, as
// "\\p{L".
bool ends_with_counter(std::string_view text) {
  while (!text.empty() && (text.back() == ',' || (text.back() >= '0' && text.back() <= '9')))
    text.remove_suffix(1);
  return text.ends_with('{') && !text.ends_with("\\x{");
}

// Returns the name in "{Lu}" at `position` if it names a general category; else empty.
std::string_view category_at(std::string_view pattern, size_t position) {
  const size_t end = pattern.find('}', position);
  if (position >= pattern.size() || pattern[position] != '{' || end == std::string_view::npos) return {};
  const std::string_view name = pattern.substr(position + 1, end - position - 1);
  const bool known = !name.empty() && name.size() <= 2 &&
                     std::string_view("LMNPSZC").find(name[0]) != std::string_view::npos;
  return known ? name : std::string_view();
}

// Returns the newer characters of a category, as the inside of a set.
std::string newer(std::string_view category) {
  std::string out;
  char range[32];
  for (const NewCharacters& added : new_characters()) {
    if (!added.category.starts_with(category)) continue;
    std::snprintf(range, sizeof range, "\\x{%x}-\\x{%x}", added.first, added.last);
    out += range;
  }
  return out;
}

// Rewrites the parts that mean different things in the two dialects, and refuses those without a counterpart.
std::string translate(std::string_view pattern, const std::string& place) {
  const auto refuse = [&](std::string_view what) {
    throw Error(ErrorKind::Model, "TOKENIZER-REGEX", "regular expression is not supported")
        .in(place)
        .got(std::string(what) + " in " + std::string(pattern));
  };
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 'w' || escaped == 'W') {
        // Superscripts and fractions of Latin-1 count as word characters, those of other blocks do not.
        out += std::string(escaped == 'w' ? "[" : "[^") +
               R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\u00b2\u00b3\u00b9\u00bc-\u00be)" + newer("L") + newer("M") +
               newer("Nd") + "]";
      } else if ((escaped == 'p' || escaped == 'P') && !category_at(pattern, i + 1).empty()) {
        const std::string_view category = category_at(pattern, i + 1);
        out += std::string(escaped == 'p' ? "[" : "[^") + "\\p{" + std::string(category) + "}" +
               newer(category) + "]";
        i += category.size() + 2;
      } else if (std::string_view("hHKRXyYOg").find(escaped) != std::string_view::npos) {
        refuse(std::string("\\") + escaped);
      } else {
        out += c;
        out += escaped;
      }
      continue;
    }
    if (c == '(' && pattern.substr(i, 2) == "(?") {
      // In Oniguruma (?m) lets the dot match line ends; in ICU it does not.
      for (size_t j = i + 2;
           j < pattern.size() && std::string_view(":)=!<>#").find(pattern[j]) == std::string_view::npos; ++j)
        if (pattern[j] == 'm') refuse("(?m)");
    }
    if (c == '}' && i + 1 < pattern.size() && pattern[i + 1] == '+' &&
        ends_with_counter(pattern.substr(0, i)))
      refuse("{n,m}+");
    out += c;
  }
  return out;
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Limits one search. It counts the processor time of the thread, which does not depend on other work on the
// machine.
struct Deadline {
  double end = 0;
  int calls = 0;
  bool passed = false;

  bool go_on() {
    if (!passed) passed = thread_seconds() > end;
    return !passed;
  }
};

// ICU calls on_steps() after some thousand steps within one match attempt, and on_attempt() at each failed
// attempt.
UBool on_steps(const void* context, int32_t) {
  return static_cast<Deadline*>(const_cast<void*>(context))->go_on();
}
UBool on_attempt(const void* context, int64_t) {
  auto* deadline = static_cast<Deadline*>(const_cast<void*>(context));
  return ++deadline->calls % 256 != 0 || deadline->go_on();
}

}  // namespace

struct Regex::Impl {
  std::unique_ptr<icu::RegexPattern> pattern;
  std::string source, place;
};

Regex::Regex(std::string_view pattern, std::string place) : impl_(std::make_unique<Impl>()) {
  const std::string translated = translate(pattern, place);
  UErrorCode status = U_ZERO_ERROR;
  UParseError where{};
  impl_->pattern.reset(icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(translated),
                                                  UREGEX_MULTILINE | UREGEX_UNIX_LINES, where, status));
  if (U_FAILURE(status)) {
    throw Error(ErrorKind::Model, "TOKENIZER-REGEX",
                "malformed regular expression: " + std::string(u_errorName(status)))
        .in(place)
        .got(pattern);
  }
  impl_->source = std::string(pattern);
  impl_->place = std::move(place);
}

Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

void Regex::for_each_match(std::string_view text, RangeSink sink) const {
  if (text.empty()) return;
  UErrorCode status = U_ZERO_ERROR;
  UText utext = UTEXT_INITIALIZER;
  utext_openUTF8(&utext, text.data(), static_cast<int64_t>(text.size()), &status);
  const icu::LocalUTextPointer closes(&utext);  // also if `sink` throws
  std::unique_ptr<icu::RegexMatcher> matcher(impl_->pattern->matcher(status));
  Deadline deadline{thread_seconds() + 1.0 + static_cast<double>(text.size()) / (1 << 20)};
  if (U_SUCCESS(status)) {
    matcher->setStackLimit(kMaxStackBytes, status);
    matcher->setMatchCallback(on_steps, &deadline, status);
    matcher->setFindProgressCallback(on_attempt, &deadline, status);
    matcher->reset(&utext);
    size_t last_end = std::string_view::npos;
    while (U_SUCCESS(status) && matcher->find(status)) {
      const auto begin = static_cast<size_t>(matcher->start64(status));
      const auto end = static_cast<size_t>(matcher->end64(status));
      if (U_SUCCESS(status) && (end > begin || end != last_end)) sink(begin, end);
      last_end = end;
    }
  }
  if (deadline.passed || U_FAILURE(status)) {
    throw Error(ErrorKind::Model, "TOKENIZER-REGEX-LIMIT",
                deadline.passed
                    ? "the regular expression takes too long on this text"
                    : "the regular expression failed on this text: " + std::string(u_errorName(status)))
        .in(impl_->place)
        .got(impl_->source)
        .hint("the expression backtracks; rewrite it, or shorten the text");
  }
}

}  // namespace tessera::text

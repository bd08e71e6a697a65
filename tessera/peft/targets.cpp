#include "tessera/peft/targets.h"

#include <unicode/regex.h>
#include <unicode/unistr.h>

#include "tessera/core/error.h"

namespace tessera::peft {
namespace {

// ICU counts the limit in units of 10,000 saved states of its engine.
constexpr int32_t kTimeLimit = 1000;

Error pattern_error(const std::string& expression, const std::string& what) {
  return Error(ErrorKind::Config, "LORA-TARGET", what).got("'" + expression + "'");
}

}  // namespace

struct NamePattern::State {
  std::string expression;
  std::unique_ptr<icu::RegexPattern> pattern;

  // Returns a matcher for `text`, which must outlive it.
  std::unique_ptr<icu::RegexMatcher> start(const icu::UnicodeString& text, UErrorCode& status) const;
  void check(UErrorCode status) const;
};

NamePattern::NamePattern(const std::string& expression) : state_(std::make_unique<State>()) {
  UErrorCode status = U_ZERO_ERROR;
  UParseError where{};
  state_->expression = expression;
  state_->pattern.reset(
      icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(expression), 0, where, status));
  if (U_FAILURE(status)) {
    throw pattern_error(expression, std::string("bad regular expression for target modules: ") +
                                        u_errorName(status) + " at character " +
                                        std::to_string(where.offset));
  }
}

NamePattern::~NamePattern() = default;
NamePattern::NamePattern(NamePattern&&) noexcept = default;
NamePattern& NamePattern::operator=(NamePattern&&) noexcept = default;

std::unique_ptr<icu::RegexMatcher> NamePattern::State::start(const icu::UnicodeString& text,
                                                             UErrorCode& status) const {
  std::unique_ptr<icu::RegexMatcher> matcher(pattern->matcher(text, status));
  if (U_SUCCESS(status)) matcher->setTimeLimit(kTimeLimit, status);
  return matcher;
}

void NamePattern::State::check(UErrorCode status) const {
  if (U_SUCCESS(status)) return;
  throw pattern_error(expression, std::string("matching the regular expression for target modules failed: ") +
                                      u_errorName(status));
}

bool NamePattern::matches(const std::string& name) const {
  UErrorCode status = U_ZERO_ERROR;
  const icu::UnicodeString text = icu::UnicodeString::fromUTF8(name);
  const auto matcher = state_->start(text, status);
  const bool found = U_SUCCESS(status) && matcher->matches(status);
  state_->check(status);
  return found;
}

std::string NamePattern::first_group(const std::string& name) const {
  UErrorCode status = U_ZERO_ERROR;
  const icu::UnicodeString text = icu::UnicodeString::fromUTF8(name);
  const auto matcher = state_->start(text, status);
  std::string group;
  if (U_SUCCESS(status) && matcher->lookingAt(status) && matcher->groupCount() > 0) {
    matcher->group(1, status).toUTF8String(group);
  }
  state_->check(status);
  return group;
}

bool is_module_named(const std::string& name, const std::string& wanted) {
  return name == wanted || name.ends_with("." + wanted);
}

std::string last_component(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(dot + 1);
}

}  // namespace tessera::peft

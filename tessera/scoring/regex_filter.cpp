#include "tessera/scoring/regex_filter.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>

#include <unicode/uchar.h>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/core/utf8.h"
#include "tessera/text/chat_template/text.h"

namespace tessera::scoring {
namespace {

using Texts = std::vector<std::string>;

constexpr size_t kMostChoices = 26;  // one for each letter

// Returns a pattern that matches the text itself.
std::string literal(const std::string& text) {
  std::string pattern;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && std::isalnum(byte) == 0) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

std::string without_punctuation(const std::string& text) {
  std::string kept;
  for (size_t at = 0, size = 0; at < text.size(); at += size) {
    size = utf8_step(text, at);
    if (!u_ispunct(utf8_decode(text, at))) kept += text.substr(at, size);
  }
  return kept;
}

}  // namespace

RegexFilter::RegexFilter(const FilterConfig& step, std::string place)
    : place_(std::move(place)),
      regex_(step.arguments.value("regex_pattern", std::string(R"(#### (\-?[0-9\.\,]+))")), place_),
      fallback_(step.arguments.value("fallback", std::string("[invalid]"))),
      group_select_(step.arguments.value("group_select", int64_t{0})),
      finds_choices_(step.function == "multi_choice_regex"),
      ignores_case_(step.arguments.value("ignore_case", false)),
      ignores_punctuation_(step.arguments.value("ignore_punctuation", false)) {
  for (const Json& pattern : step.arguments.value("regexes_to_ignore", Json::array()))
    ignored_.emplace_back(pattern.get<std::string>(), place_ + ", regexes_to_ignore");
}

void RegexFilter::check(const Json& document) const {
  if (!finds_choices_) return;
  const Json choices = document.value("choices", Json());
  if (choices.is_array() && !choices.empty() && choices.size() <= kMostChoices &&
      std::ranges::all_of(choices, [](const Json& one) { return one.is_string(); }))
    return;
  throw Error(ErrorKind::Data, "TASK-FILTER", "multi_choice_regex cannot read the choices of a document")
      .within(place_)
      .got(choices.dump().substr(0, 200))
      .need("a column 'choices', a list of 1 to 26 texts");
}

std::string RegexFilter::apply(const std::string& answer, const Json& document) const {
  const std::optional<std::string> match = find(regex_, answer);
  if (!finds_choices_) return match.value_or(fallback_);
  if (match && !match->empty()) return *match;
  const std::string choice = find_choice(answer, document);
  return choice.empty() ? fallback_ : choice;
}

std::optional<std::string> RegexFilter::find(const text::PythonRegex& regex, const std::string& text) const {
  const auto matches = regex.find_all(text);
  if (matches.empty()) return std::nullopt;
  const int64_t count = std::ssize(matches), at = group_select_ < 0 ? count + group_select_ : group_select_;
  if (at < 0 || at >= count) {
    throw Error(ErrorKind::Config, "TASK-FILTER", "group_select counts no match")
        .within(place_)
        .got(std::to_string(group_select_) + " of " + std::to_string(count) + " matches")
        .need("0 for the first match, or -1 for the last one");
  }
  const Texts& groups = matches[static_cast<size_t>(at)];
  const auto found = groups.size() == 1
                         ? groups.begin()
                         : std::ranges::find_if(groups, [](const std::string& one) { return !one.empty(); });
  if (found == groups.end()) return std::nullopt;
  return std::string(strip_spaces(*found));
}

std::string RegexFilter::find_choice(const std::string& answer, const Json& document) const {
  check(document);
  std::map<std::string, std::string> names;  // by the texts of the choices; of equal ones the last one counts
  char letter = 'A';
  for (const Json& choice : document["choices"]) {
    names[comparable(std::string(strip_spaces(choice.get<std::string>())))] = std::string("(") + letter + ")";
    ++letter;
  }
  Texts texts;
  for (const auto& [text, name] : names) texts.push_back(text);
  // A choice that begins as another one does not hide it.
  std::ranges::sort(texts, std::greater(), &std::string::size);
  for (std::string& text : texts) text = literal(text);
  const std::string found = find({join(texts, "|"), place_}, comparable(answer)).value_or("");
  if (!found.empty()) return names.contains(found) ? names[found] : found;
  const text::PythonRegex letters(R"(:\s*([A-)" + std::string(1, static_cast<char>(letter - 1)) + "])",
                                  place_);
  const std::optional<std::string> named = find(letters, answer);
  return named ? "(" + *named + ")" : "";
}

// The order of the steps is that of lm-evaluation-harness: what an expression finds depends on it.
std::string RegexFilter::comparable(std::string text) const {
  for (const text::PythonRegex& regex : ignored_) text = regex.replace(text, "");
  if (ignores_case_) text = text::jinja::change_case(text::jinja::Text(text), text::jinja::Case::Lower).bytes;
  return ignores_punctuation_ ? without_punctuation(text) : text;
}

}  // namespace tessera::scoring

#include "tessera/scoring/filters.h"

#include <algorithm>
#include <map>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/core/utf8.h"
#include "tessera/scoring/yaml_values.h"
#include "tessera/text/chat_template/text.h"

namespace tessera::scoring {
namespace {

using Texts = std::vector<std::string>;

struct KnownFilter {
  std::string_view name;
  std::vector<std::string> keys;
};

const std::vector<KnownFilter>& known_filters() {
  static const std::vector<KnownFilter> kFilters = {
      {"regex", {"regex_pattern", "group_select", "fallback"}},
      {"multi_choice_regex",
       {"regex_pattern", "group_select", "fallback", "ignore_case", "ignore_punctuation",
        "regexes_to_ignore"}},
      {"remove_whitespace", {}},
      {"lowercase", {}},
      {"uppercase", {}},
      {"map", {"mapping_dict", "default_value"}},
      {"majority_vote", {}},
      {"take_first_k", {"k"}},
      {"take_first", {}},
  };
  return kFilters;
}

bool takes_regex(const FilterConfig& step) {
  return step.function == "regex" || step.function == "multi_choice_regex";
}

std::string cased(const std::string& answer, text::jinja::Case change) {
  return text::jinja::change_case(text::jinja::Text(answer), change).bytes;
}

// Returns the most frequent text, of several the one that comes first.
std::string majority(const Texts& answers) {
  std::map<std::string, int64_t> counts;
  for (const std::string& one : answers) ++counts[one];
  return *std::ranges::max_element(answers, {}, [&](const std::string& one) { return counts[one]; });
}

}  // namespace

std::vector<std::string> filter_keys(const std::string& function, const config::Entry& entry) {
  const auto found = std::ranges::find(known_filters(), function, &KnownFilter::name);
  if (found == known_filters().end()) {
    Texts names;
    for (const KnownFilter& one : known_filters()) names.emplace_back(one.name);
    throw wrong_value(entry, "one of " + join(names, ", "));
  }
  Texts keys = found->keys;
  keys.emplace_back("function");
  return keys;
}

std::string problem_of_chain(const FilterChain& chain, OutputType type) {
  if (chain.steps.empty() || chain.steps.back().function != "take_first")
    return "filter '" + chain.name + "' does not end with take_first, so it leaves no single answer to score";
  for (const FilterConfig& step : chain.steps) {
    if (type != OutputType::GenerateUntil && step.function != "take_first")
      return "filter function '" + step.function + "' needs generated texts (output_type generate_until)";
    if (step.function == "take_first" && &step != &chain.steps.back())
      return "filter '" + chain.name + "' goes on behind take_first";
    const auto is_text = [](const Json& value) { return value.is_string(); };
    if (step.function == "map" &&
        (!step.arguments.contains("mapping_dict") || !step.arguments["mapping_dict"].is_object() ||
         !std::ranges::all_of(step.arguments["mapping_dict"], is_text) ||
         !is_text(step.arguments.value("default_value", Json("")))))
      return "filter function 'map' needs mapping_dict, a map of texts, and a text as default_value";
    if (step.function == "take_first_k" && !step.arguments.value("k", Json()).is_number_integer())
      return "filter function 'take_first_k' needs a whole number k";
    if (!takes_regex(step)) continue;
    if (!is_text(step.arguments.value("regex_pattern", Json(""))) ||
        !is_text(step.arguments.value("fallback", Json(""))) ||
        !step.arguments.value("group_select", Json(0)).is_number_integer())
      return "filter function '" + step.function +
             "' needs a text regex_pattern, a number group_select, a text fallback";
    const Json ignored = step.arguments.value("regexes_to_ignore", Json::array());
    if (!step.arguments.value("ignore_case", Json(false)).is_boolean() ||
        !step.arguments.value("ignore_punctuation", Json(false)).is_boolean() || !ignored.is_array() ||
        !std::ranges::all_of(ignored, is_text))
      return "filter function '" + step.function +
             "' needs true or false as ignore_case and ignore_punctuation, a list of texts as "
             "regexes_to_ignore";
  }
  return "";
}

Filters::Filters(const FilterChain& chain) {
  for (const FilterConfig& step : chain.steps) {
    Step& made = steps_.emplace_back(Step{step.function, step.arguments, std::nullopt});
    if (takes_regex(step)) made.regex.emplace(step, "filter " + chain.name);
  }
}

void Filters::check(const Json& document) const {
  for (const Step& step : steps_) {
    if (step.regex) step.regex->check(document);
  }
}

std::string Filters::apply(std::vector<std::string> answers, const Json& document) const {
  for (const Step& step : steps_) {
    const std::string& name = step.function;
    if (name == "take_first_k") {
      const auto k = static_cast<size_t>(std::max<int64_t>(1, step.arguments["k"].get<int64_t>()));
      if (answers.size() < k) {
        throw Error(ErrorKind::Config, "TASK-FILTER", "filter function 'take_first_k' needs more answers")
            .got("k " + std::to_string(k) + " of repeats " + std::to_string(answers.size()))
            .hint("raise the key repeats of the task");
      }
      answers.resize(k);
    } else if (name == "majority_vote") {
      answers = {majority(answers)};
    } else {
      for (std::string& answer : answers) {
        if (step.regex) answer = step.regex->apply(answer, document);
        if (name == "remove_whitespace") answer = std::string(strip_spaces(answer));
        if (name == "lowercase") answer = cased(answer, text::jinja::Case::Lower);
        if (name == "uppercase") answer = cased(answer, text::jinja::Case::Upper);
        if (name == "map") {
          const Json& map = step.arguments["mapping_dict"];
          answer = map.contains(answer) ? map[answer].get<std::string>()
                                        : step.arguments.value("default_value", std::string());
        }
      }
    }
  }
  return answers.front();
}

}  // namespace tessera::scoring

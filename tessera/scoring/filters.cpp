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

// The filter `regex`: the match that group_select counts, of several groups the first that is not empty.
std::string extract(const text::PythonRegex& regex, const Json& arguments, const std::string& answer) {
  const auto matches = regex.find_all(answer);
  const std::string fallback = arguments.value("fallback", std::string("[invalid]"));
  const int64_t count = std::ssize(matches), wanted = arguments.value("group_select", int64_t{0});
  if (count == 0) return fallback;
  const int64_t at = wanted < 0 ? count + wanted : wanted;
  if (at < 0 || at >= count) {
    throw Error(ErrorKind::Config, "TASK-FILTER", "group_select of the filter regex counts no match")
        .got(std::to_string(wanted) + " of " + std::to_string(count) + " matches")
        .need("0 for the first match, or -1 for the last one");
  }
  const Texts& groups = matches[static_cast<size_t>(at)];
  const auto found = groups.size() == 1
                         ? groups.begin()
                         : std::ranges::find_if(groups, [](const std::string& one) { return !one.empty(); });
  return found == groups.end() ? fallback : std::string(strip_spaces(*found));
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
    if (step.function != "regex") continue;
    if (!is_text(step.arguments.value("regex_pattern", Json(""))) ||
        !is_text(step.arguments.value("fallback", Json(""))) ||
        !step.arguments.value("group_select", Json(0)).is_number_integer())
      return "filter function 'regex' needs a text regex_pattern, a number group_select, a text fallback";
  }
  return "";
}

Filters::Filters(const FilterChain& chain) {
  for (const FilterConfig& step : chain.steps) {
    Step& made = steps_.emplace_back(Step{step.function, step.arguments, std::nullopt});
    if (step.function != "regex") continue;
    made.regex.emplace(step.arguments.value("regex_pattern", std::string(R"(#### (\-?[0-9\.\,]+))")),
                       "filter " + chain.name);
  }
}

std::string Filters::apply(std::vector<std::string> answers) const {
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
        if (name == "regex") answer = extract(*step.regex, step.arguments, answer);
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

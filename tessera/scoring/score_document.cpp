#include "tessera/scoring/score_document.h"

#include <algorithm>
#include <cmath>

#include "tessera/core/error.h"
#include "tessera/core/utf8.h"
#include "tessera/scoring/edit_rate.h"
#include "tessera/scoring/text_metrics.h"
#include "tessera/text/chat_template/text.h"

namespace tessera::scoring {
namespace {

// Returns the place of the largest value, as numpy.argmax() does: the first of equal ones, or a NaN.
int64_t largest(const std::vector<double>& values) {
  const auto nan = std::ranges::find_if(values, [](double value) { return std::isnan(value); });
  if (nan != values.end()) return nan - values.begin();
  return std::ranges::max_element(values) - values.begin();
}

// Returns len(re.split(r"\s+", text)).
int64_t count_words(const std::string& text) {
  static const text::PythonRegex kSpaces(R"(\s+)", "words");
  return std::ssize(kSpaces.find_all(text)) + 1;
}

// Returns the numbers of the right choices; -1 stands for one that there is not.
std::vector<int64_t> right_choices(const Json& gold, const std::vector<std::string>& choices) {
  std::vector<int64_t> numbers;
  for (const Json& one : gold.is_array() ? gold : Json::array({gold})) {
    int64_t number = -1;
    if (one.is_boolean()) number = one.get<bool>() ? 1 : 0;
    if (one.is_number_integer()) number = one.get<int64_t>();
    if (one.is_string()) {
      const auto found = std::ranges::find(choices, one.get<std::string>());
      if (found != choices.end()) number = found - choices.begin();
    }
    numbers.push_back(number >= 0 && number < std::ssize(choices) ? number : -1);
  }
  return numbers;
}

void remove_characters(std::string& text, std::string_view characters) {
  std::erase_if(text, [&](char c) { return characters.find(c) != std::string_view::npos; });
}

}  // namespace

DocumentScorer::DocumentScorer(const TaskConfig& task, const DocumentFields& fields, const Json& first,
                               bool has_several_prompts)
    : task_(task),
      fields_(fields),
      has_several_targets_(fields.target(first).is_array()),
      has_several_prompts_(has_several_prompts) {
  for (const MetricConfig& metric : task.metrics) {
    for (const Json& pattern : metric.arguments.value("regexes_to_ignore", Json::array()))
      ignored_.emplace_back(pattern.get<std::string>(), "task " + task.name + ", regexes_to_ignore");
  }
}

Error DocumentScorer::wrong_target(const Json& document, const std::string& need) const {
  return Error(ErrorKind::Data, "TASK-DOCUMENT", "the target of a document is of the wrong type")
      .within("task " + task_.name + ", doc_to_target")
      .got(fields_.target(document).dump().substr(0, 200))
      .need(need);
}

DocumentScores DocumentScorer::of_choices(const Json& document,
                                          const std::vector<Response>& responses) const {
  const std::vector<std::string> choices = fields_.choices(document);
  const size_t count = choices.size();
  TESSERA_ASSERT(responses.size() >= count, "a response to each choice");
  std::vector<double> plain, by_length, by_bytes, by_information;
  for (size_t i = 0; i < count; ++i) {
    const double value = responses[i].log_likelihood;
    plain.push_back(value);
    by_length.push_back(value / static_cast<double>(text::jinja::length_of(choices[i])));
    by_bytes.push_back(value / static_cast<double>(choices[i].size()));
    if (responses.size() == 2 * count) by_information.push_back(value - responses[count + i].log_likelihood);
  }
  const Json gold = has_several_prompts_ ? fields_.text(document) : fields_.target(document);
  if (gold.is_array() != (has_several_targets_ && !has_several_prompts_))
    throw wrong_target(document, "a list in all documents, or in none");
  const std::vector<int64_t> right = right_choices(gold, choices);
  const auto hits = [&](const std::vector<double>& values) {
    return std::ranges::find(right, largest(values)) != right.end() ? 1.0 : 0.0;
  };
  DocumentScores scores;
  for (const MetricConfig& metric : task_.metrics) {
    double value = 0.0;
    if (metric.name == "acc") value = hits(plain);
    if (metric.name == "acc_norm") value = hits(by_length);
    if (metric.name == "acc_bytes") value = hits(by_bytes);
    if (metric.name == "acc_mutual_info") value = hits(by_information);
    if (metric.name == "exact_match") {
      value = std::ranges::any_of(
          right, [&](int64_t i) { return i >= 0 && responses[static_cast<size_t>(i)].is_greedy; });
    }
    if (metric.name == "brier_score") {
      const double highest = *std::ranges::max_element(plain);
      double sum = 0.0;
      for (const double one : plain) sum += std::exp(one - highest);
      for (size_t i = 0; i < count; ++i) {
        const double is_right = std::ssize(right) == 1 && right[0] == static_cast<int64_t>(i) ? 1.0 : 0.0;
        value += std::pow(std::exp(plain[i] - highest) / sum - is_right, 2.0);
      }
    }
    MetricValue scored{value, 1.0};
    if (is_metric_of_classes(metric.name)) scored = of_classes(metric, document, plain, right);
    scores.emplace_back(metric.name, std::move(scored));
  }
  return scores;
}

MetricValue DocumentScorer::of_classes(const MetricConfig& metric, const Json& document,
                                       const std::vector<double>& log_likelihoods,
                                       const std::vector<int64_t>& right) const {
  if (right.size() != 1 || right[0] < 0) throw wrong_target(document, "one choice, for " + metric.name);
  if (metric.name == "f1" && log_likelihoods.size() != 2) {
    throw Error(ErrorKind::Data, "TASK-DOCUMENT", "f1 is a metric of two choices")
        .within("task " + task_.name + ", doc_to_choice")
        .got(std::to_string(log_likelihoods.size()) + " choices")
        .hint("mcc takes any number of choices");
  }
  return {static_cast<double>(largest(log_likelihoods)), static_cast<double>(right[0])};
}

DocumentScores DocumentScorer::of_text(const Json& document, double log_likelihood) const {
  const Json target = fields_.target(document);
  if (!target.is_string()) throw wrong_target(document, "a text");
  DocumentScores scores;
  for (const MetricConfig& metric : task_.metrics) {
    auto text = target.get<std::string>();
    if (const auto counted = metric.arguments.find("count_in"); counted != metric.arguments.end())
      text = resolve_text(task_, "count_in", counted->get<std::string>(), document);
    const int64_t weight = metric.name == "word_perplexity" ? count_words(text) : std::ssize(text);
    scores.emplace_back(metric.name, MetricValue{log_likelihood, static_cast<double>(weight)});
  }
  return scores;
}

bool DocumentScorer::is_match(const MetricConfig& metric, std::string answer, std::string target) const {
  const Json& arguments = metric.arguments;
  const auto is_on = [&](const char* key) { return arguments.value(key, Json(false)) == true; };
  for (std::string* one : {&answer, &target}) {
    for (const text::PythonRegex& regex : ignored_) *one = regex.replace(*one, "");
    if (is_on("ignore_case"))
      *one = text::jinja::change_case(text::jinja::Text(*one), text::jinja::Case::Lower).bytes;
    if (is_on("ignore_punctuation")) remove_characters(*one, kPunctuation);
    if (is_on("ignore_numbers")) remove_characters(*one, "0123456789");
  }
  return answer == target;
}

MetricValue DocumentScorer::of_words(const MetricConfig& metric, const std::string& answer,
                                     const std::string& target) {
  MetricValue scored;
  if (metric.name == "bleu") {
    scored.counts = bleu_counts(answer, target);
    scored.value = bleu_score(scored.counts);
  } else if (metric.name == "ter") {
    scored.counts = ter_counts(answer, target);
    scored.value = ter_score(scored.counts);
  } else {
    scored.counts = chrf_counts(answer, target, metric.name == "chrf++");
    scored.value = chrf_score(scored.counts);
  }
  return scored;
}

DocumentScores DocumentScorer::of_answer(const Json& document, const std::string& answer) const {
  Json gold = fields_.target(document);
  if (fields_.has_choices()) {
    const std::vector<std::string> choices = fields_.choices(document);
    const auto right = right_choices(gold, choices);
    if (right.size() != 1 || right[0] < 0) throw wrong_target(document, "the number of a choice");
    gold = choices[static_cast<size_t>(right[0])];
  }
  std::vector<std::string> targets;
  for (const Json& one : gold.is_array() ? gold : Json::array({gold})) {
    if (!one.is_string() && !one.is_number_integer()) throw wrong_target(document, "a text");
    targets.push_back(one.is_string() ? one.get<std::string>() : one.dump());
  }
  DocumentScores scores;
  for (const MetricConfig& metric : task_.metrics) {
    if (metric.name != "exact_match") {
      if (targets.size() != 1) throw wrong_target(document, "one text, for " + metric.name);
      scores.emplace_back(metric.name, of_words(metric, answer, targets.front()));
      continue;
    }
    const bool is_right = std::ranges::any_of(
        targets, [&](const std::string& target) { return is_match(metric, answer, target); });
    scores.emplace_back(metric.name, MetricValue{is_right ? 1.0 : 0.0, 1.0});
  }
  return scores;
}

DocumentScores DocumentScorer::score(const Json& document, const std::vector<Response>& responses) const {
  switch (task_.output_type) {
    case OutputType::MultipleChoice: return of_choices(document, responses);
    case OutputType::Rolling: return of_text(document, responses[0].log_likelihood);
    case OutputType::GenerateUntil: return of_answer(document, responses[0].text);
    case OutputType::LogLikelihood: break;
  }
  DocumentScores scores;
  for (const MetricConfig& metric : task_.metrics) {
    const double value =
        metric.name == "acc" ? (responses[0].is_greedy ? 1.0 : 0.0) : responses[0].log_likelihood;
    scores.emplace_back(metric.name, MetricValue{value, 1.0});
  }
  return scores;
}

}  // namespace tessera::scoring

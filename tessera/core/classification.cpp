#include "tessera/core/classification.h"

#include <algorithm>
#include <cmath>

#include "tessera/core/entity_metrics.h"

namespace tessera {
namespace {

constexpr int64_t kDecisions = 4;  // true and false positives, false and true negatives
constexpr int64_t kMoments = 7;

constexpr std::pair<ProblemType, const char*> kNames[] = {
    {ProblemType::SingleLabel, "single_label_classification"},
    {ProblemType::MultiLabel, "multi_label_classification"},
    {ProblemType::Regression, "regression"}};

double ratio(double part, double whole) { return whole == 0.0 ? 0.0 : part / whole; }

double f1_of(double true_positives, double false_positives, double false_negatives) {
  return ratio(2.0 * true_positives, 2.0 * true_positives + false_positives + false_negatives);
}

NamedMetrics of_confusion(int64_t classes, std::span<const double> counts) {
  std::vector<double> of_label(static_cast<size_t>(classes)), taken(of_label), right(of_label);
  for (int64_t label = 0; label < classes; ++label) {
    for (int64_t chosen = 0; chosen < classes; ++chosen) {
      const double count = counts[static_cast<size_t>(label * classes + chosen)];
      of_label[static_cast<size_t>(label)] += count;
      taken[static_cast<size_t>(chosen)] += count;
      if (label == chosen) right[static_cast<size_t>(label)] = count;
    }
  }
  double rows = 0.0, correct = 0.0, f1_sum = 0.0, present = 0.0, products = 0.0, taken_squares = 0.0,
         label_squares = 0.0;
  for (size_t c = 0; c < of_label.size(); ++c) {
    rows += of_label[c];
    correct += right[c];
    // Classes that neither occur nor were chosen are left out, as scikit-learn does.
    if (of_label[c] + taken[c] > 0.0) present += 1.0;
    f1_sum += f1_of(right[c], taken[c] - right[c], of_label[c] - right[c]);
    products += of_label[c] * taken[c];
    taken_squares += taken[c] * taken[c];
    label_squares += of_label[c] * of_label[c];
  }
  const double f1 =
      classes == 2 ? f1_of(right[1], taken[1] - right[1], of_label[1] - right[1]) : ratio(f1_sum, present);
  const double spread = (rows * rows - taken_squares) * (rows * rows - label_squares);
  return {{"accuracy", ratio(correct, rows)},
          {"f1", f1},
          {"matthews_correlation", ratio(rows * correct - products, std::sqrt(spread))}};
}

NamedMetrics of_decisions(int64_t labels, std::span<const double> counts) {
  double micro[3] = {}, macro = 0.0;
  for (int64_t label = 0; label < labels; ++label) {
    const auto own = counts.subspan(static_cast<size_t>(label * kDecisions), 3);
    for (size_t i = 0; i < 3; ++i) micro[i] += own[i];
    macro += f1_of(own[0], own[1], own[2]);
  }
  const double rows = counts[0] + counts[1] + counts[2] + counts[3];
  return {{"accuracy", ratio(counts.back(), rows)},
          {"f1", f1_of(micro[0], micro[1], micro[2])},
          {"f1_macro", ratio(macro, static_cast<double>(labels))}};
}

NamedMetrics of_moments(int64_t numbers, std::span<const double> sums) {
  double mse = 0.0, pearson = 0.0;
  for (int64_t number = 0; number < numbers; ++number) {
    const auto own = sums.subspan(static_cast<size_t>(number * kMoments), kMoments);
    const double rows = own[0];
    const double p = rows * own[3] - own[1] * own[1], t = rows * own[4] - own[2] * own[2];
    pearson += ratio(rows * own[5] - own[1] * own[2], std::sqrt(std::max(0.0, p) * std::max(0.0, t)));
    mse += ratio(own[6], rows);
  }
  const auto count = static_cast<double>(numbers);
  return {{"mse", ratio(mse, count)}, {"pearson", ratio(pearson, count)}};
}

NamedMetrics of_entities(const Classification& classification, std::span<const double> sums) {
  const auto f1 = [&](size_t first) { return ratio(2.0 * sums[first + 2], sums[first] + sums[first + 1]); };
  NamedMetrics metrics = {{"accuracy", ratio(sums[1], sums[0])},
                          {"precision", ratio(sums[4], sums[3])},
                          {"recall", ratio(sums[4], sums[2])},
                          {"f1", f1(2)}};
  if (EntityTags(classification.labels).is_iob2()) metrics.emplace_back("f1_strict", f1(5));
  return metrics;
}

}  // namespace

bool Classification::has_entities() const { return of_tokens() && EntityTags::are_tags(labels); }

std::optional<int64_t> Classification::find(std::string_view name) const {
  const auto found = std::ranges::find(labels, name);
  if (found == labels.end()) return std::nullopt;
  return found - labels.begin();
}

const char* problem_type_name(ProblemType problem) {
  if (problem == ProblemType::Tokens) return "token_classification";
  return std::ranges::find(kNames, problem, &std::pair<ProblemType, const char*>::first)->second;
}

std::optional<ProblemType> find_problem_type(std::string_view name) {
  for (const auto& [problem, known] : kNames) {
    if (name == known) return problem;
  }
  return std::nullopt;
}

std::vector<std::string> default_labels(int64_t count) {
  std::vector<std::string> labels;
  for (int64_t i = 0; i < count; ++i) labels.push_back("LABEL_" + std::to_string(i));
  return labels;
}

int64_t num_class_statistics(const Classification& classification) {
  if (classification.has_entities()) return EntityTags::kStatistics;
  const int64_t labels = classification.num_labels();
  switch (classification.problem) {
    case ProblemType::SingleLabel:
    case ProblemType::Tokens: return labels * labels;
    case ProblemType::MultiLabel: return labels * kDecisions + 1;
    case ProblemType::Regression: break;
  }
  return labels * kMoments;
}

NamedMetrics class_metrics(const Classification& classification, std::span<const double> statistics) {
  if (classification.has_entities()) return of_entities(classification, statistics);
  const int64_t labels = classification.num_labels();
  switch (classification.problem) {
    case ProblemType::SingleLabel:
    case ProblemType::Tokens: return of_confusion(labels, statistics);
    case ProblemType::MultiLabel: return of_decisions(labels, statistics);
    case ProblemType::Regression: break;
  }
  return of_moments(labels, statistics);
}

}  // namespace tessera

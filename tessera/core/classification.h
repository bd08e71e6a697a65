// Describes what a classifier tells of a text, and measures how well it does.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

// The kinds of targets, as Transformers' `problem_type` tells them apart. SingleLabel: one class of several.
// MultiLabel: any number of them. Regression: numbers. Tokens: one class for each token, not for a text; it
// has no name there.
enum class ProblemType { SingleLabel, MultiLabel, Regression, Tokens };

struct Classification {
  ProblemType problem = ProblemType::SingleLabel;
  std::vector<std::string> labels;  // the names of the classes, or of the numbers, in their order

  bool of_tokens() const { return problem == ProblemType::Tokens; }
  // A target is one class.
  bool has_one_class() const { return problem == ProblemType::SingleLabel || of_tokens(); }
  int64_t num_labels() const { return static_cast<int64_t>(labels.size()); }
  // Returns how many numbers a target has: the class, or one number for each label.
  int64_t target_width() const { return has_one_class() ? 1 : num_labels(); }
  // Tells whether the labels are tags of entities (core/entity_metrics.h).
  bool has_entities() const;
  // Returns the number of the label of this name; nothing if there is none.
  std::optional<int64_t> find(std::string_view name) const;
};

// Returns "single_label_classification", "multi_label_classification" or "regression", and the reverse. The
// name of Tokens is "token_classification", which the reverse does not know.
const char* problem_type_name(ProblemType problem);
std::optional<ProblemType> find_problem_type(std::string_view name);
// Returns "LABEL_0", "LABEL_1", ..., the names that Transformers gives.
std::vector<std::string> default_labels(int64_t count);

// Sums over predictions from which all metrics follow, so that ranks and micro-batches add theirs up.
// SingleLabel: the number of rows of each class (first index) that were taken for each class. MultiLabel: for
// each label the true and the false positives and the false and the true negatives, then the rows without a
// mistake. Regression: for each number the rows, and the sums of p, t, p^2, t^2, p t and (p - t)^2 of its
// predictions p and targets t. Entities: those of EntityTags.
int64_t num_class_statistics(const Classification& classification);

using NamedMetrics = std::vector<std::pair<std::string, double>>;

// Returns the metrics of these sums: accuracy, f1 (of the second class of two, else the mean over all
// classes, as scikit-learn's "binary" and "macro") and matthews_correlation (Gorodkin, "Comparing two
// K-category assignments by a K-category correlation coefficient", 2004); of several labels accuracy (rows
// without a mistake) and the f1 of all decisions together ("micro") and by label ("macro"); of numbers mse
// and pearson, the means over them; of tags of entities the accuracy of tokens, and precision, recall and f1
// of entities in the first way of EntityTags, and in IOB2 f1_strict in the second. A ratio of 0 to 0 counts
// as 0.
NamedMetrics class_metrics(const Classification& classification, std::span<const double> statistics);

}  // namespace tessera

// Compares two evaluations document by document: whether one model is better than another on the same tasks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/scoring/task_config.h"

namespace tessera::scoring {

// The difference of a metric between two runs over the documents that both have scored.
struct PairedDifference {
  std::string task, metric, filter;
  int64_t num_documents = 0, num_higher = 0,
          num_lower = 0;             // documents that the first run scores higher, lower
  double first = 0.0, second = 0.0;  // means
  double difference = 0.0;           // mean of first less second
  double standard_error = 0.0;       // of the difference; 0 for a single document
  // The probability of a difference at least as far from 0 if both are equally good: of a normal distribution
  // with this standard error.
  double p_value = 1.0;

  // Returns the half width of the 95 % confidence interval of the difference.
  double interval() const { return 1.959963984540054 * standard_error; }
};

// `first` and `second` are the `samples` of two results files: for each task an array of documents with their
// scores (Task::score()). Compares the tasks, filters and metrics that are in both, in the order of `first`;
// documents are paired by `doc_id`. Metrics with weights (of words or bytes) are compared by their values;
// f1 and mcc, which are no means over documents, are left out.
// The variance of the mean of paired differences is far below that of two separate means, since a document
// that is hard for one model is hard for the other (Miller, "Adding Error Bars to Evals", 2024, section 4.2).
// Throws Error(Config) for samples of another form, and for documents of one id that differ.
std::vector<PairedDifference> paired_differences(const Json& first, const Json& second);

// Returns the table as Markdown, one line a difference.
std::string table_of(const std::vector<PairedDifference>& differences);
// Returns an array with an object for each difference.
Json json_of(const std::vector<PairedDifference>& differences);

}  // namespace tessera::scoring

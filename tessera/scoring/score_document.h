// The metrics of one document: what the answers to its requests are worth.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/scoring/document_fields.h"
#include "tessera/scoring/metrics.h"
#include "tessera/text/python_regex.h"

namespace tessera::scoring {

// The answer of a model to one request.
struct Response {
  double log_likelihood = 0.0;  // of the continuation, in nats
  bool is_greedy = false;       // each of its tokens is the most likely one
  std::string text;             // what was generated
};

using DocumentScores = std::vector<std::pair<std::string, MetricValue>>;

// Scores the documents of one task. Throws Error(Data) for a document whose target is of the wrong type.
class DocumentScorer {
 public:
  // `first` is the first document, whose target tells whether all documents have several right answers. The
  // task and the fields must outlive the scorer.
  DocumentScorer(const TaskConfig& task, const DocumentFields& fields, const Json& first,
                 bool has_several_prompts);

  // `responses` are those to the requests of the document, filtered.
  DocumentScores score(const Json& document, const std::vector<Response>& responses) const;

 private:
  DocumentScores of_choices(const Json& document, const std::vector<Response>& responses) const;
  // Return the values of f1 and mcc, and of the metrics of text.
  MetricValue of_classes(const MetricConfig& metric, const Json& document,
                         const std::vector<double>& log_likelihoods, const std::vector<int64_t>& right) const;
  static MetricValue of_words(const MetricConfig& metric, const std::string& answer,
                              const std::string& target);
  DocumentScores of_text(const Json& document, double log_likelihood) const;
  DocumentScores of_answer(const Json& document, const std::string& answer) const;
  bool is_match(const MetricConfig& metric, std::string answer, std::string target) const;
  Error wrong_target(const Json& document, const std::string& need) const;

  const TaskConfig& task_;
  const DocumentFields& fields_;
  bool has_several_targets_, has_several_prompts_;
  std::vector<text::PythonRegex> ignored_;  // regexes_to_ignore of exact_match
};

}  // namespace tessera::scoring

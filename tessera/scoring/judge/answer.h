// Makes a model's answers to the questions, for a judge.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/scoring/judge/bench.h"
#include "tessera/scoring/judge/endpoint.h"

namespace tessera::scoring::judge {

struct AnswerOptions {
  std::string model_id;  // by which the file and its rows name the model
  std::string system;    // a system message for every conversation, if it is not empty
  int64_t num_choices = 1, max_tokens = 1024, parallel = 4;
  std::optional<double> force_temperature;
};

// Has the endpoint answer every turn of every question that `path` does not answer in as many choices, each
// turn behind those before it, and choice i with the seed i. A row is appended to `path` when its question is
// answered; at the end the rows are sorted by question, of several the last. Returns the number of new rows.
// Throws what RowLog, ask_each() and Endpoint::chat() throw.
size_t make_answers(const std::vector<Question>& questions, const EndpointOptions& endpoint,
                    const AnswerOptions& options, const std::string& path);

}  // namespace tessera::scoring::judge

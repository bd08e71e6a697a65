// A task with its documents: the requests to a model, and the scores of its answers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/scoring/document_fields.h"
#include "tessera/scoring/documents.h"
#include "tessera/scoring/encode_requests.h"
#include "tessera/scoring/filters.h"
#include "tessera/scoring/prompt_form.h"
#include "tessera/scoring/score_document.h"

namespace tessera::scoring {

struct TaskOptions {
  std::string data_folder;             // where the data of tasks lies; "" where their files say
  double limit = 0.0;                  // documents that are scored: below 1 a share of them, 0 all
  std::optional<int64_t> num_fewshot;  // replaces that of tasks, except for a 0 in a task file
  uint64_t fewshot_seed = 1234;
  PromptForm form = {};
};

// A question to a model: the log-likelihood of `continuation` after `context`, or of the whole text
// `continuation` (Rolling), or what follows `context` (GenerateUntil).
struct Request {
  size_t document = 0;
  std::string context, continuation;
};

struct MetricScores {
  std::string metric, filter, aggregation;
  bool higher_is_better = true;
  std::vector<MetricValue> values;  // of the documents
};

struct TaskScores {
  std::vector<MetricScores> metrics;
  Json samples = Json::array();  // documents, requests, answers and their scores, as the harness logs them
};

class Task {
 public:
  // Reads the documents that the task needs and makes all requests. Throws what read_documents(),
  // DocumentFields and PromptBuilder throw.
  Task(TaskConfig config, const TaskOptions& options);
  Task(Task&&) = delete;

  const TaskConfig& config() const { return config_; }
  const std::vector<Request>& requests() const { return requests_; }
  int64_t num_fewshot() const { return num_fewshot_; }
  int64_t num_documents() const { return std::ssize(documents_.rows); }
  int64_t num_scored() const { return num_scored_; }

  // Returns the tokens of a request: one sequence, or the windows of a whole text. Throws what the encoder
  // throws.
  std::vector<TokenRequest> encode(const Request& request, const RequestEncoder& encoder) const;

  // `responses` answer requests(); there are config().repeats of each. `with_samples` fills samples.
  TaskScores score(const std::vector<std::vector<Response>>& responses, bool with_samples) const;

 private:
  void make_requests(const Documents& examples, const TaskOptions& options);
  // Returns the text between a prompt and a choice.
  std::string choice_delimiter(const PromptForm& form) const;

  TaskConfig config_;
  Documents documents_;
  int64_t num_fewshot_ = 0, num_scored_ = 0;
  std::unique_ptr<DocumentFields> fields_;
  bool has_several_prompts_ = false;
  std::vector<Request> requests_;
  std::vector<Filters> filters_;
};

}  // namespace tessera::scoring

// Answers the requests of tasks with a model: log-likelihoods, and generated texts.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tessera/generation/answers.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/scoring/encode_requests.h"
#include "tessera/scoring/task.h"

namespace tessera::generation {

struct AnswerRequestsOptions {
  int64_t batch_size = 8;         // answers that are generated at once
  int64_t max_tokens = 1024;      // tokens of prompts that go through the model at once
  std::vector<int64_t> stop_ids;  // ids that end a generated text
  uint64_t seed = 0;              // of tasks that sample
  // Called as the requests of this rank's copy are answered, with their number so far and that of all.
  std::function<void(int64_t done, int64_t all)> on_progress = nullptr;
  // The model is one in training: its parameters move between two passes, and all ranks of the mesh make each
  // pass together (EqualPasses). For tasks whose answers are generated.
  bool is_in_training = false;
  // Called after each step in which answers are generated, equally often on every rank. Where it returns
  // false, on all ranks alike, the answers stay as far as they have come.
  std::function<bool()> after_step = nullptr;
};

// Returns the number of tokens that the model takes, as lm-evaluation-harness finds it: the positions of the
// model, or 2048 where it has no bound.
int64_t scored_length(const models::CausalLM& model);

// Returns the answers to all requests of the task, config().repeats of each. The copies of the model that the
// ranks hold share the documents. Log-likelihoods come back on every rank, generated texts on the first one
// only; elsewhere they are empty. Throws what score_tokens(), RequestEncoder and Generator throw. Collective.
std::vector<std::vector<scoring::Response>> answer_requests(const scoring::Task& task,
                                                            models::CausalLM& model,
                                                            const text::Tokenizer& tokenizer,
                                                            const scoring::RequestEncoder& encoder,
                                                            const parallel::DeviceMesh& mesh,
                                                            const AnswerRequestsOptions& options);

}  // namespace tessera::generation

// Scores the tasks of eval_tasks with the model as it stands, between two steps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/config/recipe.h"
#include "tessera/core/content_hash.h"
#include "tessera/models/common/causal_lm.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/scoring/task.h"
#include "tessera/scoring/task_files.h"
#include "tessera/text/tokenizer/tokenizer.h"
#include "tessera/train/setup/setup.h"
#include "tessera/train/step/metrics.h"

namespace tessera::train {

class TaskEvaluation {
 public:
  // Reads the tasks with their documents, encodes all requests for `model`, and scores made-up answers, so
  // that whatever is wrong with a task shows before the first step. The tokenizer must outlive this object.
  // Throws what select_tasks(), Task, RequestEncoder and CausalLM::check_prompt() throw, Error(Config,
  // "EVAL-TASKS") for a recipe without a tokenizer, and Error(Data, "RANKS-DIFFER") unless all ranks read the
  // same. Collective.
  TaskEvaluation(const config::Recipe& recipe, const models::CausalLM& model,
                 const std::optional<text::Tokenizer>& tokenizer, comm::Communicator& world);

  // Returns the metrics of evaluate(), with the values of the made-up answers.
  const std::vector<TaskMetric>& expected() const { return expected_; }
  // Returns the number of requests of all tasks.
  int64_t num_requests() const { return num_requests_; }
  // Returns "2 tasks, 1,234 requests of up to 512 tokens".
  std::string describe() const;

  // Returns the scores, equal on every rank. Calls `on_pass` as it goes, on all ranks, with the number of
  // requests of all tasks that are done as far as this rank knows; where it returns false, on all ranks
  // alike, this ends and returns nothing. The model is afterwards what it was. Throws Error(Numerics,
  // "EVAL-TASKS") for a likelihood that is not finite, and for logits that are not, which a rank may meet
  // alone. Collective.
  std::optional<std::vector<TaskMetric>> evaluate(TrainedModel& trained, const parallel::DeviceMesh& mesh,
                                                  const std::function<bool(int64_t done)>& on_pass) const;

 private:
  using Responses = std::vector<std::vector<scoring::Response>>;  // to each request of a task
  using OnPass = std::function<bool(int64_t done)>;

  // A task and the tokens of its requests, of which those of windows have several. Without tokens where
  // answers are generated.
  struct EncodedTask {
    std::unique_ptr<scoring::Task> task;
    std::vector<scoring::TokenRequest> tokens = {};
    std::vector<size_t> owners = {};  // the request that each of them is of
    int64_t num_requests = 0;

    bool is_generated() const { return task->config().output_type == scoring::OutputType::GenerateUntil; }
    // Returns responses of no value.
    Responses made_up() const;
  };
  // Encode the requests, note how many there are, and the longest, and add their tokens to the hash.
  void encode(EncodedTask& encoded, const scoring::RequestEncoder& encoder, ContentHash& hash);
  void encode_prompts(EncodedTask& encoded, const models::CausalLM& model, ContentHash& hash);
  // Make the part of evaluate() for one task.
  std::optional<Responses> score(const EncodedTask& encoded, TrainedModel& trained,
                                 const parallel::DeviceMesh& mesh, const OnPass& on_pass) const;
  std::optional<Responses> generate(const EncodedTask& encoded, TrainedModel& trained,
                                    const parallel::DeviceMesh& mesh, const OnPass& on_pass) const;
  std::vector<TaskMetric> metrics_of(const std::vector<Responses>& responses) const;

  const config::Recipe recipe_;
  const text::Tokenizer* tokenizer_;
  scoring::TaskSelection selection_;
  std::vector<EncodedTask> tasks_;
  int64_t num_requests_ = 0, longest_ = 0;
  std::vector<TaskMetric> expected_;
};

}  // namespace tessera::train

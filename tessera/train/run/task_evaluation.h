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
#include "tessera/generation/score_tokens.h"
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
  // that whatever is wrong with a task shows before the first step. Throws what select_tasks(), Task and
  // RequestEncoder throw, Error(Config, "EVAL-TASKS") for a task whose answers are generated and for a recipe
  // without a tokenizer, and Error(Data, "RANKS-DIFFER") unless all ranks read the same. Collective.
  TaskEvaluation(const config::Recipe& recipe, const models::CausalLM& model,
                 const std::optional<text::Tokenizer>& tokenizer, comm::Communicator& world);

  // Returns the metrics of evaluate(), with the values of the made-up answers.
  const std::vector<TaskMetric>& expected() const { return expected_; }
  // Returns the number of requests of all tasks.
  int64_t num_requests() const { return num_requests_; }
  // Returns "2 tasks, 1,234 requests of up to 512 tokens".
  std::string describe() const;

  // Returns the scores, equal on every rank. `on_pass` is that of score_requests(), over all tasks; where it
  // returns false, this returns nothing. The model is afterwards what it was. Throws Error(Numerics,
  // "EVAL-TASKS") for a likelihood that is not finite. Collective.
  std::optional<std::vector<TaskMetric>> evaluate(TrainedModel& trained, const parallel::DeviceMesh& mesh,
                                                  const std::function<bool(int64_t done)>& on_pass) const;

 private:
  // A task and the tokens of its requests, of which those of windows have several.
  struct EncodedTask {
    std::unique_ptr<scoring::Task> task;
    std::vector<scoring::TokenRequest> tokens;
    std::vector<size_t> owners;  // the request that each of them is of
  };
  void encode(EncodedTask& encoded, const scoring::RequestEncoder& encoder);
  std::vector<TaskMetric> metrics_of(const std::vector<std::vector<generation::TokenScore>>& scores) const;

  const config::Recipe recipe_;
  scoring::TaskSelection selection_;
  std::vector<EncodedTask> tasks_;
  int64_t num_requests_ = 0, longest_ = 0;
  std::vector<TaskMetric> expected_;
};

}  // namespace tessera::train

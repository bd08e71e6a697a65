#include "tessera/train/run/task_evaluation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tessera/core/content_hash.h"
#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/data/default_chat_template.h"
#include "tessera/generation/answer_requests.h"
#include "tessera/scoring/results.h"
#include "tessera/text/chat_encoding.h"
#include "tessera/text/select_chat_template.h"
#include "tessera/train/run/same_inputs.h"
#include "tessera/train/setup/recipe_values.h"
#include "tessera/train/step/score_requests.h"

namespace tessera::train {
namespace {

using generation::TokenScore;

Error tasks_error(const config::Recipe& recipe, const std::string& what) {
  return recipe.error("EVAL-TASKS", what, {"eval_tasks"});
}

scoring::TaskOptions task_options(const config::Recipe& recipe, const text::Tokenizer& tokenizer) {
  scoring::TaskOptions options{.data_folder = recipe.eval_tasks_data,
                               .limit = recipe.eval_tasks_limit,
                               .num_fewshot = recipe.eval_tasks_num_fewshot};
  if (!recipe.eval_tasks_apply_chat_template) return options;
  const std::string trained = data::trained_chat_template(recipe, tokenizer);
  options.form.chat_template = text::select_chat_template("", trained, recipe.source_folder, tokenizer);
  options.form.options = text::render_options(tokenizer);
  return options;
}

void refuse_generation(const config::Recipe& recipe, const scoring::TaskConfig& task) {
  if (task.output_type != scoring::OutputType::GenerateUntil) return;
  throw tasks_error(recipe,
                    "the answers of task '" + task.name +
                        "' have to be generated, and a model that is being trained scores texts alone")
      .got("output_type: generate_until")
      .need("multiple_choice, loglikelihood or loglikelihood_rolling")
      .hint("score it when the run has ended: tessera evaluate OUTPUT_DIR --tasks " + task.name);
}

// Returns the number of tokens that the model takes both in training and by tessera evaluate.
int64_t max_length(const models::CausalLM& model) {
  int64_t length = generation::scored_length(model);
  if (const auto& bound = model.config().document_bound) length = std::min(length, bound->tokens);
  return std::max<int64_t>(1, length - model.num_virtual_tokens());
}

// Returns "acc", or with a filter that has a name "acc,strict".
std::string metric_name(const scoring::Score& score) {
  return score.filter == "none" ? score.metric : score.metric + "," + score.filter;
}

// While one lives, losses are those of a plain cross entropy.
class PlainLoss {
 public:
  PlainLoss(const models::CausalLM& model, const config::Recipe& recipe)
      : head_(model.head()), recipe_(recipe) {
    head_.set_loss_terms({});
  }
  ~PlainLoss() { head_.set_loss_terms(loss_terms(recipe_)); }
  PlainLoss(const PlainLoss&) = delete;
  PlainLoss& operator=(const PlainLoss&) = delete;

 private:
  nn::TaskHead& head_;
  const config::Recipe& recipe_;
};

}  // namespace

TaskEvaluation::TaskEvaluation(const config::Recipe& recipe, const models::CausalLM& model,
                               const std::optional<text::Tokenizer>& tokenizer, comm::Communicator& world)
    : recipe_(recipe) {
  if (!tokenizer) {
    throw tasks_error(recipe, "tasks are texts, and the model has no tokenizer")
        .need("a base_model or tokenizer_config with a tokenizer.json");
  }
  model.check_continues_texts("eval_tasks");
  selection_ = scoring::select_tasks(recipe.eval_tasks);
  for (const scoring::TaskConfig& config : selection_.tasks) refuse_generation(recipe, config);
  const scoring::TaskOptions options = task_options(recipe, *tokenizer);
  const scoring::RequestEncoder encoder(*tokenizer, max_length(model));
  std::vector<std::vector<TokenScore>> made_up;
  ContentHash hash;
  for (const scoring::TaskConfig& config : selection_.tasks) {
    EncodedTask& encoded = tasks_.emplace_back();
    encoded.task = std::make_unique<scoring::Task>(config, options);
    encode(encoded, encoder);
    for (const scoring::TokenRequest& request : encoded.tokens)
      hash.add(std::span<const int64_t>(request.ids));
    made_up.emplace_back(encoded.tokens.size());
  }
  check_same_stream(hash.text(), world);
  expected_ = metrics_of(made_up);
}

void TaskEvaluation::encode(EncodedTask& encoded, const scoring::RequestEncoder& encoder) {
  const std::vector<scoring::Request>& requests = encoded.task->requests();
  for (size_t i = 0; i < requests.size(); ++i) {
    for (scoring::TokenRequest& tokens : encoded.task->encode(requests[i], encoder)) {
      longest_ = std::max<int64_t>(longest_, std::ssize(tokens.ids) - 1);
      encoded.tokens.push_back(std::move(tokens));
      encoded.owners.push_back(i);
    }
  }
  num_requests_ += std::ssize(encoded.tokens);
}

std::string TaskEvaluation::describe() const {
  return std::to_string(tasks_.size()) + (tasks_.size() == 1 ? " task, " : " tasks, ") +
         group_digits(num_requests_) + " requests of up to " + group_digits(longest_) + " tokens";
}

std::optional<std::vector<TaskMetric>> TaskEvaluation::evaluate(
    TrainedModel& trained, const parallel::DeviceMesh& mesh,
    const std::function<bool(int64_t done)>& on_pass) const {
  const PlainLoss plain(*trained.model, recipe_);
  const int64_t max_tokens = recipe_.micro_batch_size * recipe_.sequence_len;
  std::vector<std::vector<TokenScore>> scores;
  int64_t before = 0;
  for (const EncodedTask& encoded : tasks_) {
    auto of_task = score_requests(trained, mesh, encoded.tokens, max_tokens,
                                  [&](int64_t done) { return on_pass(before + done); });
    if (!of_task) return std::nullopt;
    for (const TokenScore& score : *of_task) {
      if (std::isfinite(score.log_prob)) continue;
      throw Error(ErrorKind::Numerics, "EVAL-TASKS",
                  "the log-likelihood of a text of task '" + encoded.task->config().name + "' is not finite")
          .got(std::to_string(score.log_prob))
          .hint("no result is saved; lower learning_rate, or check the data");
    }
    scores.push_back(std::move(*of_task));
    before += std::ssize(encoded.tokens);
  }
  return metrics_of(scores);
}

std::vector<TaskMetric> TaskEvaluation::metrics_of(const std::vector<std::vector<TokenScore>>& scores) const {
  std::vector<scoring::Result> results;
  for (size_t t = 0; t < tasks_.size(); ++t) {
    const scoring::Task& task = *tasks_[t].task;
    std::vector<std::vector<scoring::Response>> responses(task.requests().size(), {{0.0, true, ""}});
    for (size_t i = 0; i < scores[t].size(); ++i) {
      scoring::Response& response = responses[tasks_[t].owners[i]].front();
      response.log_likelihood += scores[t][i].log_prob;
      response.is_greedy = response.is_greedy && scores[t][i].is_greedy;
    }
    results.push_back(scoring::result_of(task, task.score(responses, /*with_samples=*/false), 0));
  }
  std::vector<TaskMetric> metrics;
  // A group's score stands for those of its members, unless they are named themselves.
  std::vector<int64_t> told_depths;  // of the groups around a result that have a score
  for (const scoring::Result& result : scoring::with_groups(std::move(results), selection_.groups)) {
    while (!told_depths.empty() && told_depths.back() >= result.depth) told_depths.pop_back();
    const bool is_named = std::ranges::find(recipe_.eval_tasks, result.name) != recipe_.eval_tasks.end();
    if (!told_depths.empty() && !is_named) continue;
    for (const scoring::Score& score : result.scores) {
      const auto known = std::ranges::find(result.higher_is_better, score.metric,
                                           [](const auto& pair) { return pair.first; });
      metrics.push_back({result.name + "/" + metric_name(score), score.value,
                         known == result.higher_is_better.end() || known->second});
    }
    if (result.is_group && !result.scores.empty()) told_depths.push_back(result.depth);
  }
  return metrics;
}

}  // namespace tessera::train

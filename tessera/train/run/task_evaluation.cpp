#include "tessera/train/run/task_evaluation.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/data/default_chat_template.h"
#include "tessera/generation/answer_requests.h"
#include "tessera/generation/load_for_inference.h"
#include "tessera/scoring/results.h"
#include "tessera/text/chat_encoding.h"
#include "tessera/text/select_chat_template.h"
#include "tessera/train/run/same_inputs.h"
#include "tessera/train/setup/recipe_values.h"
#include "tessera/train/step/score_requests.h"

namespace tessera::train {
namespace {

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

// Returns the number of tokens that the model takes both in training and by tessera evaluate.
int64_t max_length(const models::CausalLM& model) {
  int64_t length = generation::scored_length(model);
  if (const auto& bound = model.config().document_bound) length = std::min(length, bound->tokens);
  return std::max<int64_t>(1, length - model.num_virtual_tokens());
}

// Returns the encoder of prompts behind which answers are generated.
scoring::RequestEncoder prompt_encoder(const text::Tokenizer& tokenizer, const models::CausalLM& model) {
  return {tokenizer, generation::scored_length(model) - model.num_virtual_tokens()};
}

// Gives every rank the texts that the first one has. Collective.
void share_texts(std::vector<std::vector<scoring::Response>>& responses, comm::Communicator& world) {
  if (world.size() == 1) return;
  std::string told;
  if (world.rank() == 0) {
    auto texts = nlohmann::json::array();
    for (const auto& repeats : responses) {
      for (const scoring::Response& one : repeats) texts.push_back(one.text);
    }
    nlohmann::json::to_cbor(texts, told);
  }
  const nlohmann::json texts = nlohmann::json::from_cbor(world.all_gather_string(told).front());
  size_t next = 0;
  for (auto& repeats : responses) {
    for (scoring::Response& one : repeats) one.text = texts[next++].get<std::string>();
  }
}

Error not_finite(const std::string& what) {
  return Error(ErrorKind::Numerics, "EVAL-TASKS", what + " not finite")
      .hint("no result is saved; lower learning_rate, or check the data");
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
    : recipe_(recipe), tokenizer_(tokenizer ? &*tokenizer : nullptr) {
  if (!tokenizer) {
    throw tasks_error(recipe, "tasks are texts, and the model has no tokenizer")
        .need("a base_model or tokenizer_config with a tokenizer.json");
  }
  model.check_continues_texts("eval_tasks");
  selection_ = scoring::select_tasks(recipe.eval_tasks);
  const scoring::TaskOptions options = task_options(recipe, *tokenizer);
  const scoring::RequestEncoder encoder(*tokenizer, max_length(model));
  std::vector<Responses> made_up;
  ContentHash read;
  for (const scoring::TaskConfig& config : selection_.tasks) {
    EncodedTask& encoded = tasks_.emplace_back(EncodedTask{std::make_unique<scoring::Task>(config, options)});
    encoded.is_generated() ? encode_prompts(encoded, model, read) : encode(encoded, encoder, read);
    num_requests_ += encoded.num_requests;
    made_up.push_back(encoded.made_up());
  }
  check_same_stream(read.text(), world);
  expected_ = metrics_of(made_up);
}

TaskEvaluation::Responses TaskEvaluation::EncodedTask::made_up() const {
  return {task->requests().size(),
          std::vector<scoring::Response>(static_cast<size_t>(task->config().repeats), {0.0, true, ""})};
}

void TaskEvaluation::encode(EncodedTask& encoded, const scoring::RequestEncoder& encoder, ContentHash& hash) {
  const std::vector<scoring::Request>& requests = encoded.task->requests();
  for (size_t i = 0; i < requests.size(); ++i) {
    for (scoring::TokenRequest& tokens : encoded.task->encode(requests[i], encoder)) {
      hash.add(std::span<const int64_t>(tokens.ids));
      longest_ = std::max<int64_t>(longest_, std::ssize(tokens.ids) - 1);
      encoded.tokens.push_back(std::move(tokens));
      encoded.owners.push_back(i);
    }
  }
  encoded.num_requests = std::ssize(encoded.tokens);
}

void TaskEvaluation::encode_prompts(EncodedTask& encoded, const models::CausalLM& model, ContentHash& hash) {
  const scoring::TaskConfig& config = encoded.task->config();
  const scoring::RequestEncoder encoder = prompt_encoder(*tokenizer_, model);
  for (const scoring::Request& request : encoded.task->requests()) {
    try {
      const std::vector<int64_t> ids = encoder.prompt(request.context, config.generation.max_tokens);
      model.check_prompt(ids);
      hash.add(std::span<const int64_t>(ids));
      longest_ = std::max(longest_, std::ssize(ids) + config.generation.max_tokens);
    } catch (Error& error) {
      error.within("task " + config.name + ", document " + std::to_string(request.document));
      throw;
    }
  }
  encoded.num_requests = std::ssize(encoded.task->requests()) * config.repeats;
}

std::string TaskEvaluation::describe() const {
  return std::to_string(tasks_.size()) + (tasks_.size() == 1 ? " task, " : " tasks, ") +
         group_digits(num_requests_) + " requests of up to " + group_digits(longest_) + " tokens";
}

std::optional<std::vector<TaskMetric>> TaskEvaluation::evaluate(TrainedModel& trained,
                                                                const parallel::DeviceMesh& mesh,
                                                                const OnPass& on_pass) const {
  std::vector<Responses> responses;
  int64_t before = 0;
  for (const EncodedTask& encoded : tasks_) {
    const auto on_pass_of_task = [&](int64_t done) { return on_pass(before + done); };
    auto of_task = encoded.is_generated() ? generate(encoded, trained, mesh, on_pass_of_task)
                                          : score(encoded, trained, mesh, on_pass_of_task);
    if (!of_task) return std::nullopt;
    responses.push_back(std::move(*of_task));
    before += encoded.num_requests;
  }
  return metrics_of(responses);
}

std::optional<TaskEvaluation::Responses> TaskEvaluation::score(const EncodedTask& encoded,
                                                               TrainedModel& trained,
                                                               const parallel::DeviceMesh& mesh,
                                                               const OnPass& on_pass) const {
  const PlainLoss plain(*trained.model, recipe_);
  const int64_t max_tokens = recipe_.micro_batch_size * recipe_.sequence_len;
  const auto scores = score_requests(trained, mesh, encoded.tokens, max_tokens, on_pass);
  if (!scores) return std::nullopt;
  Responses responses = encoded.made_up();
  for (size_t i = 0; i < scores->size(); ++i) {
    const generation::TokenScore& score = (*scores)[i];
    if (!std::isfinite(score.log_prob)) {
      throw not_finite("the log-likelihood of a text of task '" + encoded.task->config().name + "' is")
          .got(std::to_string(score.log_prob));
    }
    scoring::Response& response = responses[encoded.owners[i]].front();
    response.log_likelihood += score.log_prob;
    response.is_greedy = response.is_greedy && score.is_greedy;
  }
  return responses;
}

std::optional<TaskEvaluation::Responses> TaskEvaluation::generate(const EncodedTask& encoded,
                                                                  TrainedModel& trained,
                                                                  const parallel::DeviceMesh& mesh,
                                                                  const OnPass& on_pass) const {
  models::CausalLM& model = *trained.model;
  int64_t done = 0;
  bool goes_on = true;
  generation::AnswerRequestsOptions options;
  options.stop_ids = generation::stop_ids(model, *tokenizer_);
  options.seed = scoring::TaskOptions().fewshot_seed;  // as tessera evaluate has it
  options.on_progress = [&](int64_t now, int64_t) { done = now; };
  options.is_in_training = true;
  options.after_step = [&] { return goes_on = on_pass(done); };
  Responses responses;
  model.eval();
  try {
    responses = generation::answer_requests(*encoded.task, model, *tokenizer_,
                                            prompt_encoder(*tokenizer_, model), mesh, options);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Numerics) throw;
    throw not_finite("logits behind a prompt of task '" + encoded.task->config().name + "' are");
  }
  model.train();
  if (!goes_on) return std::nullopt;
  share_texts(responses, *mesh.world());
  return responses;
}

std::vector<TaskMetric> TaskEvaluation::metrics_of(const std::vector<Responses>& responses) const {
  std::vector<scoring::Result> results;
  for (size_t t = 0; t < tasks_.size(); ++t) {
    const scoring::Task& task = *tasks_[t].task;
    results.push_back(scoring::result_of(task, task.score(responses[t], /*with_samples=*/false), 0));
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

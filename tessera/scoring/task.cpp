#include "tessera/scoring/task.h"

#include <algorithm>
#include <cmath>

#include "tessera/core/error.h"
#include "tessera/core/sha256.h"
#include "tessera/scoring/prompt.h"
#include "tessera/text/task_template.h"

namespace tessera::scoring {
namespace {

int64_t limited(int64_t count, double limit) {
  if (limit <= 0.0) return count;
  const double most = limit < 1.0 ? std::ceil(static_cast<double>(count) * limit) : std::floor(limit);
  return std::min(count, static_cast<int64_t>(most));
}

// Returns the split that examples come from, if num_fewshot asks for any.
std::string example_split(const TaskConfig& task) {
  for (const auto& split :
       {task.fewshot_split, task.training_split, task.validation_split, task.test_split}) {
    if (split) return *split;
  }
  return "";
}

Json json_of(const OutputType type, const Response& response) {
  if (type == OutputType::GenerateUntil) return response.text;
  if (type == OutputType::Rolling) return response.log_likelihood;
  return Json::array({response.log_likelihood, response.is_greedy});
}

Json arguments_of(const OutputType type, const Request& request) {
  if (type == OutputType::GenerateUntil) return Json::array({request.context});
  if (type == OutputType::Rolling) return Json::array({request.continuation});
  return Json::array({request.context, request.continuation});
}

std::string hash_of(std::string_view text) {
  Sha256 hash;
  hash.add(text);
  return hash.hex();
}

// Returns str() of a target, as Python has it.
std::string python_text(const Json& target) {
  static const text::TaskTemplate kShow = text::TaskTemplate::parse("{{ target }}", "target");
  return target.is_string() ? target.get<std::string>() : kShow.render({{"target", target}});
}

}  // namespace

Task::Task(TaskConfig config, const TaskOptions& options) : config_(std::move(config)) {
  const std::string split = config_.test_split ? *config_.test_split : *config_.validation_split;
  documents_ = read_documents(config_, split, options.data_folder);
  num_scored_ = limited(num_documents(), options.limit);
  const bool is_fixed = config_.num_fewshot == int64_t{0};
  num_fewshot_ = options.num_fewshot && !is_fixed ? *options.num_fewshot : config_.num_fewshot.value_or(0);
  if (config_.output_type == OutputType::Rolling) num_fewshot_ = 0;
  fields_ = std::make_unique<DocumentFields>(config_, config_.prompt, documents_.columns);
  for (const FilterChain& chain : config_.filters) filters_.emplace_back(chain);
  Documents examples;
  if (num_fewshot_ > 0) {
    if (!config_.fewshot_split && config_.fewshot_samples.is_array()) {
      examples.rows.assign(config_.fewshot_samples.begin(), config_.fewshot_samples.end());
    } else {
      const std::string from = example_split(config_);
      examples = from == split ? documents_ : read_documents(config_, from, options.data_folder);
    }
  }
  make_requests(examples, options);
}

// The turn of the assistant begins with the choice itself, unless gen_prefix has begun it.
std::string Task::choice_delimiter(const PromptForm& form) const {
  const std::string prefix = config_.prompt.gen_prefix.value_or("");
  const bool is_begun = !prefix.empty() && !ends_with_space(prefix);
  return form.is_chat() && !is_begun ? "" : config_.prompt.target_delimiter;
}

void Task::make_requests(const Documents& examples, const TaskOptions& options) {
  PromptBuilder builder(config_, *fields_, documents_, examples, num_fewshot_, options.fewshot_seed,
                        options.form);
  const std::string before_choice = choice_delimiter(options.form);
  has_several_prompts_ = builder.has_several();
  const bool is_rolling = config_.output_type == OutputType::Rolling;
  for (size_t i = 0; i < static_cast<size_t>(num_scored_); ++i) {
    const Json& document = documents_.rows[i];
    for (const Filters& filters : filters_) filters.check(document);
    std::vector<std::string> prompts = {""};
    if (!is_rolling) prompts = builder.prompts(document);
    if (config_.output_type == OutputType::GenerateUntil) {
      requests_.push_back({i, prompts[0], ""});
      continue;
    }
    if (config_.output_type == OutputType::MultipleChoice && !has_several_prompts_) {
      const std::vector<std::string> choices = fields_->choices(document);
      for (const std::string& choice : choices) requests_.push_back({i, prompts[0], before_choice + choice});
    } else {
      const Json target = fields_->target(document);
      if (!target.is_string()) {
        throw Error(ErrorKind::Data, "TASK-DOCUMENT", "the target of a document is no text")
            .within("task " + config_.name + ", doc_to_target")
            .got(target.dump().substr(0, 200));
      }
      const std::string delimiter = has_several_prompts_ ? before_choice : "";
      for (const std::string& prompt : prompts)
        requests_.push_back({i, prompt, delimiter + target.get<std::string>()});
    }
    if (!config_.has_metric("acc_mutual_info")) continue;
    for (const std::string& choice : fields_->choices(document))
      requests_.push_back({i, "", before_choice + choice});
  }
}

std::vector<TokenRequest> Task::encode(const Request& request, const RequestEncoder& encoder) const {
  try {
    if (config_.output_type == OutputType::Rolling) return encoder.windows(request.continuation);
    return {encoder.pair(request.context, request.continuation)};
  } catch (Error& error) {
    error.within("task " + config_.name + ", document " + std::to_string(request.document));
    throw;
  }
}

TaskScores Task::score(const std::vector<std::vector<Response>>& responses, bool with_samples) const {
  const DocumentScorer scorer(config_, *fields_, documents_.rows.front(), has_several_prompts_);
  const OutputType type = config_.output_type;
  TaskScores result;
  for (size_t f = 0; f < filters_.size(); ++f) {
    const std::string& filter = config_.filters[f].name;
    const size_t first_metric = result.metrics.size();
    for (const MetricConfig& metric : config_.metrics)
      result.metrics.push_back({metric.name, filter, metric.aggregation, metric.higher_is_better, {}});
    for (size_t begin = 0, end = 0; begin < requests_.size(); begin = end) {
      const size_t document = requests_[begin].document;
      std::vector<Response> filtered;
      Json sample = {{"doc_id", document}, {"doc", documents_.rows[document]}};
      sample["target"] = fields_->target(documents_.rows[document]);
      for (const char* key : {"arguments", "resps", "filtered_resps"}) sample[key] = Json::array();
      for (; end < requests_.size() && requests_[end].document == document; ++end) {
        Response response = responses[end].front();
        if (type == OutputType::GenerateUntil) {
          std::vector<std::string> answers;
          for (const Response& one : responses[end]) answers.push_back(one.text);
          response.text = filters_[f].apply(std::move(answers), documents_.rows[document]);
        }
        if (with_samples) {
          sample["arguments"].push_back(arguments_of(type, requests_[end]));
          Json all = Json::array();
          for (const Response& one : responses[end]) all.push_back(json_of(type, one));
          sample["resps"].push_back(std::move(all));
          sample["filtered_resps"].push_back(json_of(type, response));
        }
        filtered.push_back(std::move(response));
      }
      const DocumentScores scores = scorer.score(documents_.rows[document], filtered);
      for (size_t m = 0; m < scores.size(); ++m)
        result.metrics[first_metric + m].values.push_back(scores[m].second);
      if (!with_samples) continue;
      sample["doc_hash"] =
          hash_of(documents_.rows[document].dump(2, ' ', false, Json::error_handler_t::replace));
      sample["prompt_hash"] = hash_of(sample["arguments"][0][0].get_ref<const std::string&>());
      sample["target_hash"] = hash_of(python_text(sample["target"]));
      sample["filter"] = filter;
      sample["metrics"] = Json::array();
      for (const auto& [metric, value] : scores) sample["metrics"].push_back(metric);
      for (const auto& [metric, value] : scores) {
        sample[metric] = is_metric_of_classes(metric)  ? Json::array({value.weight, value.value})
                         : type == OutputType::Rolling ? Json::array({value.value, value.weight})
                                                       : Json(value.value);
      }
      result.samples.push_back(std::move(sample));
    }
  }
  return result;
}

}  // namespace tessera::scoring

#include "tessera/scoring/read_task.h"

#include <algorithm>
#include <functional>
#include <map>

#include "tessera/core/strings.h"
#include "tessera/scoring/filters.h"
#include "tessera/scoring/metrics.h"
#include "tessera/scoring/yaml_values.h"

namespace tessera::scoring {
namespace {

using config::Entry;
using config::Node;

// Keys whose Python functions have a counterpart that needs none, and keys that are not supported.
constexpr std::pair<std::string_view, std::string_view> kRefused[] = {
    {"process_docs",
     "write the changes into the templates doc_to_text, doc_to_target and doc_to_choice, or "
     "into the data file"},
    {"process_results", "metric_list with doc_to_target says what is compared"},
    {"custom_dataset", "dataset_path and dataset_kwargs.data_files name files"},
    {"doc_to_image", "only texts are scored"},
    {"doc_to_audio", "only texts are scored"},
    {"use_prompt", "write the prompt as doc_to_text"},
    {"unsafe_code", "code that a model writes is not run"},
};

std::string hint_for(std::string_view key) {
  for (const auto& [name, hint] : kRefused) {
    if (name == key) return std::string(hint);
  }
  return key.starts_with("doc_to_") ? "write it as a Jinja template; the filter regex_replace is re.sub()"
                                    : "write a value";
}

void refuse_functions(const std::string& key, const Node& value) {
  if (!value.tag.empty()) {
    throw config::config_error("TASK-FUNCTION", "key '" + key + "' names Python code, which is not run",
                               value.place)
        .got(value.tag + " " + value.text)
        .hint(hint_for(key));
  }
  for (const Node& item : value.items) refuse_functions(key, item);
  for (const Entry& entry : value.entries) refuse_functions(key, entry.value);
}

bool is_given(const Node& value) { return !value.is_null() && value.text != "false"; }

OutputType output_type_of(const Entry& entry) {
  const std::string name = text_of(entry);
  if (name == "multiple_choice") return OutputType::MultipleChoice;
  if (name == "loglikelihood") return OutputType::LogLikelihood;
  if (name == "loglikelihood_rolling") return OutputType::Rolling;
  if (name == "generate_until") return OutputType::GenerateUntil;
  throw wrong_value(entry, "multiple_choice, loglikelihood, loglikelihood_rolling or generate_until");
}

void read_data_files(const Entry& kwargs, TaskConfig& task) {
  if (!kwargs.value.is_map()) throw wrong_value(kwargs, "a map");
  refuse_unknown(kwargs.value, {"data_files", "trust_remote_code"}, "dataset_kwargs");
  const Entry* files = kwargs.value.find("data_files");
  if (files == nullptr) return;
  if (!files->value.is_map()) {
    task.data_files = {{"", texts_of(*files)}};
    return;
  }
  for (const Entry& split : files->value.entries) task.data_files.emplace_back(split.key, texts_of(split));
}

// Reads a key that the prompts of the task and those of its examples both have.
bool read_prompt_key(const Entry& entry, PromptConfig& prompt) {
  const std::string& key = entry.key;
  if (key == "doc_to_text") {
    prompt.doc_to_text = json_of(entry.value);
  } else if (key == "doc_to_target") {
    prompt.doc_to_target = json_of(entry.value);
  } else if (key == "doc_to_choice") {
    prompt.doc_to_choice = json_of(entry.value);
  } else if (key == "gen_prefix") {
    prompt.gen_prefix = text_of(entry);
  } else if (key == "target_delimiter") {
    prompt.target_delimiter = text_of(entry);
  } else if (key == "fewshot_delimiter") {
    prompt.fewshot_delimiter = text_of(entry);
  } else {
    return false;
  }
  return true;
}

void read_fewshot(const Entry& config, TaskConfig& task) {
  if (!config.value.is_map()) throw wrong_value(config, "a map");
  for (const Entry& entry : config.value.entries) {
    if (entry.value.is_null() || read_prompt_key(entry, task.fewshot_prompt)) continue;
    if (entry.key == "sampler") {
      task.sampler = text_of(entry);
      if (task.sampler != "default" && task.sampler != "first_n")
        throw wrong_value(entry, "default or first_n");
    } else if (entry.key == "split") {
      task.fewshot_split = text_of(entry);
    } else if (entry.key == "samples") {
      task.fewshot_samples = json_of(entry.value);
      const bool are_documents =
          task.fewshot_samples.is_array() &&
          std::ranges::all_of(task.fewshot_samples, [](const Json& one) { return one.is_object(); });
      if (!are_documents) throw wrong_value(entry, "a list of documents");
    } else if (entry.key == "fewshot_indices") {
      throw config::config_error("TASK-KEY", "key 'fewshot_indices' is not supported", entry.key_place)
          .hint("lm-evaluation-harness 0.4.13 reads it and does not use it; write the documents as samples");
    } else {
      refuse_unknown(config.value,
                     {"sampler", "split", "samples", "doc_to_text", "doc_to_target", "doc_to_choice",
                      "gen_prefix", "target_delimiter", "fewshot_delimiter"},
                     "fewshot_config");
    }
  }
}

void read_metrics(const Entry& list, TaskConfig& task) {
  if (!list.value.is_sequence()) throw wrong_value(list, "a list of metrics");
  for (const Node& item : list.value.items) {
    const Entry* name = item.is_map() ? item.find("metric") : nullptr;
    if (name == nullptr) throw wrong_value(list, "a list of maps with the key metric");
    MetricConfig metric = default_metric(text_of(*name));
    if (metric.aggregation.empty() || !is_metric_of(metric.name, task.output_type)) {
      throw config::config_error("TASK-METRIC", "metric '" + metric.name + "' is not supported here",
                                 name->value.place)
          .need("one of " + join(metric_names(task.output_type), ", "));
    }
    for (const Entry& entry : item.entries) {
      if (entry.key == "metric") continue;
      if (entry.key == "aggregation") {
        metric.aggregation = text_of(entry);
        if (!is_aggregation(metric.aggregation))
          throw wrong_value(entry, "one of " + join(aggregation_names(), ", "));
      } else if (entry.key == "higher_is_better") {
        metric.higher_is_better = boolean_of(entry);
      } else if (entry.key == "hf_evaluate") {
        if (boolean_of(entry)) throw wrong_value(entry, "false: code of the hub is not run");
      } else if (entry.key == "count_in") {
        metric.arguments[entry.key] = text_of(entry);
      } else if (entry.key == "regexes_to_ignore") {
        metric.arguments[entry.key] = texts_of(entry);
      } else {
        metric.arguments[entry.key] = json_of(entry.value);
      }
    }
    refuse_unknown(item, metric_keys(metric.name), "metric " + metric.name);
    task.metrics.push_back(std::move(metric));
  }
}

void read_filters(const Entry& list, TaskConfig& task) {
  if (!list.value.is_sequence()) throw wrong_value(list, "a list of filters");
  task.filters.clear();
  for (const Node& item : list.value.items) {
    const Entry* name = item.is_map() ? item.find("name") : nullptr;
    const Entry* steps = item.is_map() ? item.find("filter") : nullptr;
    if (name == nullptr || steps == nullptr || !steps->value.is_sequence())
      throw wrong_value(list, "a list of maps with the keys name and filter");
    refuse_unknown(item, {"name", "filter"}, "a filter");
    FilterChain chain{text_of(*name), {}};
    for (const Node& step : steps->value.items) {
      const Entry* function = step.is_map() ? step.find("function") : nullptr;
      if (function == nullptr) throw wrong_value(*steps, "a list of maps with the key function");
      FilterConfig filter{text_of(*function), Json::object()};
      refuse_unknown(step, filter_keys(filter.function, *function), "filter " + filter.function);
      for (const Entry& entry : step.entries) {
        if (entry.key != "function") filter.arguments[entry.key] = json_of(entry.value);
      }
      chain.steps.push_back(std::move(filter));
    }
    if (const std::string problem = problem_of_chain(chain, task.output_type); !problem.empty())
      throw config::config_error("TASK-FILTER", problem, item.place);
    task.filters.push_back(std::move(chain));
  }
}

void read_generation(const Entry& kwargs, TaskConfig& task) {
  if (!kwargs.value.is_map()) throw wrong_value(kwargs, "a map");
  GenerationConfig& generation = task.generation;
  std::optional<bool> do_sample;
  for (const Entry& entry : kwargs.value.entries) {
    const std::string& key = entry.key;
    if (key == "until") {
      generation.until = texts_of(entry);
    } else if (key == "max_gen_toks" || key == "max_new_tokens" || key == "max_tokens" ||
               key == "max_completion_tokens") {
      generation.max_tokens = integer_of(entry);
      if (generation.max_tokens < 1) throw wrong_value(entry, "at least 1");
    } else if (key == "do_sample") {
      do_sample = boolean_of(entry);
    } else if (key == "temperature") {
      generation.temperature = number_of(entry);
    } else if (key == "top_p") {
      generation.top_p = number_of(entry);
    } else if (key == "top_k") {
      generation.top_k = integer_of(entry);
    } else {
      refuse_unknown(kwargs.value,
                     {"until", "max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens",
                      "do_sample", "temperature", "top_p", "top_k"},
                     "generation_kwargs");
    }
  }
  if (do_sample == false) generation.temperature = 0.0;
  if (do_sample == true && kwargs.value.find("temperature") == nullptr) generation.temperature = 1.0;
}

void inherit(const PromptConfig& prompt, const Entry* config, PromptConfig& fewshot) {
  const auto is_own = [&](const char* key) {
    return config != nullptr && config->value.find(key) != nullptr;
  };
  if (!is_own("doc_to_text")) fewshot.doc_to_text = prompt.doc_to_text;
  if (!is_own("doc_to_target")) fewshot.doc_to_target = prompt.doc_to_target;
  if (!is_own("doc_to_choice")) fewshot.doc_to_choice = prompt.doc_to_choice;
  if (!is_own("gen_prefix")) fewshot.gen_prefix = prompt.gen_prefix;
  if (!is_own("target_delimiter")) fewshot.target_delimiter = prompt.target_delimiter;
  if (!is_own("fewshot_delimiter")) fewshot.fewshot_delimiter = prompt.fewshot_delimiter;
}

std::string version_of(const Node& map, std::string otherwise) {
  const Entry* metadata = map.find("metadata");
  const Entry* version =
      metadata != nullptr && metadata->value.is_map() ? metadata->value.find("version") : nullptr;
  return version == nullptr ? otherwise : version->value.text;
}

// The readers of the keys that stand alone.
using Reader = std::function<void(const Entry&, TaskConfig&)>;
const std::map<std::string, Reader>& readers() {
  static const auto split = [](std::optional<std::string> TaskConfig::*member) {
    return [member](const Entry& entry, TaskConfig& task) { task.*member = text_of(entry); };
  };
  static const std::map<std::string, Reader> kReaders = {
      {"task", [](const Entry& entry, TaskConfig& task) { task.name = text_of(entry); }},
      {"task_alias", [](const Entry& entry, TaskConfig& task) { task.alias = text_of(entry); }},
      {"tag", [](const Entry& entry, TaskConfig& task) { task.tags = texts_of(entry); }},
      {"dataset_path", [](const Entry& entry, TaskConfig& task) { task.dataset_path = text_of(entry); }},
      {"dataset_name", [](const Entry& entry, TaskConfig& task) { task.dataset_name = text_of(entry); }},
      {"dataset_kwargs", read_data_files},
      {"training_split", split(&TaskConfig::training_split)},
      {"validation_split", split(&TaskConfig::validation_split)},
      {"test_split", split(&TaskConfig::test_split)},
      {"fewshot_split", split(&TaskConfig::fewshot_split)},
      {"description", [](const Entry& entry, TaskConfig& task) { task.description = text_of(entry); }},
      {"num_fewshot",
       [](const Entry& entry, TaskConfig& task) {
         task.num_fewshot = integer_of(entry);
         if (*task.num_fewshot < 0) throw wrong_value(entry, "at least 0");
       }},
      {"repeats",
       [](const Entry& entry, TaskConfig& task) {
         task.repeats = integer_of(entry);
         if (task.repeats < 1) throw wrong_value(entry, "at least 1");
       }},
  };
  return kReaders;
}

// Keys that are read elsewhere, or that are of no effect without the harness' option for decontamination.
const std::vector<std::string> kOtherKeys = {"output_type",          "doc_to_text",
                                             "doc_to_target",        "doc_to_choice",
                                             "gen_prefix",           "target_delimiter",
                                             "fewshot_delimiter",    "fewshot_config",
                                             "metric_list",          "filter_list",
                                             "generation_kwargs",    "metadata",
                                             "should_decontaminate", "doc_to_decontamination_query"};

}  // namespace

TaskConfig read_task(const Node& map) {
  TaskConfig task;
  task.place = {map.place.file ? *map.place.file : "", map.place.line, 0};
  for (const Entry& entry : map.entries) {
    refuse_functions(entry.key, entry.value);
    const auto refused = std::ranges::find(kRefused, entry.key, [](const auto& pair) { return pair.first; });
    if (refused != std::end(kRefused) && is_given(entry.value)) {
      throw config::config_error("TASK-KEY", "key '" + entry.key + "' is not supported", entry.key_place)
          .hint(refused->second);
    }
  }
  std::vector<std::string> known = kOtherKeys;
  for (const auto& [key, reader] : readers()) known.push_back(key);
  for (const auto& [key, hint] : kRefused) known.emplace_back(key);
  refuse_unknown(map, known, "a task");
  // The output type decides what the other keys may hold.
  if (const Entry* entry = map.find("output_type")) task.output_type = output_type_of(*entry);
  task.filters = {{"none", {{"take_first", Json::object()}}}};
  const Entry* fewshot = nullptr;
  for (const Entry& entry : map.entries) {
    if (entry.value.is_null()) continue;
    if (read_prompt_key(entry, task.prompt)) continue;
    if (const auto reader = readers().find(entry.key); reader != readers().end()) {
      reader->second(entry, task);
    } else if (entry.key == "fewshot_config") {
      fewshot = &entry;
    } else if (entry.key == "metric_list") {
      read_metrics(entry, task);
    } else if (entry.key == "filter_list") {
      read_filters(entry, task);
    } else if (entry.key == "generation_kwargs") {
      read_generation(entry, task);
    }
  }
  if (fewshot != nullptr) read_fewshot(*fewshot, task);
  inherit(task.prompt, fewshot, task.fewshot_prompt);
  if (task.metrics.empty()) {
    for (const std::string& name : default_metrics(task.output_type))
      task.metrics.push_back(default_metric(name));
  }
  if (task.generation.until.empty()) task.generation.until = {task.prompt.fewshot_delimiter};
  if (task.alias.empty()) task.alias = task.name;
  task.version = version_of(map, "Yaml");
  task.keys = json_of(map);
  for (const char* key : {"task", "dataset_path", "doc_to_target"}) {
    if (map.find(key) == nullptr || map.find(key)->value.is_null())
      throw task_error(task, "TASK-KEY", std::string("the task has no key '") + key + "'");
  }
  if (task.output_type == OutputType::MultipleChoice && task.prompt.doc_to_choice.is_null())
    throw task_error(task, "TASK-KEY", "a task of multiple_choice has no key 'doc_to_choice'");
  if (!task.test_split && !task.validation_split)
    throw task_error(task, "TASK-KEY", "the task has neither test_split nor validation_split");
  return task;
}

GroupConfig read_group(const Node& map) {
  refuse_unknown(map, {"group", "group_alias", "task", "aggregate_metric_list", "metadata", "include", "tag"},
                 "a group");
  GroupConfig group;
  group.name = group.alias = text_of(*map.find("group"));
  if (const Entry* alias = map.find("group_alias"); alias != nullptr && !alias->value.is_null())
    group.alias = text_of(*alias);
  group.version = version_of(map, "N/A");
  const Entry* metrics = map.find("aggregate_metric_list");
  if (metrics == nullptr || metrics->value.is_null()) return group;
  std::vector<Node> items = metrics->value.items;
  if (metrics->value.is_map()) items = {metrics->value};
  for (const Node& item : items) {
    const Entry* name = item.is_map() ? item.find("metric") : nullptr;
    if (name == nullptr) throw wrong_value(*metrics, "a list of maps with the key metric");
    refuse_unknown(item, {"metric", "filter_list", "aggregation", "weight_by_size"}, "aggregate_metric_list");
    GroupMetric metric{text_of(*name), std::nullopt, true};
    if (const Entry* filters = item.find("filter_list"); filters != nullptr && !filters->value.is_null())
      metric.filters = texts_of(*filters);
    if (const Entry* weight = item.find("weight_by_size")) metric.weight_by_size = boolean_of(*weight);
    if (const Entry* how = item.find("aggregation"); how != nullptr && text_of(*how) != "mean")
      throw wrong_value(*how, "mean");
    group.metrics.push_back(std::move(metric));
  }
  return group;
}

bool TaskConfig::has_metric(std::string_view metric) const {
  return std::ranges::any_of(metrics, [&](const MetricConfig& one) { return one.name == metric; });
}

Error task_error(const TaskConfig& task, std::string_view name, const std::string& what) {
  Error error(ErrorKind::Config, name, what);
  error.at(task.place);
  if (!task.name.empty()) error.within("task " + task.name);
  return error;
}

}  // namespace tessera::scoring

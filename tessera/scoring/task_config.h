// The definition of a task, as lm-evaluation-harness' task files write it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"

namespace tessera::scoring {

using Json = nlohmann::ordered_json;

// The question that a model is asked, with the harness' name of it.
enum class OutputType {
  MultipleChoice,  // multiple_choice: the most likely of some continuations
  LogLikelihood,   // loglikelihood: one continuation
  Rolling,         // loglikelihood_rolling: a whole text
  GenerateUntil,   // generate_until: a generated text
};

// How a document becomes a question and an answer.
struct PromptConfig {
  // The name of a column, a Jinja template, or a value of its own (an integer or a list; of doc_to_choice
  // also an object, whose values are the choices). Null where the key is not given.
  Json doc_to_text, doc_to_target, doc_to_choice;
  std::optional<std::string> gen_prefix;  // the beginning of the answer
  std::string target_delimiter = " ", fewshot_delimiter = "\n\n";
};

struct MetricConfig {
  std::string name, aggregation;
  bool higher_is_better = true;
  Json arguments = Json::object();  // all other keys
};

struct FilterConfig {
  std::string function;
  Json arguments = Json::object();
};

// A chain of filters, and the name under which the scores of its results are told.
struct FilterChain {
  std::string name;
  std::vector<FilterConfig> steps;
};

struct GenerationConfig {
  std::vector<std::string> until;  // texts that end an answer
  int64_t max_tokens = 256;
  double temperature = 0.0, top_p = 1.0;  // 0 is greedy
  int64_t top_k = 0;
};

struct TaskConfig {
  std::string name, alias;
  std::vector<std::string> tags;
  SourcePlace place;  // the file, for messages
  std::string dataset_path, dataset_name;
  // The files of each split, or under "" those of the only one, which is "train". Empty: not given.
  std::vector<std::pair<std::string, std::vector<std::string>>> data_files;
  std::optional<std::string> training_split, validation_split, test_split, fewshot_split;
  std::string description;
  PromptConfig prompt, fewshot_prompt;
  std::string sampler = "default";  // or "first_n"
  Json fewshot_samples;             // an array of documents, or null
  std::optional<int64_t> num_fewshot;
  OutputType output_type = OutputType::GenerateUntil;
  std::vector<MetricConfig> metrics;
  std::vector<FilterChain> filters;
  GenerationConfig generation;
  int64_t repeats = 1;
  std::string version = "Yaml";  // metadata.version
  Json keys;                     // all keys of the file and of those that it includes

  // Returns whether a metric of this name is asked for.
  bool has_metric(std::string_view metric) const;
};

struct GroupMetric {
  std::string metric;
  std::optional<std::vector<std::string>> filters;  // nothing: those that the tasks have
  bool weight_by_size = true;
};

// Tasks whose scores are shown together. Members are names of tasks and groups.
struct GroupConfig {
  std::string name, alias;
  std::vector<std::string> members;
  std::vector<GroupMetric> metrics;  // empty: the group has no score of its own
  std::string version = "N/A";
};

// Makes an Error(Config) about a task at its file.
Error task_error(const TaskConfig& task, std::string_view name, const std::string& what);

}  // namespace tessera::scoring

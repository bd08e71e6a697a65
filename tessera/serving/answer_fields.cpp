#include "tessera/serving/answer_fields.h"

#include <algorithm>
#include <random>

#include "tessera/serving/bias_fields.h"
#include "tessera/serving/structured_outputs.h"

namespace tessera::serving {
namespace {

constexpr size_t kMostStops = 32;

std::vector<std::string> read_stop(Fields& fields) {
  const Json* value = fields.find("stop");
  if (value == nullptr) return {};
  const Json all = value->is_array() ? *value : Json::array({*value});
  if (all.size() > kMostStops)
    throw fields.problem("stop", "at most " + std::to_string(kMostStops) + " texts are taken");
  std::vector<std::string> stop;
  for (const Json& each : all) {
    if (!each.is_string() || each.get_ref<const std::string&>().empty())
      throw fields.problem("stop", "a text or an array of texts is needed, none of them empty");
    stop.push_back(each.get<std::string>());
  }
  return stop;
}

std::string read_cache_salt(Fields& fields) {
  constexpr size_t kLongest = 128;
  const auto salt = fields.text("cache_salt");
  if (salt && (salt->empty() || salt->size() > kLongest))
    throw fields.problem("cache_salt", "a text of 1 to " + std::to_string(kLongest) + " bytes is needed");
  return salt.value_or("");
}

void refuse_unsupported(Fields& fields) {
  const std::string no = "this field changes the answer and is not supported";
  fields.refuse_unless("length_penalty", 1, no + "; leave it out");
  fields.refuse_unless("include_stop_str_in_output", false, no);
  fields.refuse_unless("use_beam_search", false, no);
  for (const char* name :
       {"allowed_token_ids", "prompt_logprobs", "logprob_token_ids", "truncate_prompt_tokens",
        "logits_processors", "kv_transfer_params", "prompt_embeds", "min_tokens_to_keep"})
    fields.refuse_unless(name, Json(), no);
  fields.ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
                 "prompt_cache_options", "prompt_cache_retention", "prediction", "moderation", "priority",
                 "request_id", "spaces_between_special_tokens", "verbosity"});
}

void read_sampling(Fields& fields, Sampling& sampling) {
  sampling.temperature = fields.number("temperature", 0.0, 2.0).value_or(sampling.temperature);
  sampling.top_p = fields.number("top_p", 0.0, 1.0).value_or(sampling.top_p);
  if (sampling.top_p <= 0.0) throw fields.problem("top_p", "a number above 0 and at most 1 is needed");
  sampling.min_p = fields.number("min_p", 0.0, 1.0).value_or(sampling.min_p);
  // Other servers write "all" as -1.
  sampling.top_k =
      std::max<int64_t>(0, fields.integer("top_k", -1, int64_t{1} << 31).value_or(sampling.top_k));
  sampling.repetition_penalty =
      fields.number("repetition_penalty", 0.0, 100.0).value_or(sampling.repetition_penalty);
  if (sampling.repetition_penalty <= 0.0)
    throw fields.problem("repetition_penalty", "a number above 0 is needed; 1 is none");
  const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX);
  static thread_local std::random_device chance;
  sampling.seed = seed ? static_cast<uint64_t>(*seed) : (uint64_t{chance()} << 32 | chance());
}

}  // namespace

AnswerFields read_answer_fields(Fields& fields, const ServedModel& model, const EngineFacts& facts) {
  AnswerFields answer;
  answer.sampling = model.defaults;
  read_sampling(fields, answer.sampling);
  read_biases(fields, model, facts.vocabulary, answer.sampling);
  answer.n = fields.integer("n", 1, kMostChoices).value_or(1);
  answer.stop = read_stop(fields);
  answer.stop_ids = fields.integers("stop_token_ids", 0, INT32_MAX);
  if (!fields.boolean("ignore_eos", false))
    answer.stop_ids.insert(answer.stop_ids.end(), model.stop_ids.begin(), model.stop_ids.end());
  answer.cache_salt = read_cache_salt(fields);
  answer.skip_special_tokens = fields.boolean("skip_special_tokens", true);
  answer.streams = fields.boolean("stream", false);
  if (const Json* value = fields.find("stream_options")) {
    if (!answer.streams)
      throw fields.problem("stream_options", "only a request with \"stream\": true has them");
    Fields options(*value, "stream_options.");
    answer.includes_usage = options.boolean("include_usage", false);
    options.refuse_unless("continuous_usage_stats", false, "usage is told once, at the end");
  }
  refuse_unsupported(fields);
  answer.constraint = read_structured_outputs(fields, model);
  return answer;
}

int64_t answer_room(int64_t prompt_tokens, std::optional<int64_t> asked, int64_t otherwise,
                    const EngineFacts& facts, const std::string& param) {
  if (prompt_tokens == 0) throw ApiError::bad("the prompt has no tokens", param);
  if (prompt_tokens > facts.context) {
    throw ApiError::bad("the prompt has " + std::to_string(prompt_tokens) +
                            " tokens, but the model's context is " + std::to_string(facts.context) +
                            " tokens",
                        param, "context_length_exceeded");
  }
  if (facts.cache_tokens > 0 && prompt_tokens > facts.cache_tokens) {
    throw ApiError::bad("the prompt has " + std::to_string(prompt_tokens) +
                            " tokens, but the server's cache holds " + std::to_string(facts.cache_tokens) +
                            " tokens",
                        param, "context_length_exceeded");
  }
  // The last token of an answer needs no place behind it.
  int64_t room = facts.context - prompt_tokens + 1;
  if (facts.cache_tokens > 0) room = std::min(room, facts.cache_tokens - prompt_tokens + 1);
  return std::min(room, asked.value_or(otherwise));
}

}  // namespace tessera::serving

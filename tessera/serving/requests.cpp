#include "tessera/serving/requests.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/serving/tool_fields.h"
#include "tessera/text/chat_encoding.h"

namespace tessera::serving {
namespace {

constexpr size_t kMostPrompts = 2048, kMostMessages = 8192;

bool are_ids(const Json& value) { return value.is_array() && !value.empty() && value.front().is_number(); }

std::vector<int64_t> read_ids(const Json& value, const std::string& name, const EngineFacts& facts) {
  std::vector<int64_t> ids;
  for (const Json& each : value) {
    const bool is_id =
        each.is_number_integer() && each.get<int64_t>() >= 0 && each.get<int64_t>() < facts.vocabulary;
    if (!is_id) {
      throw ApiError::bad(
          name + ": token ids from 0 to " + std::to_string(facts.vocabulary - 1) + " are needed", name);
    }
    ids.push_back(each.get<int64_t>());
  }
  return ids;
}

TokenPrompt read_prompt(const Json& value, const std::string& name, bool adds_special, bool echoes,
                        const ServedModel& model, const EngineFacts& facts) {
  TokenPrompt prompt;
  if (value.is_string()) {
    prompt.text = value.get<std::string>();
    prompt.ids = encode_text(prompt.text, adds_special, model);
  } else if (are_ids(value)) {
    prompt.ids = read_ids(value, name, facts);
    const std::vector<int32_t> ids(prompt.ids.begin(), prompt.ids.end());
    if (echoes) prompt.text = model.tokenizer.decode(ids);
  } else {
    throw ApiError::bad(name + ": a text, token ids, or an array of these is needed", name);
  }
  return prompt;
}

void read_completion_log_probs(Fields& fields, AnswerFields& answer) {
  const auto count = fields.integer("logprobs", 0, kMostLogProbs);
  answer.wants_log_probs = count.has_value();
  answer.num_top = count.value_or(0);
}

void read_chat_log_probs(Fields& fields, AnswerFields& answer) {
  answer.wants_log_probs = fields.boolean("logprobs", false);
  const auto count = fields.integer("top_logprobs", 0, kMostLogProbs);
  if (count.value_or(0) > 0 && !answer.wants_log_probs)
    throw fields.problem("top_logprobs", "\"logprobs\": true is needed beside it");
  answer.num_top = count.value_or(0);
}

// Returns the text of a message's content, which may come in parts.
std::string content_text(const Json& parts, const std::string& place) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string where = place + "[" + std::to_string(i) + "]";
    const Json& part = parts[i];
    const bool is_text = part.is_object() && part.contains("type") && part.at("type") == "text" &&
                         part.contains("text") && part.at("text").is_string();
    if (!is_text) {
      throw ApiError::bad(where +
                              ": only parts {\"type\": \"text\", \"text\": ...} are supported; the model "
                              "takes no images, audio or files",
                          where);
    }
    if (i > 0) text += '\n';
    text += part.at("text").get<std::string>();
  }
  return text;
}

void check_calls(const Json& calls, const std::string& place) {
  if (!calls.is_array()) throw ApiError::bad(place + ": an array of calls is needed", place);
  for (size_t i = 0; i < calls.size(); ++i) {
    Fields call(calls[i], place + "[" + std::to_string(i) + "].");
    const Json* function = call.find("function");
    if (function == nullptr) throw call.problem("function", "this field is needed");
    Fields inner(*function, call.place("function") + ".");
    if (inner.text("name").value_or("").empty()) throw inner.problem("name", "this field is needed");
    const Json* arguments = inner.find("arguments");
    if (arguments != nullptr && !arguments->is_string() && !arguments->is_object())
      throw inner.problem("arguments", "an object, or its text, is needed");
  }
}

Json read_message(const Json& given, const std::string& place, const text::ChatTemplate& chat_template) {
  Fields fields(given, place + ".");
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
  const std::string role = fields.text("role").value_or("");
  if (std::ranges::find(kRoles, role) == std::end(kRoles))
    throw fields.problem("role", "system, developer, user, assistant or tool is needed");
  Json message = given;
  // Few templates know the newer name.
  if (role == "developer" && chat_template.source().find("developer") == std::string::npos)
    message["role"] = "system";
  const Json* calls = fields.find("tool_calls");
  if (calls != nullptr) check_calls(*calls, fields.place("tool_calls"));
  const Json* content = fields.find("content");
  if (content == nullptr) {
    if (role != "assistant" || calls == nullptr || calls->empty())
      throw fields.problem("content", "this field is needed");
  } else if (content->is_array()) {
    message["content"] = content_text(*content, fields.place("content"));
  } else if (!content->is_string()) {
    throw fields.problem("content", "a text or an array of parts is needed");
  }
  return message;
}

// Gives results of tools the names of the functions, which clients leave out and some templates write.
void name_results(Json& messages) {
  std::map<std::string, std::string> names;
  for (Json& message : messages) {
    Fields fields(message);
    if (message.at("role") == "tool" && fields.find("name") == nullptr) {
      const auto name = names.find(fields.text("tool_call_id").value_or(""));
      if (name != names.end()) message["name"] = name->second;
    }
    const Json* calls = fields.find("tool_calls");
    for (size_t i = 0; calls != nullptr && i < calls->size(); ++i) {
      if (const auto id = Fields((*calls)[i]).text("id")) names[*id] = (*calls)[i].at("function").at("name");
    }
  }
}

Json read_messages(Fields& fields, const text::ChatTemplate& chat_template) {
  const Json* value = fields.find("messages");
  if (value == nullptr || !value->is_array() || value->empty() || value->size() > kMostMessages) {
    throw fields.problem("messages",
                         "an array of 1 to " + std::to_string(kMostMessages) + " messages is needed");
  }
  Json messages = Json::array();
  for (size_t i = 0; i < value->size(); ++i)
    messages.push_back(read_message((*value)[i], "messages[" + std::to_string(i) + "]", chat_template));
  name_results(messages);
  return messages;
}

// Returns the variables for the template that a request gives.
std::shared_ptr<const Json> read_variables(Fields& fields) {
  Json variables = Json::object();
  if (const Json* given = fields.find("chat_template_kwargs")) {
    if (!given->is_object()) throw fields.problem("chat_template_kwargs", "an object is needed");
    for (const char* name : {"messages", "tools", "add_generation_prompt"}) {
      if (given->contains(name))
        throw fields.problem("chat_template_kwargs",
                             std::string("'") + name + "' is no variable to set here");
    }
    variables = *given;
  }
  if (const auto effort = fields.text("reasoning_effort")) variables["reasoning_effort"] = *effort;
  return variables.empty() ? nullptr : std::make_shared<const Json>(std::move(variables));
}

// Renders the chat. An assistant's message with calls may have no content: some templates ask for that, and
// others join the content to texts, which fails unless it is one. The latter get an empty text.
text::RenderedChat render(const text::ChatTemplate& chat_template, Json messages, const Json& tools,
                          const text::RenderOptions& options) {
  const auto has_calls = [](const Json& message) { return message.contains("tool_calls"); };
  try {
    return chat_template.render(messages, tools, options);
  } catch (const Error&) {
    if (std::ranges::none_of(messages, has_calls)) throw;
    for (Json& message : messages) {
      if (!message.contains("content") || message.at("content").is_null()) message["content"] = "";
    }
    return chat_template.render_as_given(messages, tools, options);
  }
}

void refuse_chat_fields(Fields& fields) {
  const std::string no = "this field changes the answer and is not supported";
  fields.refuse_unless("continue_final_message", false, no);
  fields.refuse_unless("echo", false, no);
  fields.refuse_unless("add_special_tokens", false, "a chat has the special tokens that its template writes");
  for (const char* name : {"functions", "function_call", "audio", "web_search_options", "chat_template",
                           "documents", "mm_processor_kwargs"})
    fields.refuse_unless(name, Json(), no);
  fields.refuse_unless("modalities", Json::array({"text"}), "only text is supported");
  fields.ignore({"include_reasoning"});
}

}  // namespace

std::vector<TokenPrompt> read_prompts(Fields& fields, const std::string& name, bool echoes,
                                      const ServedModel& model, const EngineFacts& facts) {
  const bool adds_special = fields.boolean("add_special_tokens", true);
  const Json* value = fields.find(name);
  if (value == nullptr) throw fields.problem(name, "this field is needed");
  const Json all = value->is_array() && !are_ids(*value) ? *value : Json::array({*value});
  if (all.empty() || all.size() > kMostPrompts)
    throw fields.problem(name, "1 to " + std::to_string(kMostPrompts) + " texts are taken");
  std::vector<TokenPrompt> prompts;
  for (const Json& each : all) prompts.push_back(read_prompt(each, name, adds_special, echoes, model, facts));
  return prompts;
}

std::vector<int64_t> encode_text(const std::string& text, bool adds_special, const ServedModel& model) {
  const auto bos = model.tokenizer.bos_id();
  const std::string start = bos ? model.tokenizer.id_to_token(*bos) : "";
  const bool has_start = !start.empty() && text.starts_with(start);
  const auto ids =
      model.tokenizer.encode(text, {.parse_special = true, .add_special_tokens = adds_special && !has_start});
  return {ids.begin(), ids.end()};
}

std::vector<int64_t> encode_messages(Fields& fields, const Json& tools, const ServedModel& model) {
  if (model.chat_template == nullptr)
    throw ApiError::bad("this model has no chat template: " + model.no_template, "messages");
  Json messages = read_messages(fields, *model.chat_template);
  text::RenderOptions options =
      text::render_options(model.tokenizer, fields.boolean("add_generation_prompt", true));
  options.variables = read_variables(fields);
  const auto ids =
      text::encode_chat(model.tokenizer, render(*model.chat_template, std::move(messages), tools, options))
          .ids;
  return {ids.begin(), ids.end()};
}

AnswerRequest read_completion(const Json& body, const ServedModel& model, const EngineFacts& facts) {
  Fields fields(body);
  fields.ignore({"model"});  // Service has read it
  AnswerRequest request;
  request.format = std::make_unique<CompletionFormat>();
  request.fields = read_answer_fields(fields, model, facts);
  read_completion_log_probs(fields, request.fields);
  request.fields.max_tokens = fields.integer("max_tokens", 0, INT32_MAX);
  const bool echoes = fields.boolean("echo", false);
  if (const auto best_of = fields.integer("best_of", 1, kMostChoices);
      best_of && *best_of != request.fields.n)
    throw fields.problem("best_of", "only the value of n is supported");
  fields.refuse_unless("suffix", "", "this model cannot fill in between two texts");
  const std::vector<TokenPrompt> prompts = read_prompts(fields, "prompt", echoes, model, facts);
  const bool is_empty = request.fields.max_tokens == 0;
  if (is_empty && !echoes) throw fields.problem("max_tokens", "0 is only of use with \"echo\": true");
  constexpr int64_t kUsual = 16;
  for (const TokenPrompt& prompt : prompts) {
    request.prompt_tokens += std::ssize(prompt.ids);
    const std::optional<int64_t> asked = is_empty ? 1 : request.fields.max_tokens;
    const int64_t room = answer_room(std::ssize(prompt.ids), asked, kUsual, facts, "prompt");
    for (int64_t i = 0; i < request.fields.n; ++i) {
      request.plans.push_back({.index = std::ssize(request.plans),
                               .prompt = prompt.ids,
                               .echo = echoes ? prompt.text : "",
                               .tells_prompt = echoes && request.fields.wants_log_probs,
                               .is_empty = is_empty});
      request.max_new_tokens.push_back(room);
    }
  }
  request.unknown = fields.unknown();
  return request;
}

AnswerRequest read_chat(const Json& body, const ServedModel& model, const EngineFacts& facts) {
  Fields fields(body);
  fields.ignore({"model"});  // Service has read it
  AnswerRequest request;
  request.fields = read_answer_fields(fields, model, facts);
  read_chat_log_probs(fields, request.fields);
  const auto newer = fields.integer("max_completion_tokens", 1, INT32_MAX),
             older = fields.integer("max_tokens", 1, INT32_MAX);
  request.fields.max_tokens = newer ? newer : older;
  refuse_chat_fields(fields);
  const ToolFields tools = read_tools(fields);
  use_tools(tools, model, request.fields);
  request.format = std::make_unique<ChatFormat>(!tools.named.empty());
  const std::vector<int64_t> prompt = encode_messages(fields, tools.tools, model);
  request.prompt_tokens = std::ssize(prompt);
  const int64_t room = answer_room(request.prompt_tokens, request.fields.max_tokens, model.max_answer_tokens,
                                   facts, "messages");
  for (int64_t i = 0; i < request.fields.n; ++i) {
    request.plans.push_back({.index = i, .prompt = prompt});
    request.max_new_tokens.push_back(room);
  }
  request.unknown = fields.unknown();
  return request;
}

}  // namespace tessera::serving

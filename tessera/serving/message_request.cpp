#include "tessera/serving/message_request.h"

#include <string>
#include <utility>
#include <vector>

#include "tessera/serving/message_format.h"
#include "tessera/serving/tool_fields.h"

namespace tessera::serving {
namespace {

ApiError bad_block(const std::string& place, const std::string& need) {
  return ApiError::bad(place + ": " + need, place);
}

// Returns the text of a content: a text itself, or an array of blocks of the type text.
std::string text_in(const Json& content, const std::string& place) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) throw bad_block(place, "a text or an array of blocks is needed");
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    Fields block(content[i], place + "[" + std::to_string(i) + "].");
    if (block.text("type") != "text")
      throw block.problem("type", "only blocks of the type text are supported here");
    if (i > 0) text += '\n';
    text += block.text("text").value_or("");
  }
  return text;
}

// Adds the messages that one message with blocks stands for: results of tools are messages of their own.
void add_blocks(const std::string& role, const Json& content, const std::string& place, Json& messages) {
  Json calls = Json::array(), texts = Json::array();
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string where = place + "[" + std::to_string(i) + "]";
    Fields block(content[i], where + ".");
    const std::string type = block.text("type").value_or("");
    if (type == "text") {
      texts.push_back(content[i]);
    } else if (type == "tool_use" && role == "assistant") {
      const Json* input = block.find("input");
      calls.push_back({{"id", block.text("id").value_or("")},
                       {"type", "function"},
                       {"function",
                        {{"name", block.text("name").value_or("")},
                         {"arguments", input != nullptr ? text_of(*input) : "{}"}}}});
    } else if (type == "tool_result" && role == "user") {
      const Json* result = block.find("content");
      messages.push_back({{"role", "tool"},
                          {"tool_call_id", block.text("tool_use_id").value_or("")},
                          {"content", result != nullptr ? text_in(*result, where + ".content") : ""}});
    } else {
      throw block.problem("type", "blocks of this type are not supported; text is");
    }
  }
  if (texts.empty() && calls.empty()) return;
  Json message = {{"role", role}, {"content", text_in(texts, place)}};
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  messages.push_back(std::move(message));
}

// Returns the conversation as the OpenAI API has it.
Json read_conversation(Fields& fields) {
  Json messages = Json::array();
  if (const Json* system = fields.find("system"))
    messages.push_back({{"role", "system"}, {"content", text_in(*system, "system")}});
  const Json* given = fields.find("messages");
  if (given == nullptr || !given->is_array() || given->empty())
    throw fields.problem("messages", "an array of messages is needed");
  for (size_t i = 0; i < given->size(); ++i) {
    const std::string place = "messages[" + std::to_string(i) + "]";
    Fields message((*given)[i], place + ".");
    const std::string role = message.text("role").value_or("");
    if (role != "user" && role != "assistant") throw message.problem("role", "user or assistant is needed");
    const Json* content = message.find("content");
    if (content == nullptr) throw message.problem("content", "this field is needed");
    if (content->is_array()) {
      add_blocks(role, *content, place + ".content", messages);
    } else {
      messages.push_back({{"role", role}, {"content", text_in(*content, place + ".content")}});
    }
  }
  if (messages.back().at("role") == "assistant")
    throw fields.problem("messages", "the last message must be the user's: an answer cannot be continued");
  return messages;
}

Json read_tools_given(Fields& fields) {
  Json tools = Json::array();
  const Json* given = fields.find("tools");
  if (given == nullptr) return tools;
  if (!given->is_array()) throw fields.problem("tools", "an array is needed");
  for (size_t i = 0; i < given->size(); ++i) {
    Fields tool((*given)[i], "tools[" + std::to_string(i) + "].");
    const Json* schema = tool.find("input_schema");
    if (schema == nullptr) throw tool.problem("input_schema", "this field is needed");
    tools.push_back({{"type", "function"},
                     {"function",
                      {{"name", tool.text("name").value_or("")},
                       {"description", tool.text("description").value_or("")},
                       {"parameters", *schema}}}});
  }
  return tools;
}

// Returns the conversation with its tools as a request of the OpenAI API.
Json as_chat(Fields& fields) {
  Json chat = {{"messages", read_conversation(fields)}};
  if (Json tools = read_tools_given(fields); !tools.empty()) chat["tools"] = std::move(tools);
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr) return chat;
  Fields chosen(*choice, "tool_choice.");
  const std::string type = chosen.text("type").value_or("");
  if (type == "tool") {
    chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", chosen.text("name").value_or("")}}}};
  } else if (type == "auto" || type == "none" || type == "any") {
    chat["tool_choice"] = type == "any" ? "required" : type;
  } else {
    throw chosen.problem("type", "auto, any, tool or none is needed");
  }
  chat["parallel_tool_calls"] = !chosen.boolean("disable_parallel_tool_use", false);
  return chat;
}

// Returns the fields that both APIs have under other names, with those that have the same one.
Json as_answer_fields(Fields& fields) {
  Json made = Json::object();
  for (const char* name :
       {"temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "stream", "cache_salt"}) {
    if (const Json* value = fields.find(name)) made[name] = *value;
  }
  if (const Json* stop = fields.find("stop_sequences")) {
    if (!stop->is_array()) throw fields.problem("stop_sequences", "an array of texts is needed");
    made["stop"] = *stop;
  }
  return made;
}

}  // namespace

AnswerRequest read_message_request(const Json& body, const ServedModel& model, const EngineFacts& facts) {
  Fields fields(body);
  fields.ignore({"model"});  // Service has read it
  AnswerRequest request;
  request.format = std::make_unique<MessageFormat>();
  const Json answering = as_answer_fields(fields);
  Fields shared(answering);
  request.fields = read_answer_fields(shared, model, facts);
  const auto most = fields.integer("max_tokens", 1, INT32_MAX);
  if (!most) throw fields.problem("max_tokens", "this field is needed");
  request.fields.max_tokens = most;
  if (const Json* thinking = fields.find("thinking")) {
    if (Fields(*thinking, "thinking.").text("type") != "disabled")
      throw fields.problem("thinking", "this field changes the answer and is not supported");
  }
  fields.ignore({"metadata", "service_tier", "container"});
  const Json chat = as_chat(fields);
  Fields chat_fields(chat);
  const ToolFields tools = read_tools(chat_fields);
  use_tools(tools, model, request.fields);
  const std::vector<int64_t> prompt = encode_messages(chat_fields, tools.tools, model);
  request.prompt_tokens = std::ssize(prompt);
  request.max_new_tokens.push_back(answer_room(request.prompt_tokens, most, *most, facts, "messages"));
  request.plans.push_back({.index = 0, .prompt = prompt});
  request.unknown = fields.unknown();
  return request;
}

int64_t count_message_tokens(const Json& body, const ServedModel& model) {
  Fields fields(body);
  fields.ignore({"model"});  // Service has read it
  const Json chat = as_chat(fields);
  Fields chat_fields(chat);
  const Json tools = read_tools(chat_fields).tools;
  return std::ssize(encode_messages(chat_fields, tools, model));
}

}  // namespace tessera::serving

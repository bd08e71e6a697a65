#include "tessera/text/chat_template/message_form.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/text/chat_template/json_text.h"

namespace tessera::text {
namespace {

using Json = nlohmann::ordered_json;
using Arguments = MessageForm::Arguments;

// Names of a message's reasoning. Where a message has several of them, the first one counts.
constexpr const char* kReasoning[] = {"reasoning_content", "thinking", "reasoning"};

const Json* find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

bool has_calls(const Json& message) {
  const Json* calls = message.is_object() ? find(message, "tool_calls") : nullptr;
  return calls != nullptr && calls->is_array() && !calls->empty();
}

std::string json_text(const Json& value) {
  jinja::Runtime runtime("the arguments of a call", std::nullopt);
  return jinja::to_json(runtime, jinja::from_json(runtime, value, {}), {}).bytes;
}

Json object_of(const std::string& text) {
  if (text.empty()) return Json::object();
  Json parsed = Json::parse(text, nullptr, false);
  if (!parsed.is_discarded()) return parsed;
  throw Error(
      ErrorKind::Data, "TOOL-ARGUMENTS",
      "the arguments of a tool call are text that is not valid JSON, but the chat template needs an object")
      .got(text.substr(0, 60));
}

void shape_calls(Json& calls, Arguments form) {
  for (Json& call : calls) {
    if (!call.is_object()) continue;
    Json& target = call.contains("function") && call["function"].is_object() ? call["function"] : call;
    const auto found = target.find("arguments");
    if (found == target.end()) continue;
    if (form == Arguments::Object && found->is_string()) *found = object_of(found->get<std::string>());
    if (form == Arguments::Text && found->is_object()) *found = json_text(*found);
  }
}

Json shape_message(const Json& message, const MessageForm& form) {
  if (!message.is_object()) return message;
  const Json* reasoning = nullptr;
  for (const char* name : kReasoning) reasoning = reasoning != nullptr ? reasoning : find(message, name);
  Json out = Json::object();
  if (reasoning != nullptr) out["thinking"] = *reasoning;
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) out[key] = value;
  }
  if (reasoning != nullptr) out["reasoning_content"] = *reasoning;
  if (has_calls(message)) {
    shape_calls(out["tool_calls"], form.arguments);
    if (form.null_content && !out.contains("content")) out["content"] = nullptr;
  }
  return out;
}

constexpr const char* kWord = "Oslo";  // stands in kProbeArguments alone

}  // namespace

Json probe_messages(const Json& content, const Json& arguments, bool in_function) {
  const Json function = {{"name", "weather"}, {"arguments", arguments}};
  // Some templates insist on nine letters and digits.
  Json call = {{"id", "call00001"}, {"type", "function"}};
  if (in_function) call["function"] = function;
  if (!in_function) call.update(function);
  Json answer = {{"role", "assistant"}};
  if (!content.is_discarded()) answer["content"] = content;
  answer["tool_calls"] = Json::array({call});
  return Json::array({{{"role", "user"}, {"content", "question"}}, answer});
}

Json probe_tools() {
  const Json city = {{"type", "string"}, {"description", "name"}};
  const Json parameters = {
      {"type", "object"}, {"properties", {{"city", city}}}, {"required", Json::array({"city"})}};
  const Json function = {{"name", "weather"}, {"description", "tells it"}, {"parameters", parameters}};
  return Json::array({{{"type", "function"}, {"function", function}}});
}

bool has_tool_calls(const Json& messages) {
  return messages.is_array() && std::ranges::any_of(messages, has_calls);
}

MessageForm find_message_form(
    const std::function<std::optional<std::string>(const Json&, const Json&)>& render) {
  const auto writes = [](const std::optional<std::string>& text, const char* what) {
    return text && text->find(what) != std::string::npos;
  };
  const Json contents[] = {Json(Json::value_t::discarded), Json(""), Json(nullptr)};
  for (const Json& content : contents) {
    for (const bool in_function : {true, false}) {
      for (const Json& tools : {probe_tools(), Json(nullptr)}) {
        const auto text = render(probe_messages(content, kProbeArguments, in_function), tools);
        const auto object = render(probe_messages(content, Json::parse(kProbeArguments), in_function), tools);
        if (!writes(text, kWord) && !writes(object, kWord)) continue;
        const Arguments arguments = !writes(object, kWord)          ? Arguments::Text
                                    : writes(text, kProbeArguments) ? Arguments::AsGiven
                                                                    : Arguments::Object;
        return {arguments, content.is_null()};
      }
    }
  }
  return {};
}

Json shape_messages(const Json& messages, const MessageForm& form) {
  if (!messages.is_array()) return messages;
  Json out = Json::array();
  for (const Json& message : messages) out.push_back(shape_message(message, form));
  return out;
}

bool is_reasoning_field(const std::string& field) {
  return std::ranges::find(kReasoning, field) != std::end(kReasoning);
}

}  // namespace tessera::text

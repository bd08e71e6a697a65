#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/text/chat_template/message_form.h"
#include "tessera/text/tool_calls/tool_call_stream.h"

namespace tessera::text {
namespace {

using Json = nlohmann::ordered_json;

std::optional<std::string> render(const ChatTemplate& chat_template, const Json& messages,
                                  RenderOptions options, bool begins_answer) {
  options.add_generation_prompt = begins_answer;
  try {
    return chat_template.render(messages, probe_tools(), options).text();
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Returns whether the format finds the call of the probe in the text, and no other.
bool reads_probe(const ToolFormat& format, const std::string& text) {
  const Json function = probe_tools().at(0).at("function");
  auto reading = std::make_shared<CallReading>();
  reading->format = &format;
  reading->tools[function.at("name")] = function.at("parameters");
  ToolCallStream stream(reading);
  std::vector<CallDelta> calls = stream.add(text).calls;
  std::ranges::move(stream.finish().calls, std::back_inserter(calls));
  return calls.size() == 1 && calls[0].name == function.at("name") &&
         Json::parse(calls[0].arguments) == Json::parse(kProbeArguments);
}

}  // namespace

const ToolFormat* recognise_tool_format(const ChatTemplate& chat_template, const RenderOptions& options) {
  for (const Json& content : {Json(Json::value_t::discarded), Json("")}) {
    const Json messages = probe_messages(content, Json::parse(kProbeArguments), /*in_function=*/true);
    const auto whole = render(chat_template, messages, options, false);
    if (!whole) continue;
    // The answer is what stands behind the prompt. Where the template begins an answer otherwise than it
    // writes one, what stands behind the question has the call, too.
    const auto prompt = render(chat_template, Json::array({messages.at(0)}), options, true);
    const size_t question = whole->rfind(messages.at(0).at("content").get<std::string>());
    const size_t begin = prompt && whole->starts_with(*prompt) ? prompt->size()
                         : question != std::string::npos       ? question
                                                               : 0;
    for (const ToolFormat& format : tool_formats()) {
      if (reads_probe(format, whole->substr(begin))) return &format;
    }
  }
  return nullptr;
}

}  // namespace tessera::text

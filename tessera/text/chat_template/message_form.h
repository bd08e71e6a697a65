// Brings the messages of a conversation into the form that a chat template takes.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace tessera::text {

// The form in which a template takes messages with tool calls.
struct MessageForm {
  // AsGiven: the arguments of a call may be an object or JSON text. Object, Text: they must be that.
  enum class Arguments { AsGiven, Object, Text };
  Arguments arguments = Arguments::AsGiven;
  // The template writes calls only of messages whose content is null, not of those without content.
  bool null_content = false;
};

// Returns a conversation to try a template with: a question, and as its answer a call of the function
// "weather" of probe_tools() with the arguments kProbeArguments, as they are or as text. `content` is that of
// the answer, or a discarded value for none. With `in_function` the call is as the OpenAI API has it, else it
// is without the object "function".
nlohmann::ordered_json probe_messages(const nlohmann::ordered_json& content,
                                      const nlohmann::ordered_json& arguments, bool in_function);
nlohmann::ordered_json probe_tools();
inline constexpr const char* kProbeArguments = R"({"city": "Oslo"})";

bool has_tool_calls(const nlohmann::ordered_json& messages);

// Finds the form by rendering a conversation with a call in each of them. `render` returns nothing where the
// template refuses a conversation. Text stays text where the template writes it unchanged.
MessageForm find_message_form(
    const std::function<std::optional<std::string>(const nlohmann::ordered_json& messages,
                                                   const nlohmann::ordered_json& tools)>& render);

// Returns the messages as the template takes them. Keys that are null are left out, and the reasoning of a
// message stands under each name that templates read, as in Transformers. Throws Error(Data) without a place
// for arguments that are no JSON where they must be an object. Arguments that are an empty text are an empty
// object there.
nlohmann::ordered_json shape_messages(const nlohmann::ordered_json& messages, const MessageForm& form);

// Returns whether `field` is one of the names that a message's reasoning has.
bool is_reasoning_field(const std::string& field);

}  // namespace tessera::text

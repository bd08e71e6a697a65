#include "tessera/data/prompts/conversation.h"

#include <algorithm>
#include <cctype>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/data/prompts/fields.h"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;

// The text of content given as a list of {type: text, text} parts.
std::string join_parts(const Json& parts) {
  std::string text;
  for (const Json& part : parts) {
    if (const auto* plain = part.get_ptr<const std::string*>()) {
      text += *plain;
      continue;
    }
    if (!part.is_object() || part.value("type", Json("text")) != "text") {
      throw Error(ErrorKind::Data, "CONTENT-PART", "a message's content holds a part that is no text")
          .got(part.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80))
          .need("parts of type text");
    }
    text += required_text(part, "text");
  }
  return text;
}

// Templates print arguments with tojson: a string that holds JSON becomes the object it stands for.
void parse_arguments(Json& calls) {
  if (!calls.is_array()) return;
  for (Json& call : calls) {
    if (!call.is_object()) continue;
    Json& target = call.contains("function") && call["function"].is_object() ? call["function"] : call;
    const auto found = target.find("arguments");
    if (found == target.end() || !found->is_string()) continue;
    Json parsed = Json::parse(found->get_ref<const std::string&>(), nullptr, false);
    if (parsed.is_object()) *found = std::move(parsed);
  }
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

}  // namespace

bool reads_as(std::string_view a, std::string_view b) {
  a = trim(a);
  b = trim(b);
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

ConversationReader::ConversationReader(const config::DatasetConfig& dataset)
    : field_messages_(dataset.field_messages),
      field_system_(dataset.field_system),
      field_training_(dataset.message_field_training),
      properties_(dataset.message_property_mappings),
      roles_{{"human", "user"},          {"user", "user"},     {"gpt", "assistant"},
             {"assistant", "assistant"}, {"system", "system"}, {"tool", "tool"}},
      drop_system_message_(dataset.drop_system_message) {
  const bool sharegpt = dataset.type == "sharegpt";
  if (sharegpt && field_messages_ == "messages") field_messages_ = "conversations";
  properties_.try_emplace("role", sharegpt ? "from" : "role");
  properties_.try_emplace("content", sharegpt ? "value" : "content");
  for (const auto& [role, names] : dataset.roles) {
    roles_.insert_or_assign(role, role);
    for (const std::string& name : names) roles_.insert_or_assign(name, role);
  }
}

const std::string& ConversationReader::role_of(const std::string& name) const {
  const auto found = roles_.find(name);
  if (found != roles_.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [key, role] : roles_) known.push_back(key);
  throw Error(ErrorKind::Data, "UNKNOWN-ROLE", "unknown role")
      .got("'" + name + "'")
      .need("one of " + join(known, ", "))
      .hint("map it in the dataset's roles:, as in roles: {assistant: [" + name + "]}");
}

Json ConversationReader::read_message(const Json& message, Turn& turn) const {
  if (!message.is_object()) {
    throw Error(ErrorKind::Data, "FIELD-TYPE", "is not an object").got(message.type_name()).need("object");
  }
  Json out = Json::object();
  turn.role = role_of(required_text(message, properties_.at("role")));
  out["role"] = turn.role;

  const std::string& content = properties_.at("content");
  const bool calls = find_field(message, "tool_calls") != nullptr;
  const Json* value = find_field(message, content);
  if (value != nullptr && value->is_array()) {
    out["content"] = join_parts(*value);
  } else if (value != nullptr || !calls) {
    out["content"] = required_text(message, content);
  } else {
    out["content"] = nullptr;
  }
  for (const auto& [name, column] : properties_) {
    if (out.contains(name)) continue;
    if (const Json* mapped = find_field(message, column)) out[name] = *mapped;
  }
  for (const auto& [key, field] : message.items()) {
    const bool taken = key == properties_.at("role") || key == content || key == field_training_;
    if (!taken && !out.contains(key) && !field.is_null()) out[key] = field;
  }
  for (const char* key : {"tool_calls", "reasoning_content", "thinking"})
    turn.text_only = turn.text_only && !out.contains(key);
  if (const auto* text = out["content"].get_ptr<const std::string*>())
    turn.content_is_role = reads_as(*text, turn.role);
  if (calls) parse_arguments(out["tool_calls"]);

  if (field_training_.empty()) return out;
  if (const Json* train = find_field(message, field_training_)) {
    if (!train->is_boolean()) {
      throw Error(ErrorKind::Data, "FIELD-TYPE", "field '" + field_training_ + "' is not a boolean")
          .got(train->type_name())
          .need("true, false or null");
    }
    turn.train = train->get<bool>();
  }
  return out;
}

Conversation ConversationReader::read(const Json& record) const {
  const Json& messages = required_array(record, field_messages_);
  Conversation conversation;
  conversation.messages = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    Turn turn;
    try {
      conversation.messages.push_back(read_message(messages[i], turn));
    } catch (Error& error) {
      error.within(field_messages_ + "[" + std::to_string(i) + "]");
      throw;
    }
    conversation.turns.push_back(std::move(turn));
  }
  if (conversation.turns.front().role != "system") {
    if (const Json* system = find_field(record, field_system_);
        system != nullptr && system->is_string() && !system->get_ref<const std::string&>().empty()) {
      conversation.messages.insert(conversation.messages.begin(),
                                   Json{{"role", "system"}, {"content", *system}});
      conversation.turns.insert(conversation.turns.begin(), Turn{.role = "system"});
    }
  }
  if (drop_system_message_ && conversation.turns.front().role == "system") {
    conversation.messages.erase(conversation.messages.begin());
    conversation.turns.erase(conversation.turns.begin());
  }
  if (conversation.turns.empty()) {
    throw Error(ErrorKind::Data, "EMPTY-FIELD",
                "field '" + field_messages_ + "' holds a system message alone");
  }
  if (const Json* tools = find_field(record, "tools"); tools != nullptr && tools->is_array()) {
    conversation.tools = *tools;
  }
  return conversation;
}

}  // namespace tessera::data

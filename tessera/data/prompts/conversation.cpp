#include "tessera/data/prompts/conversation.h"

#include <algorithm>
#include <cctype>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/core/utf8.h"
#include "tessera/data/prompts/fields.h"
#include "tessera/io/json_values.h"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;

Error type_error(const std::string& field, const char* is_not, const Json& value, const char* need) {
  return Error(ErrorKind::Data, "FIELD-TYPE", "field '" + field + "' is not " + is_not)
      .got(value.type_name())
      .need(need);
}

// Returns a list: `value` itself, or the list in its JSON text, which is parsed into `parsed`.
const Json& list_of(const Json& value, const std::string& field, Json& parsed) {
  const Json* list = &value;
  if (const auto* text = value.get_ptr<const std::string*>()) {
    parsed = Json::parse(*text, nullptr, false);
    if (parsed.is_discarded()) {
      throw Error(ErrorKind::Data, "FIELD-TYPE", "field '" + field + "' is text, but not valid JSON")
          .got(text->substr(0, 40))
          .need("a list, or a list as JSON text");
    }
    list = &parsed;
  }
  if (!list->is_array()) throw type_error(field, "a list", *list, "array");
  return *list;
}

const std::string& part_text(const Json& part) {
  for (const char* key : {"text", "content", "value"}) {
    const Json* value = find_field(part, key);
    if (value != nullptr && value->is_string()) return value->get_ref<const std::string&>();
  }
  return required_text(part, "text");
}

// Returns whether a part of content says that it is trained; nothing if it does not say.
std::optional<bool> part_training(const Json& part) {
  if (const Json* train = find_field(part, "train")) {
    if (!train->is_boolean()) throw type_error("train", "a boolean", *train, "true, false or null");
    return train->get<bool>();
  }
  if (const Json* weight = find_field(part, "weight")) {
    if (!weight->is_number()) throw type_error("weight", "a number", *weight, "0 or 1");
    return weight->get<double>() != 0.0;
  }
  return std::nullopt;
}

// Joins content that is given as a list of {type: text, text} parts. `spans` is set if a part says whether it
// is trained.
std::string join_parts(const Json& parts, TrainSpans& spans) {
  std::string text;
  std::vector<TrainSpan> found;
  bool is_said = false;
  for (const Json& part : parts) {
    const auto begin = static_cast<int64_t>(text.size());
    std::optional<bool> train;
    if (const auto* plain = part.get_ptr<const std::string*>()) {
      text += *plain;
    } else if (!part.is_object() || part.value("type", Json("text")) != "text") {
      throw Error(ErrorKind::Data, "CONTENT-PART", "a message's content has a part that is not text")
          .got(part.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80))
          .need("parts of type text");
    } else {
      text += part_text(part);
      train = part_training(part);
      is_said = is_said || train.has_value();
    }
    found.push_back({begin, static_cast<int64_t>(text.size()), train.value_or(true)});
  }
  if (is_said) spans = std::move(found);
  return text;
}

// Converts a training detail, whose offsets count characters and whose end offset is inclusive, to byte spans
// of `text`.
std::vector<TrainSpan> detail_spans(const Json& detail, const std::string& field, const std::string& text) {
  if (!detail.is_array()) throw type_error(field, "a list", detail, "array");
  std::vector<int64_t> starts;
  for (size_t at = 0; at < text.size(); at += utf8_step(text, at)) starts.push_back(static_cast<int64_t>(at));
  starts.push_back(static_cast<int64_t>(text.size()));
  const auto length = static_cast<int64_t>(starts.size()) - 1;
  std::vector<TrainSpan> spans;
  for (const Json& item : detail) {
    const auto number = [&](const char* key) {
      const auto found = item.is_object() ? item.find(key) : item.end();
      const bool is_there = item.is_object() && found != item.end();
      const int64_t value = is_there ? io::integer_of(*found).value_or(-1) : -1;
      if (value < 0) {
        throw Error(ErrorKind::Data, "TRAINING-DETAIL", "an element of '" + field + "' has no '" + key + "'")
            .got(item.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80))
            .need("{begin_offset, end_offset, train}, with offsets of characters from 0");
      }
      return value;
    };
    const int64_t begin = number("begin_offset"), end = number("end_offset");
    const Json* train = find_field(item, "train");
    if (train == nullptr || !train->is_boolean() || begin > end) {
      throw Error(ErrorKind::Data, "TRAINING-DETAIL",
                  "an element of '" + field + "' is not a range with a train flag")
          .got(item.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80))
          .need("begin_offset <= end_offset, and train: true or false");
    }
    spans.push_back(
        {starts[std::min(begin, length)], starts[std::min(end, length - 1) + 1], train->get<bool>()});
  }
  return spans;
}

std::string strip(const std::string& text, bool right) {
  return std::string(strip_spaces(text, true, right));
}

// The text between two tags, and the text behind the second one.
struct Tagged {
  std::string inside, behind;
};
std::optional<Tagged> between(const std::string& text, const char* open, const char* close) {
  const size_t begin = text.find(open), end = text.find(close);
  if (begin == std::string::npos || end == std::string::npos) return std::nullopt;
  const size_t inner = begin + std::string_view(open).size();
  return Tagged{inner <= end ? text.substr(inner, end - inner) : "",
                text.substr(end + std::string_view(close).size())};
}

// Cuts reasoning that stands in the content out of it, and returns it; nothing if there is none.
std::optional<std::string> split_reasoning(std::string& content) {
  constexpr std::pair<const char*, const char*> kThinking[] = {
      {"<think>", "</think>"},
      {"<reasoning>", "</reasoning>"},
      {"<|begin_of_thought|>", "<|end_of_thought|>"}};
  for (const auto& [open, close] : kThinking) {
    const auto thought = between(content, open, close);
    if (!thought) continue;
    content = strip(thought->behind, false);
    if (const auto answer = between(content, "<|begin_of_solution|>", "<|end_of_solution|>"))
      content = strip(answer->inside, true);
    return strip(thought->inside, true);
  }
  return std::nullopt;
}

// Parses parameters of functions that are given as JSON text.
void parse_parameters(Json& tools) {
  for (Json& tool : tools) {
    if (!tool.is_object() || !tool.contains("function") || !tool["function"].is_object()) continue;
    Json& function = tool["function"];
    const auto found = function.find("parameters");
    if (found == function.end() || !found->is_string()) continue;
    Json parsed = Json::parse(found->get_ref<const std::string&>(), nullptr, false);
    if (parsed.is_discarded()) {
      throw Error(ErrorKind::Data, "FIELD-TYPE", "the parameters of a tool are text, but not valid JSON")
          .got(found->get_ref<const std::string&>().substr(0, 40))
          .need("a JSON schema");
    }
    *found = std::move(parsed);
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
      field_training_detail_(dataset.message_field_training_detail),
      field_tools_(dataset.field_tools),
      thinking_key_(dataset.template_thinking_key),
      properties_(dataset.message_property_mappings),
      roles_{{"human", "user"},          {"user", "user"},     {"gpt", "assistant"},
             {"assistant", "assistant"}, {"system", "system"}, {"tool", "tool"}},
      drop_system_message_(dataset.drop_system_message),
      split_thinking_(dataset.split_thinking) {
  // Some templates know these roles as well.
  for (const char* role : {"developer", "function", "ipython", "observation", "environment"})
    roles_[role] = role;
  const bool sharegpt = dataset.type == "sharegpt";
  if (sharegpt && field_messages_ == "messages") field_messages_ = "conversations";
  properties_.try_emplace("role", sharegpt ? "from" : "role");
  properties_.try_emplace("content", sharegpt ? "value" : "content");
  if (!thinking_key_.empty() && !dataset.field_thinking.empty())
    properties_.try_emplace(thinking_key_, dataset.field_thinking);
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
      .hint("map it in the dataset entry: roles: {assistant: [" + name + "]}");
}

Json ConversationReader::read_message(const Json& message, Turn& turn) const {
  if (!message.is_object()) {
    throw Error(ErrorKind::Data, "FIELD-TYPE", "is not an object").got(message.type_name()).need("object");
  }
  Json out = Json::object();
  turn.role = role_of(required_text(message, properties_.at("role")));
  out["role"] = turn.role;

  const std::string& content = properties_.at("content");
  const bool calls = find_field(message, properties_.contains("tool_calls") ? properties_.at("tool_calls")
                                                                            : "tool_calls") != nullptr;
  const Json* value = find_field(message, content);
  if (value != nullptr && value->is_array()) {
    out["content"] = join_parts(*value, turn.content_spans);
  } else if (value != nullptr || !calls) {
    out["content"] = required_text(message, content);
  }
  for (const auto& [name, column] : properties_) {
    if (out.contains(name)) continue;
    if (const Json* mapped = find_field(message, column)) out[name] = *mapped;
  }
  for (const auto& [key, field] : message.items()) {
    // The content comes from its own column alone.
    const bool taken =
        key == "content" || key == field_training_ || key == field_training_detail_ ||
        std::ranges::any_of(properties_, [&](const auto& property) { return property.second == key; });
    if (!taken && !out.contains(key) && !field.is_null()) out[key] = field;
  }
  if (out.contains(thinking_key_) && out[thinking_key_].is_array())
    out[thinking_key_] = join_parts(Json(out[thinking_key_]), turn.reasoning_spans);
  if (split_thinking_ && turn.role == "assistant" && value != nullptr && value->is_string()) {
    auto& text = out["content"].get_ref<std::string&>();
    if (auto reasoning = split_reasoning(text)) out[thinking_key_] = std::move(*reasoning);
  }
  for (const char* key : {"tool_calls", "reasoning_content", "thinking", "reasoning", thinking_key_.c_str()})
    turn.text_only = turn.text_only && !out.contains(key);
  if (out.contains("content")) {
    const auto* text = out["content"].get_ptr<const std::string*>();
    turn.content_is_role = reads_as(*text, turn.role);
    const Json* detail =
        field_training_detail_.empty() ? nullptr : find_field(message, field_training_detail_);
    if (detail != nullptr && !turn.content_spans)
      turn.content_spans = detail_spans(*detail, field_training_detail_, *text);
  }
  read_training(message, turn);
  return out;
}

void ConversationReader::read_training(const Json& message, Turn& turn) const {
  const Json* train = field_training_.empty() ? nullptr : find_field(message, field_training_);
  if (train == nullptr) return;
  if (!train->is_boolean()) {
    throw Error(ErrorKind::Data, "FIELD-TYPE", "field '" + field_training_ + "' is not a boolean")
        .got(train->type_name())
        .need("true, false or null");
  }
  turn.train = train->get<bool>();
}

Conversation ConversationReader::read(const Json& record) const {
  Json parsed;
  const Json& messages = list_of(required_value(record, field_messages_), field_messages_, parsed);
  if (messages.empty()) {
    throw Error(ErrorKind::Data, "EMPTY-FIELD", "field '" + field_messages_ + "' is an empty list");
  }
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
    if (const Json* system = find_field(record, field_system_); system != nullptr && system->is_string()) {
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
                "field '" + field_messages_ + "' contains only a system message");
  }
  const Json* tools = find_field(record, field_tools_);
  if (tools != nullptr && tools != &record[field_messages_]) {
    const bool is_blank = tools->is_string() && tools->get_ref<const std::string&>().empty();
    Json parsed_tools;
    if (!is_blank) conversation.tools = list_of(*tools, field_tools_, parsed_tools);
    if (conversation.tools.is_array()) parse_parameters(conversation.tools);
    if (conversation.tools.is_array() && conversation.tools.empty()) conversation.tools = nullptr;
  }
  return conversation;
}

}  // namespace tessera::data

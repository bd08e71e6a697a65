// Conversations of a dataset, brought into the form that chat templates take.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/config/data_config.h"

namespace tessera::data {

// Half-open byte range of a message's content, or of its reasoning, that is trained or masked.
struct TrainSpan {
  int64_t begin = 0, end = 0;
  bool train = true;
};
using TrainSpans = std::optional<std::vector<TrainSpan>>;

struct Turn {
  std::string role;                // role after the roles map: user, assistant, ...
  std::optional<bool> train = {};  // what the message's own training field says
  bool text_only = true;           // the message has no tool calls, reasoning or the like
  bool content_is_role = false;    // the content reads as the role does
  // Set if only parts of the message are trained: bytes that no span trains are masked. The spans come from
  // the message's training detail, or from content in parts with train or weight.
  TrainSpans content_spans = {}, reasoning_spans = {};

  bool has_spans() const { return content_spans || reasoning_spans; }
};

struct Conversation {
  nlohmann::ordered_json messages;  // array of {role, content, ...}
  nlohmann::ordered_json tools;     // array, or null
  std::vector<Turn> turns;          // one for each message
};

// Returns whether two texts are the same but for case and surrounding space.
bool reads_as(std::string_view a, std::string_view b);

// Reads an entry's records as conversations.
class ConversationReader {
 public:
  // Type sharegpt names its fields conversations/from/value by default.
  explicit ConversationReader(const config::DatasetConfig& dataset);

  // Reads a record. Messages and tools may be JSON text. Throws Error(Data) without a place for a list that
  // is missing or empty, a message that is no object, an unknown role, content that is missing, no text, or
  // null (but beside tool calls), and a training detail that is malformed.
  Conversation read(const nlohmann::ordered_json& record) const;
  // Returns the role that `name` stands for. Throws Error(Data) for an unknown one.
  const std::string& role_of(const std::string& name) const;
  bool knows_role(const std::string& name) const { return roles_.contains(name); }
  // The column of the messages.
  const std::string& field_messages() const { return field_messages_; }
  // The key under which the template finds a message's reasoning.
  const std::string& thinking_key() const { return thinking_key_; }

 private:
  nlohmann::ordered_json read_message(const nlohmann::ordered_json& message, Turn& turn) const;

  void read_training(const nlohmann::ordered_json& message, Turn& turn) const;

  std::string field_messages_, field_system_, field_training_, field_training_detail_, field_tools_;
  std::string thinking_key_;
  std::map<std::string, std::string> properties_;  // template's name -> column
  std::map<std::string, std::string> roles_;       // name in the data -> role
  bool drop_system_message_ = false, split_thinking_ = false;
};

}  // namespace tessera::data

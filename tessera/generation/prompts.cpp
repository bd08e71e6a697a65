#include "tessera/generation/prompts.h"

#include <algorithm>
#include <iostream>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/data/readers/parse_record.h"
#include "tessera/data/readers/record_reader.h"
#include "tessera/text/chat_encoding.h"

namespace tessera::generation {
namespace {

constexpr char kStandardInput[] = "standard input";

using nlohmann::ordered_json;

bool is_conversation(const ordered_json& messages) {
  if (!messages.is_array() || messages.empty()) return false;
  for (const ordered_json& message : messages) {
    if (!message.is_object() || !message.contains("role") || !message.at("role").is_string()) return false;
  }
  return true;
}

// The columns in one of which a record holds what is asked.
constexpr std::string_view kAsking[] = {"prompt", "messages", "conversations", "turns"};

// Returns the messages of a ShareGPT conversation up to its last question; null where it is none.
ordered_json messages_of(const ordered_json& conversation) {
  constexpr std::pair<std::string_view, std::string_view> kRoles[] = {{"human", "user"},
                                                                      {"user", "user"},
                                                                      {"gpt", "assistant"},
                                                                      {"assistant", "assistant"},
                                                                      {"system", "system"}};
  auto messages = ordered_json::array();
  if (!conversation.is_array()) return nullptr;
  for (const ordered_json& turn : conversation) {
    if (!turn.is_object()) return nullptr;
    const auto from = turn.find("from"), value = turn.find("value");
    if (from == turn.end() || !from->is_string() || value == turn.end() || !value->is_string())
      return nullptr;
    const auto role = std::ranges::find(kRoles, from->get<std::string>(),
                                        &std::pair<std::string_view, std::string_view>::first);
    if (role == std::end(kRoles)) return nullptr;
    messages.push_back(message(std::string(role->second), value->get<std::string>()));
  }
  while (!messages.empty() && messages.back()["role"] == "assistant") messages.erase(messages.size() - 1);
  return messages.empty() ? ordered_json() : messages;
}

bool are_texts(const ordered_json& turns) {
  return turns.is_array() && !turns.empty() &&
         std::ranges::all_of(turns, [](const ordered_json& turn) { return turn.is_string(); });
}

// Returns what the column asks; nothing if it holds no such thing.
std::optional<Prompt> prompt_in(const std::string& column, const ordered_json& value) {
  Prompt prompt;
  if (column == "prompt" && value.is_string()) {
    prompt.text = value.get<std::string>();
    return prompt;
  }
  if (column == "messages" && is_conversation(value)) prompt.messages = value;
  if (column == "conversations") prompt.messages = messages_of(value);
  if (column == "turns" && are_texts(value)) {
    prompt.messages = ordered_json::array({message("user", value.front().get<std::string>())});
    for (size_t i = 1; i < value.size(); ++i) prompt.later_turns.push_back(value[i].get<std::string>());
  }
  if (prompt.messages.is_null()) return std::nullopt;
  const auto content = prompt.messages.back().find("content");
  if (content != prompt.messages.back().end() && content->is_string())
    prompt.text = content->get<std::string>();
  return prompt;
}

Prompt read_prompt(const ordered_json& object, const data::RawRecord& record, const std::string& path) {
  std::optional<Prompt> found;
  int64_t count = 0;
  for (const std::string_view name : kAsking) {
    const auto column = object.find(std::string(name));
    if (column == object.end()) continue;
    auto prompt = prompt_in(std::string(name), *column);
    if (!prompt) continue;
    found = std::move(prompt);
    ++count;
  }
  if (count != 1) {
    throw Error(ErrorKind::Data, "PROMPTS",
                count > 1 ? "the record has more than one kind of prompt" : "the record has no prompt")
        .at(path, record.line, record.column)
        .need(
            "an object with one of: the string \"prompt\"; \"messages\", an array of objects with a role; "
            "\"conversations\", an array of objects with from (human, gpt or system) and value; \"turns\", "
            "an "
            "array of strings");
  }
  found->place = path + ":" + std::to_string(record.line);
  for (const auto& item : object.items()) {
    const bool asks = std::ranges::find(kAsking, item.key()) != std::end(kAsking);
    if (item.key() == "tools") {
      found->tools = item.value();
    } else if (!asks) {
      found->more[item.key()] = item.value();
    }
  }
  return *std::move(found);
}

}  // namespace

std::vector<Prompt> read_prompt_file(const std::string& path) {
  std::vector<Prompt> prompts;
  data::RawRecord record;
  const auto add = [&](const std::string& name) {
    prompts.push_back(read_prompt(data::parse_record(record, name), record, name));
  };
  if (path == "-") {
    record.line = 0;
    while (read_input_line(record.text)) {
      ++record.line;
      if (record.text.find_first_not_of(" \t") != std::string::npos) add(kStandardInput);
    }
  } else {
    const auto reader = data::open_records(
        path, path.ends_with(".json") ? data::FileFormat::Json : data::FileFormat::JsonLines);
    while (reader->next(record)) add(path);
  }
  return prompts;
}

Prompt next_turn(Prompt prompt, const std::string& answer) {
  prompt.messages.push_back(message("assistant", answer));
  prompt.text = prompt.later_turns.front();
  prompt.messages.push_back(message("user", prompt.text));
  prompt.later_turns.erase(prompt.later_turns.begin());
  return prompt;
}

std::vector<Prompt> read_prompt_lines() {
  std::vector<Prompt> prompts;
  int64_t number = 0;
  for (std::string line; read_input_line(line);) {
    ++number;
    if (line.empty()) continue;
    prompts.push_back(
        {.text = std::move(line), .place = std::string(kStandardInput) + ":" + std::to_string(number)});
  }
  return prompts;
}

bool read_input_line(std::string& line) {
  line.clear();
  int character = std::cin.get();
  if (character == std::char_traits<char>::eof()) return false;
  for (; character != '\n' && character != std::char_traits<char>::eof(); character = std::cin.get()) {
    line += static_cast<char>(character);
    if (static_cast<int64_t>(line.size()) > data::kMaxRecordBytes) {
      throw Error(ErrorKind::Data, "LINE-TOO-LONG", "the line is too long")
          .in(kStandardInput)
          .need("at most " + format_bytes(data::kMaxRecordBytes));
    }
  }
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

ordered_json message(const std::string& role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

std::vector<int64_t> PromptEncoder::encode(const Prompt& prompt) const {
  if (!prompt.ids.empty()) return prompt.ids;
  std::vector<int32_t> ids;
  if (!is_chat && prompt.messages.is_null()) {
    ids = tokenizer.encode(prompt.text, {.parse_special = true, .add_special_tokens = true});
  } else {
    auto messages = ordered_json::array();
    const bool has_system = !prompt.messages.is_null() && prompt.messages[0]["role"] == "system";
    if (!system.empty() && !has_system) messages.push_back(message("system", system));
    if (prompt.messages.is_null()) messages.push_back(message("user", prompt.text));
    for (const ordered_json& given : prompt.messages) messages.push_back(given);
    const auto chat = chat_template->render(messages, prompt.tools, text::render_options(tokenizer, true));
    ids = text::encode_chat(tokenizer, chat).ids;
  }
  return {ids.begin(), ids.end()};
}

}  // namespace tessera::generation

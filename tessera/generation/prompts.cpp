#include "tessera/generation/prompts.h"

#include <iostream>
#include <map>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
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

Prompt read_prompt(const ordered_json& object, const data::RawRecord& record, const std::string& path) {
  const auto prompt = object.find("prompt"), messages = object.find("messages");
  const bool has_text = prompt != object.end() && prompt->is_string();
  const bool has_messages = messages != object.end() && is_conversation(*messages);
  if (has_text == has_messages) {
    throw Error(ErrorKind::Data, "PROMPTS",
                has_text ? "the record has a prompt and messages" : "the record has no prompt")
        .at(path, record.line, record.column)
        .need("an object with the string \"prompt\", or with \"messages\", an array of objects with a role");
  }
  const std::string place = path + ":" + std::to_string(record.line);
  if (has_text) return {prompt->get<std::string>(), nullptr, nullptr, place};
  const ordered_json& last = messages->back();
  const auto content = last.find("content");
  const bool is_text = content != last.end() && content->is_string();
  return {is_text ? content->get<std::string>() : std::string(), *messages,
          object.value("tools", ordered_json()), place};
}

}  // namespace

std::vector<Prompt> read_prompt_file(const std::string& path) {
  std::vector<Prompt> prompts;
  data::RawRecord record;
  std::map<std::string, int64_t> unknown;  // keys without effect -> line of their first occurrence
  const auto add = [&](const std::string& name) {
    const ordered_json object = data::parse_record(record, name);
    prompts.push_back(read_prompt(object, record, name));
    for (const auto& item : object.items()) {
      const std::string& key = item.key();
      if (key != "prompt" && key != "messages" && key != "tools") unknown.try_emplace(key, record.line);
    }
  };
  if (path == "-") {
    record.line = 0;
    while (read_input_line(record.text)) {
      ++record.line;
      if (record.text.find_first_not_of(" \t") != std::string::npos) add(kStandardInput);
    }
  } else {
    const auto reader = data::open_json_lines(path);
    while (reader->next(record)) add(path);
  }
  if (!unknown.empty()) {
    std::vector<std::string> names;
    for (const auto& [key, line] : unknown) names.push_back(key + " (line " + std::to_string(line) + ")");
    log::warn((path == "-" ? kStandardInput : path) +
              ": keys of the prompts without effect: " + join(names, ", "));
  }
  return prompts;
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

#include "tessera/data/prompts/llama_factory.h"

#include <filesystem>

#include <nlohmann/json.hpp>

#include "tessera/config/resolve_paths.h"
#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/data/prompts/chat.h"
#include "tessera/data/prompts/fields.h"
#include "tessera/io/file.h"

namespace tessera::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kInfoName = "dataset_info.json";
constexpr int64_t kMaxInfoBytes = int64_t{64} << 20;

Error entry_error(const config::DatasetConfig& dataset, const std::string& what) {
  return Error(ErrorKind::Config, "DATASET-INFO", what).at(dataset.source_file, dataset.source_line);
}

// Returns a text of an object in the description; "" if it is missing or null.
std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

const Json& object_at(const Json& object, const char* key) {
  static const Json kNone = Json::object();
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : kNone;
}

void set_if(std::string& field, const std::string& value) {
  if (!value.empty()) field = value;
}

void apply_columns(const Json& columns, config::DatasetConfig& entry) {
  set_if(entry.field_instruction, text_at(columns, "prompt"));
  set_if(entry.field_input, text_at(columns, "query"));
  set_if(entry.field_output, text_at(columns, "response"));
  set_if(entry.field_system, text_at(columns, "system"));
  set_if(entry.field_tools, text_at(columns, "tools"));
}

// Applies tags such as {role_tag: from, assistant_tag: gpt, ...} to the entry, with LLaMA-Factory's defaults
// for those that are not given.
void apply_tags(const Json& columns, const Json& tags, config::DatasetConfig& entry) {
  const auto tag = [&](const char* key, const char* usual) {
    const std::string given = text_at(tags, key);
    return given.empty() ? std::string(usual) : given;
  };
  const std::string messages = text_at(columns, "messages");
  entry.field_messages = messages.empty() ? "conversations" : messages;
  entry.message_property_mappings["role"] = tag("role_tag", "from");
  entry.message_property_mappings["content"] = tag("content_tag", "value");
  entry.roles["user"] = {tag("user_tag", "human")};
  entry.roles["assistant"] = {tag("assistant_tag", "gpt")};
  entry.roles["system"] = {tag("system_tag", "system")};
  entry.roles["tool"] = {tag("observation_tag", "observation")};
  entry.roles["function_call"] = {tag("function_tag", "function_call")};
}

std::string joined(const std::string& first, const std::string& second) {
  if (first.empty() || second.empty()) return first + second;
  return first + '\n' + second;
}

// Reads tool calls that are written as text: {"name": ..., "arguments": {...}}, or a list of such objects.
Json tool_calls_of(const std::string& text) {
  Json parsed = Json::parse(text, nullptr, false);
  if (parsed.is_object()) parsed = Json::array({parsed});
  Json calls = Json::array();
  for (const Json& call : parsed.is_array() ? parsed : Json::array()) {
    if (call.is_object() && call.contains("name"))
      calls.push_back({{"type", "function"}, {"function", call}});
  }
  if (calls.empty()) {
    throw Error(ErrorKind::Data, "FIELD-TYPE", "a function call is no JSON of one")
        .got(text.substr(0, 60))
        .need(R"({"name": ..., "arguments": {...}})");
  }
  return calls;
}

}  // namespace

config::DatasetConfig resolve_dataset_info(const config::DatasetConfig& dataset, const std::string& folder) {
  namespace fs = std::filesystem;
  if (dataset.type != "llama_factory") return dataset;
  fs::path path = config::resolve_path(dataset.path, folder);
  std::error_code ignored;
  if (fs::is_directory(path, ignored) && fs::exists(path / kInfoName, ignored)) path /= kInfoName;
  if (path.filename() != kInfoName) return dataset;

  const Json info = Json::parse(io::read_file(path.string(), kMaxInfoBytes), nullptr, false);
  if (!info.is_object()) throw entry_error(dataset, "'" + path.string() + "' is no JSON object");
  const auto found = info.find(dataset.name);
  if (found == info.end() || !found->is_object()) {
    std::vector<std::string> names;
    for (const auto& item : info.items()) names.push_back(item.key());
    const std::string near = nearest_name(dataset.name, names);
    throw entry_error(dataset, "'" + path.string() + "' describes no such dataset")
        .got("name: " + dataset.name)
        .need("one of " + join(names, ", "))
        .hint(near.empty() ? "" : "did you mean '" + near + "'?");
  }
  const Json& description = *found;
  const std::string file = text_at(description, "file_name");
  if (file.empty()) {
    throw entry_error(dataset, "this dataset lies on a hub, and only local files are read")
        .got(dataset.name)
        .need("a description with file_name");
  }
  const Json& columns = object_at(description, "columns");
  for (const char* column : {"images", "videos", "audios"}) {
    if (!text_at(columns, column).empty())
      throw entry_error(dataset, std::string("datasets with ") + column + " are not built yet");
  }
  const auto ranking = description.find("ranking");
  const bool is_ranking = ranking != description.end() && ranking->is_boolean() && ranking->get<bool>();
  if (is_ranking || !text_at(columns, "kto_tag").empty()) {
    throw entry_error(dataset, "a description of preferences is not read")
        .hint("name its columns by rl: dpo (or kto) and type: {field_prompt: ..., field_chosen: ...}");
  }
  config::DatasetConfig entry = dataset;
  entry.path = (path.parent_path() / file).string();
  entry.name.clear();
  apply_columns(columns, entry);
  const std::string formatting = text_at(description, "formatting");
  if (formatting == "sharegpt") {
    apply_tags(columns, object_at(description, "tags"), entry);
  } else if (!formatting.empty() && formatting != "alpaca") {
    throw entry_error(dataset, "unknown formatting").got(formatting).need("alpaca or sharegpt");
  }
  return entry;
}

LlamaFactoryPrompt::LlamaFactoryPrompt(const config::DatasetConfig& dataset, const PromptContext& context)
    : dataset_(dataset) {
  config::DatasetConfig chat;
  chat.type = "chat_template";
  chat.path = dataset.path;
  chat.source_file = dataset.source_file;
  chat.source_line = dataset.source_line;
  chat.chat_template = dataset.chat_template;
  chat.chat_template_jinja = dataset.chat_template_jinja;
  chat.train_on_eos = dataset.train_on_eos;
  chat.train_on_eot = dataset.train_on_eot;
  chat.roles_to_train = dataset.roles_to_train;
  chat_ = std::make_unique<ChatPrompt>(chat, context);
}

Json LlamaFactoryPrompt::to_messages(const Json& record) const {
  Json messages = Json::array();
  const auto say = [&](const char* role, const std::string& text) {
    messages.push_back({{"role", role}, {"content", text}});
  };
  const std::string system = optional_text(record, dataset_.field_system);
  if (!system.empty()) say("system", system);
  if (find_field(record, dataset_.field_messages) != nullptr) {
    const auto& names = dataset_.message_property_mappings;
    const std::string role_key = names.contains("role") ? names.at("role") : "from";
    const std::string content_key = names.contains("content") ? names.at("content") : "value";
    for (const Json& message : required_array(record, dataset_.field_messages)) {
      if (!message.is_object()) {
        throw Error(ErrorKind::Data, "FIELD-TYPE",
                    "a message of '" + dataset_.field_messages + "' is not an object")
            .got(message.type_name())
            .need("object");
      }
      const std::string& name = required_text(message, role_key);
      const std::string& text = required_text(message, content_key);
      std::string role = name == "human" ? "user" : name == "gpt" ? "assistant" : name;
      if (name == "observation") role = "tool";
      for (const auto& [ours, theirs] : dataset_.roles) {
        if (!theirs.empty() && theirs.front() == name) role = ours;
      }
      if (role == "function_call") {
        messages.push_back({{"role", "assistant"}, {"content", ""}, {"tool_calls", tool_calls_of(text)}});
      } else {
        say(role.c_str(), text);
      }
    }
    return messages;
  }
  if (const Json* history = find_field(record, "history")) {
    for (const Json& pair : *history) {
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
        throw Error(ErrorKind::Data, "FIELD-TYPE", "an element of 'history' is not a question and an answer")
            .got(pair.type_name())
            .need("[text, text]");
      }
      say("user", pair[0].get<std::string>());
      say("assistant", pair[1].get<std::string>());
    }
  }
  say("user",
      joined(required_text(record, dataset_.field_instruction), optional_text(record, dataset_.field_input)));
  say("assistant", required_text(record, dataset_.field_output));
  return messages;
}

void LlamaFactoryPrompt::tokenize(const PromptRecord& record, std::vector<Row>& rows) const {
  Json conversation = {{"messages", to_messages(record.fields)}};
  if (const Json* tools = find_field(record.fields, dataset_.field_tools)) conversation["tools"] = *tools;
  chat_->tokenize({conversation, true, true, record.notes}, rows);
}

}  // namespace tessera::data

#include "tessera/data/prompts/llama_factory.h"

#include <algorithm>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "tessera/config/resolve_paths.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
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

// Reads one object of a dataset_info.json and reports its mistakes at the entry of the recipe.
struct InfoReader {
  const config::DatasetConfig& dataset;

  // Returns a text of the description; "" if it is missing or null.
  std::string text(const Json& object, const std::string& key) const {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return "";
    if (found->is_string()) return found->get<std::string>();
    throw entry_error(dataset, std::string(kInfoName) + ": '" + key + "' is not text").got(found->dump());
  }

  // Warns of keys that neither LLaMA-Factory nor Tessera reads.
  void tell_unknown(const Json& object, const std::vector<std::string>& known, const char* of) const {
    for (const auto& item : object.items()) {
      if (std::find(known.begin(), known.end(), item.key()) != known.end()) continue;
      const std::string near = nearest_name(item.key(), known);
      log::warn(std::string(kInfoName) + ": '" + dataset.name + "': unused key '" + item.key() + "' of its " +
                of + (near.empty() ? "" : "; did you mean '" + near + "'?"));
    }
  }
};

const Json& object_at(const Json& object, const char* key) {
  static const Json kNone = Json::object();
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : kNone;
}

// Names the columns as LLaMA-Factory does: without `columns`, those of Alpaca; with them, a column that is
// not named is not read. A system prompt, a history and tools are read where they are named alone.
void apply_columns(const Json& columns, const InfoReader& reader, config::DatasetConfig& entry) {
  if (!columns.empty()) {
    entry.field_instruction = reader.text(columns, "prompt");
    entry.field_input = reader.text(columns, "query");
    entry.field_output = reader.text(columns, "response");
  }
  entry.field_history = reader.text(columns, "history");
  entry.field_system = reader.text(columns, "system");
  entry.field_tools = reader.text(columns, "tools");
}

// Applies tags such as {role_tag: from, assistant_tag: gpt, ...} to the entry, with LLaMA-Factory's defaults
// for those that are not given.
void apply_tags(const Json& columns, const Json& tags, const InfoReader& reader,
                config::DatasetConfig& entry) {
  const auto tag = [&](const char* key, const char* usual) {
    const std::string given = reader.text(tags, key);
    return given.empty() ? std::string(usual) : given;
  };
  const std::string messages = reader.text(columns, "messages");
  entry.field_messages = messages.empty() ? "conversations" : messages;
  entry.message_property_mappings["role"] = tag("role_tag", "from");
  entry.message_property_mappings["content"] = tag("content_tag", "value");
  entry.roles["user"] = {tag("user_tag", "human")};
  entry.roles["assistant"] = {tag("assistant_tag", "gpt")};
  entry.roles["system"] = {tag("system_tag", "system")};
  entry.roles["tool"] = {tag("observation_tag", "observation")};
  entry.roles["function_call"] = {tag("function_tag", "function_call")};
}

// Refuses what the description says and Tessera does not do, and warns of what has no effect.
void check_description(const Json& description, const InfoReader& reader) {
  const config::DatasetConfig& dataset = reader.dataset;
  const Json& columns = object_at(description, "columns");
  reader.tell_unknown(
      description,
      {"file_name", "file_sha1", "formatting", "ranking", "subset", "split", "folder", "num_samples",
       "columns", "tags", "hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name"},
      "description");
  reader.tell_unknown(columns,
                      {"prompt", "query", "response", "history", "messages", "system", "tools", "images",
                       "videos", "audios", "chosen", "rejected", "kto_tag"},
                      "columns");
  reader.tell_unknown(object_at(description, "tags"),
                      {"role_tag", "content_tag", "user_tag", "assistant_tag", "observation_tag",
                       "function_tag", "system_tag"},
                      "tags");
  if (reader.text(description, "file_name").empty()) {
    throw entry_error(dataset, "this dataset is on a hub or elsewhere; only local files are supported here")
        .got(dataset.name)
        .need("a description with file_name");
  }
  for (const char* key : {"subset", "folder"}) {
    if (!reader.text(description, key).empty())
      log::warn(std::string(kInfoName) + ": '" + dataset.name + "': '" + key +
                "' has no effect together with file_name: it is for datasets on a hub");
  }
  for (const char* column : {"images", "videos", "audios"}) {
    if (!reader.text(columns, column).empty())
      throw entry_error(dataset, std::string("datasets with ") + column + " are not supported yet");
  }
  const auto samples = description.find("num_samples");
  if (samples != description.end() && !samples->is_null()) {
    throw entry_error(dataset, "num_samples, which draws rows at random, is not supported")
        .got(samples->dump())
        .hint("remove it; `split: train[:N]` in the recipe's entry selects the first N rows");
  }
  const auto ranking = description.find("ranking");
  const bool is_ranking = ranking != description.end() && ranking->is_boolean() && ranking->get<bool>();
  if (is_ranking || !reader.text(columns, "kto_tag").empty()) {
    throw entry_error(dataset, "descriptions of preference datasets are not supported")
        .hint("name its columns with rl: dpo (or kto) and type: {field_prompt: ..., field_chosen: ...}");
  }
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
    throw Error(ErrorKind::Data, "FIELD-TYPE", "a function call is not valid JSON")
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
  if (!info.is_object()) throw entry_error(dataset, "'" + path.string() + "' is not a JSON object");
  const auto found = info.find(dataset.name);
  if (found == info.end() || !found->is_object()) {
    std::vector<std::string> names;
    for (const auto& item : info.items()) names.push_back(item.key());
    const std::string near = nearest_name(dataset.name, names);
    throw entry_error(dataset, "'" + path.string() + "' has no dataset of this name")
        .got("name: " + dataset.name)
        .need("one of " + join(names, ", "))
        .hint(near.empty() ? "" : "did you mean '" + near + "'?");
  }
  const Json& description = *found;
  const InfoReader reader{dataset};
  check_description(description, reader);
  const Json& columns = object_at(description, "columns");
  config::DatasetConfig entry = dataset;
  entry.path = (path.parent_path() / reader.text(description, "file_name")).string();
  entry.name.clear();
  if (entry.split.empty()) entry.split = reader.text(description, "split");
  apply_columns(columns, reader, entry);
  const std::string formatting = reader.text(description, "formatting");
  if (formatting == "sharegpt") {
    apply_tags(columns, object_at(description, "tags"), reader, entry);
  } else if (!formatting.empty() && formatting != "alpaca") {
    throw entry_error(dataset, "unknown formatting").got(formatting).need("alpaca or sharegpt");
  } else if (entry.field_output.empty()) {
    throw entry_error(dataset, "the columns name no response, so no row has an answer to train")
        .need("columns: {\"response\": ...}");
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
  const auto say_system = [&] {
    const std::string system = optional_text(record, dataset_.field_system);
    if (!system.empty()) say("system", system);
  };
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
      // A conversation's own system message goes before the column.
      if (messages.empty() && role != "system") say_system();
      if (role == "function_call") {
        messages.push_back({{"role", "assistant"}, {"content", ""}, {"tool_calls", tool_calls_of(text)}});
      } else {
        say(role.c_str(), text);
      }
    }
    return messages;
  }
  say_system();
  if (const Json* history = find_field(record, dataset_.field_history)) {
    for (const Json& pair : *history) {
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
        throw Error(ErrorKind::Data, "FIELD-TYPE",
                    "an element of '" + dataset_.field_history + "' is not a question and an answer")
            .got(pair.type_name())
            .need("[text, text]");
      }
      say("user", pair[0].get<std::string>());
      say("assistant", pair[1].get<std::string>());
    }
  }
  const std::string instruction =
      dataset_.field_instruction.empty() ? "" : required_text(record, dataset_.field_instruction);
  say("user", joined(instruction, optional_text(record, dataset_.field_input)));
  say("assistant", required_text(record, dataset_.field_output));
  return messages;
}

void LlamaFactoryPrompt::tokenize(const PromptRecord& record, std::vector<Row>& rows) const {
  Json conversation = {{"messages", to_messages(record.fields)}};
  if (const Json* tools = find_field(record.fields, dataset_.field_tools)) conversation["tools"] = *tools;
  chat_->tokenize({conversation, true, true, record.notes}, rows);
}

}  // namespace tessera::data

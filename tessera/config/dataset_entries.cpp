#include "tessera/config/dataset_entries.h"

#include "tessera/config/values.h"

namespace tessera::config {
namespace {

constexpr std::string_view kOwnFormatKeys[] = {
    "system_prompt", "system_format",    "field_system",    "field_instruction", "field_input",
    "field_output",  "format",           "no_input_format", "field_prompt",      "prompt_format",
    "field_chosen",  "chosen_format",    "field_rejected",  "rejected_format",   "field_completion",
    "field_label",   "completion_format"};

Node empty_map(const Place& place) {
  Node map;
  map.kind = Node::Kind::Map;
  map.place = place;
  return map;
}

void add(Node& map, const char* key, const std::string& text, bool is_quoted = true) {
  map.entries.push_back({key, map.place, make_scalar(text, map.place), ""});
  map.entries.back().value.is_quoted = is_quoted;
}

}  // namespace

std::span<const std::string_view> own_format_keys() { return kOwnFormatKeys; }

std::string dataset_type(const std::string& name) {
  if (name == "chat_template.default") return "chat_template";
  if (name == "bradley_terry") return "bradley_terry.chat_template";
  if (name == "alpaca:instruct" || name == "alpaca_instruct") return "alpaca";
  if (name == "alpaca:chat") return "alpaca_chat";
  for (const std::string_view suffix : {".load", ".default"}) {
    if (name.ends_with(suffix)) return dataset_type(name.substr(0, name.size() - suffix.size()));
  }
  return name;
}

Node NamedDatasets::entries(const Node& names, Problems& problems) const {
  Node list = list_of(names);
  for (Node& name : list.items) {
    Node entry = empty_map(name.place);
    if (is_of_hub) {
      problems.warn("dataset '" + name.text + "': set the type of its rows by hand");
      add(entry, "path", name.text);
      if (!configuration.empty()) add(entry, "name", configuration);
    } else {
      add(entry, "path", folder + "/dataset_info.json");
      add(entry, "type", "llama_factory");
      add(entry, "name", name.text);
    }
    if (!split.empty()) add(entry, "split", split);
    name = std::move(entry);
  }
  return list;
}

Node documents(const Node& value) {
  Node list = value;
  if (!value.is_sequence()) {
    list = Node();
    list.kind = Node::Kind::Sequence;
    list.place = value.place;
    list.items.push_back(value);
  }
  for (Node& item : list.items) {
    if (item.is_scalar()) {
      Node entry = empty_map(item.place);
      entry.entries.push_back({"path", item.place, item, ""});
      item = std::move(entry);
    }
    const Entry* type = item.is_map() ? item.find("type") : nullptr;
    if (!item.is_map() || (type != nullptr && !type->value.is_null())) continue;
    if (type != nullptr) item.erase("type");
    add(item, "type", "pretrain", /*is_quoted=*/false);
  }
  return list;
}

void apply_sharegpt(Node& dataset, Problems& problems) {
  const Entry* type = dataset.find("type");
  if (type == nullptr || type->value.text != "sharegpt") return;
  const Place place = type->value.place;
  if (dataset.find("field_messages") == nullptr && dataset.find("message_property_mappings") == nullptr) {
    problems.warn(place_prefix(place) +
                  "type: sharegpt is read as type: chat_template with field_messages: conversations and "
                  "message_property_mappings: {role: from, content: value}");
  }
  if (dataset.find("field_messages") == nullptr) {
    dataset.entries.push_back({"field_messages", place, make_scalar("conversations", place), ""});
  }
  if (dataset.find("message_property_mappings") == nullptr) {
    Node map = empty_map(place);
    add(map, "role", "from", /*is_quoted=*/false);
    add(map, "content", "value", /*is_quoted=*/false);
    dataset.entries.push_back({"message_property_mappings", place, std::move(map), ""});
  }
}

}  // namespace tessera::config

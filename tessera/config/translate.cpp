#include "tessera/config/translate.h"

#include <algorithm>
#include <optional>

#include <nlohmann/json.hpp>

#include "tessera/config/dataset_entries.h"
#include "tessera/config/key_names.h"
#include "tessera/config/scalar.h"
#include "tessera/config/schema.h"
#include "tessera/config/translator.h"
#include "tessera/config/values.h"
#include "tessera/core/strings.h"

namespace tessera::config {
namespace {

constexpr std::string_view kUnbuiltValue = "!";
constexpr std::string_view kMoreTokens = "additional_special_tokens";  // a list among the roles
constexpr const char* kBlank = " (blank)";  // marks the name of a blank key until its dataset entry has been
                                            // read

// Returns the path of the native key that `key` sets: in the same entry of a dataset, else at the top level.
std::string native_path(const ForeignKey& key, const Section& section, const std::string& prefix) {
  return (section.path == "datasets" ? prefix : "") + std::string(key.target);
}

// Makes the error for a value that a Map does not accept: a value that is known but not supported, or a
// mistake.
Error refused_value(const ForeignKey& key, const std::string& path, const Node& word, bool is_known) {
  std::vector<std::string> names;
  for (const std::string& pair : split_words(key.values, " ")) {
    const size_t equals = pair.find('=');
    if (pair.substr(equals + 1) != kUnbuiltValue) names.push_back(pair.substr(0, equals));
  }
  Error error = config_error(
      is_known ? "UNSUPPORTED" : "VALUE",
      "key '" + path + "': " + (is_known ? "this value is not supported" : "unknown value"), word.place);
  error.got(describe(word)).need(join(names, ", "));
  if (canonical(word).find("hybrid") != std::string::npos)
    return error.hint("dp_replicate_size and dp_shard_size set the number of ranks");
  const std::string near = is_known ? "" : nearest_name(canonical(word), names);
  if (!near.empty()) error.hint("did you mean '" + near + "'?");
  return error;
}

// Makes the error for a refused key. Its reason says behind a semicolon, or after "write ", what to write
// instead; if it does not, a hint suggests to leave the key out.
Error refused_key(const ForeignKey& key, const std::string& path, const Node& value, const Place& place) {
  Error error = config_error("UNSUPPORTED", "key '" + path + "': " + std::string(key.target), place);
  error.got(describe(value));
  if (key.target.find("; ") == key.target.npos && !key.target.starts_with("write "))
    error.hint("leave the key out to train without it");
  return error;
}

// Returns whether a value leaves the decision to another spelling of the key: FSDP's switch may stand beside
// `gradient_checkpointing: false`, DeepSpeed's `bf16.enabled` beside `bf16: auto`.
bool yields(std::string_view key, const Node& value) {
  return (key == "gradient_checkpointing" && is_off(value, "")) ||
         (key == "dtype" && value.is_scalar() && value.text == "auto");
}

// Returns whether the value is one of Axolotl's older names for recompute of blocks whose inputs are
// offloaded.
bool is_offloaded_checkpointing(const Node& value) {
  return value.is_scalar() && (lower(value.text) == "offload" || lower(value.text) == "unsloth");
}

// Renames lora_target_modules or lora_exclude_modules that is a text instead of a list: a regular expression
// over module names or, for the former, PEFT's "all-linear".
void rename_target_text(Entry& entry) {
  if (!entry.value.is_scalar()) return;
  if (entry.key == "lora_exclude_modules") {
    entry.key = "lora_exclude_regex";
    entry.value.is_quoted = true;
    entry.origin = "lora_exclude_modules";
    return;
  }
  if (entry.value.text == "all-linear") {
    entry.key = "lora_target_linear";
    entry.value.text = "true";
    entry.value.is_quoted = false;
  } else {
    entry.key = "lora_target_regex";
    entry.value.is_quoted = true;
  }
  entry.origin = "lora_target_modules";
}

}  // namespace

void quote_boolean(Node& value) {
  if (!value.is_scalar() || value.is_quoted || !parse_bool(value.text)) return;
  value.text = canonical(value);
  value.is_quoted = true;
}

namespace {

nlohmann::ordered_json json_of(const Node& value) {
  nlohmann::ordered_json json;
  if (value.is_sequence()) {
    json = nlohmann::ordered_json::array();
    for (const Node& item : value.items) json.push_back(json_of(item));
  } else if (value.is_map()) {
    json = nlohmann::ordered_json::object();
    for (const Entry& entry : value.entries) json[entry.key] = json_of(entry.value);
  } else if (value.is_scalar()) {
    json = nlohmann::ordered_json::parse(value.text, nullptr, /*allow_exceptions=*/false);
    const auto number = value.is_quoted ? std::nullopt : parse_number(value.text);
    if (json.is_discarded() && !value.is_quoted && parse_bool(value.text)) return *parse_bool(value.text);
    if (json.is_discarded() && number) return *number;
    if (json.is_discarded()) return value.text;
  }
  return json;
}

}  // namespace

void make_json(Node& value) {
  value.text = json_of(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  value.kind = Node::Kind::Scalar;
  value.is_quoted = true;
  value.items.clear();
  value.entries.clear();
}

bool same_value(const std::string& key, const Node& a, const Node& b) {
  if (a.kind != b.kind) return false;
  if (!a.is_scalar()) return false;
  if (a.text == b.text || canonical(a) == canonical(b)) return true;
  const auto left = parse_number(a.text), right = parse_number(b.text);
  if (left && right) return *left == *right;
  for (const Key<Recipe>& candidate : recipe_keys()) {
    if (candidate.name != key || !std::holds_alternative<EnumField<Recipe>>(candidate.field)) continue;
    std::optional<int> values[2];
    for (const Choice& choice : candidate.choices) {
      if (choice.name == lower(a.text)) values[0] = choice.value;
      if (choice.name == lower(b.text)) values[1] = choice.value;
    }
    return values[0] && values[1] && *values[0] == *values[1];
  }
  return false;
}

Node Translator::run(const std::vector<SourceFile>& files) {
  Node out;
  out.kind = Node::Kind::Map;
  out.place = files.front().root.place;
  for (const SourceFile& file : files) {
    file_ = &file.root;
    translate_map(file.root, section(file.section), "", out);
  }
  warn_ignored();
  return out;
}

void Translator::translate_map(const Node& map, const Section& section, const std::string& prefix,
                               Node& out) {
  for (const Entry& entry : map.entries) {
    const std::string path = prefix + entry.key;
    std::string_view name = entry.key;
    if (name.size() > section.strip_prefix.size() && name.starts_with(section.strip_prefix)) {
      name.remove_prefix(section.strip_prefix.size());
    }
    const Origin origin{entry, path, out};
    const KeyPlace place = to_key_place(entry.key_place);
    if (is_native(section, name)) {
      problems_.attempt(path, place, [&] { set_native(name, entry.value, origin); });
      continue;
    }
    const ForeignKey* key = find_foreign(section, name);
    if (key == nullptr || key->rule == Rule::Hint) {
      problems_.add(key != nullptr ? key->target : path, place, unknown_key(section, entry, name, path, key));
      continue;
    }
    const bool is_auto =
        section.auto_is_unset && entry.value.is_scalar() && lower(entry.value.text) == "auto";
    if (entry.value.is_null() || is_auto) continue;
    const bool has_target = key->rule == Rule::Rename || key->rule == Rule::Map;
    problems_.attempt(has_target ? native_path(*key, section, prefix) : path, place,
                      [&] { apply(*key, origin); });
  }
}

void Translator::apply(const ForeignKey& key, const Origin& origin) {
  const Node& value = origin.entry.value;
  switch (key.rule) {
    case Rule::Rename: set_native(key.target, value, origin); break;
    case Rule::Map: map_value(key, origin); break;
    case Rule::Ignore:
      if (!is_off(value, key.values)) note_ignored(origin);
      break;
    case Rule::Quiet:
    case Rule::Hint: break;
    case Rule::Refuse:
      if (!is_off(value, key.values)) throw refused_key(key, origin.path, value, origin.entry.key_place);
      break;
    case Rule::Enter:
      if (!value.is_map()) throw type_error(origin, "a map");
      translate_map(value, section(key.target), origin.path + '.', origin.out);
      break;
    case Rule::Special: apply_special(key, origin); break;
  }
}

void Translator::map_value(const ForeignKey& key, const Origin& origin) {
  const Node& value = origin.entry.value;
  std::vector<Node> words;
  if (value.is_sequence()) {
    words = value.items;
  } else if (value.is_scalar() && value.text.find_first_of(" ,") != std::string::npos) {
    for (const std::string& word : split_words(value.text, " ,"))
      words.push_back(make_scalar(word, value.place));
  } else {
    words.push_back(value);
  }
  for (const Node& word : words) {
    if (!word.is_scalar()) throw type_error(origin, "text");
    // Transformers puts the word "offload" beside the way of sharding.
    if (key.target == "zero_stage" && canonical(word) == "offload")
      set_native("offload_param_device", make_scalar("cpu", word.place), origin);
    auto ours = look_up(key.values, canonical(word));
    if (!ours) ours = look_up(key.values, "*");
    if (!ours || *ours == kUnbuiltValue) throw refused_value(key, origin.path, word, ours.has_value());
    if (!ours->empty()) set_native(key.target, make_scalar(*ours, word.place), origin);
  }
}

// Drops a blank value as unset. Two keys are special: if roles_to_train and train_on_eos are both blank, the
// user asks for the last message alone.
void Translator::set_blank(std::string_view key, const Node& value, const Origin& origin) {
  if (key != "roles_to_train" && key != "train_on_eos") return;
  const std::string_view other = key == "train_on_eos" ? "roles_to_train" : "train_on_eos";
  const Entry* blank = origin.out.find(std::string(other) + kBlank);
  if (blank == nullptr) {
    origin.out.entries.push_back({std::string(key) + kBlank, origin.entry.key_place, value, origin.path});
    return;
  }
  origin.out.erase(std::string(other) + kBlank);
  Node none;
  none.kind = Node::Kind::Sequence;
  none.place = value.place;
  origin.out.entries.push_back({"roles_to_train", origin.entry.key_place, none, ""});
  origin.out.entries.push_back({"train_on_eos", origin.entry.key_place, make_scalar("", value.place), ""});
  problems_.warn("keys 'roles_to_train' and 'train_on_eos' are blank: only the last message is trained");
}

void Translator::set_native(std::string_view key, const Node& value, const Origin& origin) {
  if (value.is_null()) return set_blank(key, value, origin);
  const bool is_list =
      key == "eot_tokens" || key == "tokens" || key == kMoreTokens || key == "unfrozen_parameters";
  if ((key == "rl" || is_list) && is_off(value, "")) return;
  if (key == "tokens" && value.is_map()) return set_native("special_tokens", value, origin);
  if (key == "special_tokens" && value.find(kMoreTokens) != nullptr) {
    Node roles = value;
    set_native(kMoreTokens, value.find(kMoreTokens)->value, origin);
    roles.erase(kMoreTokens);
    return roles.entries.empty() ? void() : set_native(key, roles, origin);
  }
  if (key == "type" && value.is_map()) return set_own_format(value, origin);
  if (key == "gradient_checkpointing" && is_offloaded_checkpointing(value))
    set_native("activation_offloading", make_scalar("true", value.place), origin);
  if (key == "dtype" && value.is_scalar() && lower(value.text) == "fp8")
    set_native("fp8", make_scalar("true", value.place), origin);
  // All that is not multiplied in fp8 is computed in bfloat16, as is what has weights in bfloat16.
  if ((key == "fp8" || key == "pure_bf16") && value.is_scalar() && parse_bool(value.text).value_or(false))
    set_native("dtype", make_scalar("bfloat16", value.place), origin);
  const std::string_view entries = entries_of(key);
  Node translated = entries.empty() ? value : translate_entries(value, section(entries), origin);
  // The booleans of template variables become valid JSON, and those of options become texts.
  if (key == "chat_template_kwargs" || key == "optimizer_args") {
    for (Entry& variable : translated.entries) quote_boolean(variable.value);
  }
  if (key == "model_config") {
    for (Entry& change : translated.entries) make_json(change.value);
  }
  if (key == "type") translated.text = dataset_type(value.text);
  // One expression may stand for a list of one.
  if (key == "optim_target_modules" && value.is_scalar()) {
    translated = list_of(make_scalar("", value.place));
    translated.items = {value};
    translated.items.front().is_quoted = true;
  }
  Entry entry{std::string(key), origin.entry.key_place, std::move(translated),
              origin.path == key ? std::string() : origin.path};
  if (key == "lora_target_modules" || key == "lora_exclude_modules") rename_target_text(entry);
  Entry* other = origin.out.find(entry.key);
  if (other == nullptr) {
    origin.out.entries.push_back(std::move(entry));
    return;
  }
  // The key is set already. A value of the command line wins over one of a file. Otherwise a value that
  // yields gives way to the other one, and any other two values must agree.
  const bool other_is_override = other->key_place.is_override || other->value.place.is_override;
  const bool is_override = origin.entry.key_place.is_override || value.place.is_override;
  if (other_is_override && !is_override) return;
  if (is_override && !other_is_override) {
    *other = std::move(entry);
  } else if (yields(entry.key, other->value)) {
    *other = std::move(entry);
  } else if (yields(entry.key, value)) {
    return;
  } else if (!same_value(entry.key, other->value, value)) {
    throw conflict(*other, origin, value);
  }
}

void Translator::set_own_format(const Node& map, const Origin& origin) {
  const std::span<const std::string_view> keys = own_format_keys();
  for (const Entry& entry : map.entries) {
    const std::string path = origin.path + '.' + entry.key;
    const Origin inner{entry, path, origin.out};
    if (std::find(keys.begin(), keys.end(), entry.key) == keys.end()) {
      const std::vector<std::string> names(keys.begin(), keys.end());
      const std::string near = nearest_name(entry.key, names);
      problems_.add(path, to_key_place(entry.key_place),
                    config_error("UNKNOWN-KEY", "unknown key '" + path + "'", entry.key_place)
                        .need(join(names, ", "))
                        .hint(near.empty() ? "" : "did you mean '" + near + "'?"));
      continue;
    }
    problems_.attempt(path, to_key_place(entry.key_place),
                      [&] { set_native(entry.key, entry.value, inner); });
  }
  set_native("type", make_scalar("user_defined", map.place), origin);
}

Node Translator::translate_entries(const Node& list, const Section& entries, const Origin& origin) {
  if (!list.is_sequence()) return list;
  Node out = list;
  for (size_t i = 0; i < out.items.size(); ++i) {
    const Node& item = list.items[i];
    if (!item.is_map()) continue;
    Node translated;
    translated.kind = Node::Kind::Map;
    translated.place = item.place;
    translate_map(item, entries, origin.path + '.' + std::to_string(i) + '.', translated);
    warn_blank(translated);
    apply_sharegpt(translated, problems_);
    out.items[i] = std::move(translated);
  }
  return out;
}

void Translator::warn_blank(Node& dataset) {
  for (const char* const key : {"roles_to_train", "train_on_eos"}) {
    const std::string name = std::string(key) + kBlank;
    const Entry* blank = dataset.find(name);
    if (blank == nullptr) continue;
    problems_.warn("key '" + blank->origin + "' is blank: its default applies");
    dataset.erase(name);
  }
}

Error Translator::type_error(const Origin& origin, std::string_view need) {
  return config_error("TYPE", "key '" + origin.path + "': wrong type", origin.entry.value.place)
      .got(describe(origin.entry.value))
      .need(need);
}

Error Translator::conflict(const Entry& other, const Origin& origin, const Node& value) {
  const Place& here = origin.entry.key_place;
  return config_error("CONFLICT",
                      "keys '" + other.name_in_file() + "' (" + describe_place(other.key_place, here) +
                          ") and '" + origin.path + "' (" + describe_place(here, here) + ") disagree",
                      here)
      .got(describe(other.value) + " and " + describe(value))
      .hint("keep one of them");
}

void Translator::note_ignored(const Origin& origin) {
  const Place& place = origin.entry.key_place;
  const std::string file = place.file ? *place.file : "";
  auto group = std::find_if(ignored_.begin(), ignored_.end(), [&](const auto& g) { return g.first == file; });
  if (group == ignored_.end()) group = ignored_.insert(group, {file, {}});
  group->second.push_back(origin.path +
                          (place.line == 0 ? "" : " (line " + std::to_string(place.line) + ')'));
}

void Translator::warn_ignored() {
  for (const auto& [file, keys] : ignored_)
    problems_.warn((file.empty() ? "" : file + ": ") + "accepted without effect: " + join(keys, ", "));
}

Node translate(const std::vector<SourceFile>& files, const std::string& folder, Problems& problems) {
  return Translator(folder, problems).run(files);
}

}  // namespace tessera::config

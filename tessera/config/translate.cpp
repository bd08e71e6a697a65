#include "tessera/config/translate.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "tessera/config/foreign_keys.h"
#include "tessera/config/scalar.h"
#include "tessera/config/schema.h"
#include "tessera/config/yaml_reader.h"
#include "tessera/core/strings.h"

namespace tessera::config {
namespace {

constexpr std::string_view kUnbuiltValue = "!";
constexpr const char* kBlank = " (blank)";  // behind the name of a key, until the entry has been read

template <class T>
bool has_key(std::span<const Key<T>> keys, std::string_view name) {
  return std::any_of(keys.begin(), keys.end(), [&](const Key<T>& key) { return key.name == name; });
}

bool is_native(const Section& section, std::string_view key) {
  if (section.path.empty()) return has_key(recipe_keys(), key);
  if (section.path == "datasets") return has_key(dataset_keys(), key);
  if (section.path == "lr_groups") return has_key(lr_group_keys(), key);
  return false;
}

// Of a native key that is a list of maps, the section that its entries are; "" for others.
std::string_view entries_of(std::string_view key) {
  if (key == "datasets" || key == "test_datasets") return "datasets";
  return key == "lr_groups" ? key : "";
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

std::vector<std::string> split_words(std::string_view text, std::string_view separators) {
  std::vector<std::string> words;
  size_t start = 0;
  while ((start = text.find_first_not_of(separators, start)) != std::string_view::npos) {
    const size_t end = std::min(text.find_first_of(separators, start), text.size());
    words.emplace_back(text.substr(start, end - start));
    start = end;
  }
  return words;
}

// The spelling that the tables use: lower case, and one form for all spellings of a boolean.
std::string canonical(const Node& node) {
  if (!node.is_quoted) {
    if (const auto value = parse_bool(node.text)) return *value ? "true" : "false";
  }
  return lower(node.text);
}

// Whether a value switches nothing on.
bool is_off(const Node& node, std::string_view off_values) {
  switch (node.kind) {
    case Node::Kind::Null: return true;
    case Node::Kind::Sequence: return node.items.empty();
    case Node::Kind::Map: return node.entries.empty();
    case Node::Kind::Scalar: break;
  }
  const std::string text = canonical(node);
  if (text.empty() || text == "false" || text == "none") return true;
  const std::vector<std::string> words = split_words(off_values, " ");
  return std::find(words.begin(), words.end(), text) != words.end();
}

// The names that stand for "no" in the values of a Map, where YAML reads a boolean.
std::optional<std::string> look_up(std::string_view values, const std::string& text) {
  const std::string other = text == "false" ? "no" : text == "true" ? "yes" : text;
  for (const std::string& pair : split_words(values, " ")) {
    const size_t equals = pair.find('=');
    const std::string_view theirs = std::string_view(pair).substr(0, equals);
    if (theirs == text || theirs == other) return pair.substr(equals + 1);
  }
  return std::nullopt;
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

// What a user would call the place of a section.
std::string section_title(std::string_view path) {
  if (path.empty()) return "at the top level";
  if (path == "datasets" || path == "lr_groups") return "in an entry of '" + std::string(path) + "'";
  return "under '" + std::string(path) + "'";
}

std::vector<std::string> names_of(const Section& section) {
  std::vector<std::string> names;
  if (section.path.empty()) {
    for (const auto& key : recipe_keys()) names.emplace_back(key.name);
  } else if (section.path == "datasets") {
    for (const auto& key : dataset_keys()) names.emplace_back(key.name);
  } else if (section.path == "lr_groups") {
    for (const auto& key : lr_group_keys()) names.emplace_back(key.name);
  }
  for (const ForeignKey& key : section.keys) {
    if (key.rule != Rule::Hint && !key.name.ends_with('*')) names.emplace_back(key.name);
  }
  return names;
}

// Where else a key would be right: "under 'fsdp_config'"; "" when nowhere.
std::string other_home(const Section& here, std::string_view key) {
  for (const Key<Recipe>& candidate : recipe_keys()) {
    if (!std::holds_alternative<std::map<std::string, std::string> Recipe::*>(candidate.field)) continue;
    for (const Choice& choice : candidate.choices) {
      if (choice.name == key) return section_title(candidate.name);
    }
  }
  for (const Section& other : sections()) {
    if (&other == &here || other.path == kTrainerSection) continue;
    // DeepSpeed's words are so common that only its own file means them.
    if (other.path.starts_with("deepspeed") && !here.path.starts_with("deepspeed")) continue;
    const std::vector<std::string> names = names_of(other);
    if (std::find(names.begin(), names.end(), key) != names.end()) return section_title(other.path);
  }
  return "";
}

class Translator {
 public:
  Translator(const std::string& folder, Problems& problems) : folder_(folder), problems_(problems) {}

  Node run(const std::vector<SourceFile>& files) {
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

 private:
  // One key on its way: where it was written and where its translation goes.
  struct Origin {
    const Entry& entry;
    const std::string& path;  // as the user wrote it
    Node& out;
  };

  void translate_map(const Node& map, const Section& section, const std::string& prefix, Node& out) {
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
        problems_.add(key != nullptr ? key->target : path, place,
                      unknown_key(section, entry, name, path, key));
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

  // The native key that a translation sets: beside it in a dataset's entry, else at the top.
  static std::string native_path(const ForeignKey& key, const Section& section, const std::string& prefix) {
    return (section.path == "datasets" ? prefix : "") + std::string(key.target);
  }

  void apply(const ForeignKey& key, const Origin& origin) {
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
        if (!is_off(value, key.values)) {
          throw config_error("UNSUPPORTED", "key '" + origin.path + "': " + std::string(key.target),
                             origin.entry.key_place)
              .got(describe(value));
        }
        break;
      case Rule::Enter:
        if (!value.is_map()) throw type_error(origin, "a map");
        translate_map(value, section(key.target), origin.path + '.', origin.out);
        break;
      case Rule::Special: apply_special(key, origin); break;
    }
  }

  void map_value(const ForeignKey& key, const Origin& origin) {
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
      auto ours = look_up(key.values, canonical(word));
      if (!ours) ours = look_up(key.values, "*");
      if (!ours || *ours == kUnbuiltValue) throw refused_value(key, origin, word, ours.has_value());
      if (!ours->empty()) set_native(key.target, make_scalar(*ours, word.place), origin);
    }
  }

  // A value that a Map does not take: one that is known and not built, or a mistake.
  static Error refused_value(const ForeignKey& key, const Origin& origin, const Node& word, bool is_known) {
    std::vector<std::string> names;
    for (const std::string& pair : split_words(key.values, " ")) {
      const size_t equals = pair.find('=');
      if (pair.substr(equals + 1) != kUnbuiltValue) names.push_back(pair.substr(0, equals));
    }
    Error error = config_error(
        is_known ? "UNSUPPORTED" : "VALUE",
        "key '" + origin.path + "': " + (is_known ? "this value is not built" : "unknown value"), word.place);
    error.got(describe(word)).need(join(names, ", "));
    if (canonical(word).find("hybrid") != std::string::npos)
      return error.hint("dp_replicate_size and dp_shard_size say over which ranks");
    const std::string near = is_known ? "" : nearest_name(canonical(word), names);
    if (!near.empty()) error.hint("did you mean '" + near + "'?");
    return error;
  }

  void apply_special(const ForeignKey& key, const Origin& origin) {
    const Node& value = origin.entry.value;
    if (is_off(value, "") && key.target != "batch_size") return;
    if (key.target == "deepspeed") {
      if (value.is_map()) {
        translate_map(value, section("deepspeed"), origin.path + '.', origin.out);
      } else if (value.is_scalar()) {
        read_deepspeed_file(origin);
      } else {
        throw type_error(origin, "the path of a DeepSpeed JSON file, or a map");
      }
    } else if (key.target == "betas") {
      const Node betas = list_of(value);
      if (!betas.is_sequence() || betas.items.size() != 2) throw type_error(origin, "a list of 2 numbers");
      set_native("adam_beta1", betas.items[0], origin);
      set_native("adam_beta2", betas.items[1], origin);
    } else if (key.target == "optim_args") {
      translate_map(value.is_map() ? value : assignments_of(value, origin), section("optim_args"),
                    origin.path + '.', origin.out);
    } else if (key.target == "report_to") {
      set_trackers(origin);
    } else if (key.target == "run_name") {
      set_native("wandb_name", value, origin);
      set_native("mlflow_run_name", value, origin);
    } else if (key.target == "deepspeed_scheduler") {
      if (!value.is_map()) throw type_error(origin, "a map");
      const Entry* params = value.find("params");
      if (params == nullptr || !params->value.is_map() || params->value.find("warmup_type") == nullptr) {
        const KeyPlace place = to_key_place(origin.entry.key_place);
        problems_.warn(place.file + ':' + std::to_string(place.line) + ": key '" + origin.path +
                       "': the warm-up is linear; DeepSpeed's is logarithmic unless warmup_type says linear");
      }
      translate_map(value, section("deepspeed.scheduler"), origin.path + '.', origin.out);
    } else if (key.target == "deepspeed_wandb") {
      set_wandb(origin);
    } else if (key.target == "model_type") {
      check_model_type(origin);
    } else if (key.target == "plugins") {
      check_plugins(origin);
    } else if (key.target == "named_datasets") {
      // Their entries have keys of their own, which names of ours must lead to.
      const std::string list = key.name == "eval_dataset" ? "test_datasets" : "datasets";
      set_native(list, named_datasets(value, key.name == "dataset_name"), {origin.entry, list, origin.out});
    } else if (key.target == "pretraining") {
      // As with named datasets: names of ours must lead to their entries' keys.
      const std::string list = "datasets";
      set_native(list, documents(value), {origin.entry, list, origin.out});
      set_native("streaming", make_scalar("true", value.place), origin);
    } else if (key.target == "lora_target") {
      const Node names = list_of(value);
      const bool is_all =
          names.items.size() == 1 && (names.items[0].text == "all" || names.items[0].text == "all-linear");
      if (is_all) return set_native("lora_target_linear", make_scalar("true", value.place), origin);
      set_native("lora_target_modules", names, origin);
    } else if (key.target == "lora_modules_to_save") {
      set_native(key.target, list_of(value), origin);
    } else if (key.target == "max_steps") {
      if (value.text != "-1") set_native(key.target, value, origin);
    } else if (key.target == "resume") {
      const bool is_switch = canonical(value) == "true";
      set_native(is_switch ? "auto_resume_from_checkpoints" : "resume_from_checkpoint", value, origin);
    } else if (key.target == "batch_size") {
      // Rows of a step and a rank; applied when micro_batch_size is known.
      set_native("batch_size", value, origin);
    } else {
      // message_field_role: from  ->  message_property_mappings: {role: from}
      const size_t dot = key.target.find('.');
      Entry* map = origin.out.find(key.target.substr(0, dot));
      if (map == nullptr) {
        Node fresh;
        fresh.kind = Node::Kind::Map;
        fresh.place = value.place;
        origin.out.entries.push_back(
            {std::string(key.target.substr(0, dot)), origin.entry.key_place, fresh, ""});
        map = &origin.out.entries.back();
      }
      const std::string property(key.target.substr(dot + 1));
      if (const Entry* other = map->value.find(property)) {
        if (!same_value(property, other->value, value)) throw conflict(*other, origin, value);
        return;
      }
      map->value.entries.push_back({property, origin.entry.key_place, value, ""});
    }
  }

  // "beta1=0.9, eps=1e-6" as a map.
  static Node assignments_of(const Node& value, const Origin& origin) {
    if (!value.is_scalar()) throw type_error(origin, "a map, or a text key=value, key=value");
    Node map;
    map.kind = Node::Kind::Map;
    map.place = value.place;
    for (const std::string& pair : split_words(value.text, " ,")) {
      const size_t equals = pair.find('=');
      if (equals == std::string::npos || equals == 0 || equals + 1 == pair.size())
        throw type_error(origin, "a map, or a text key=value, key=value");
      map.entries.push_back({pair.substr(0, equals), origin.entry.key_place,
                             make_scalar(pair.substr(equals + 1), value.place), ""});
    }
    return map;
  }

  // Transformers' report_to.
  void set_trackers(const Origin& origin) {
    const Node names = list_of(origin.entry.value);
    if (!names.is_sequence()) throw type_error(origin, "a name, or a list of names");
    for (const Node& name : names.items) {
      if (!name.is_scalar()) throw type_error(origin, "a name, or a list of names");
      const std::string tracker = lower(name.text);
      if (tracker == "wandb" || tracker == "mlflow") {
        set_native("use_" + tracker, make_scalar("true", name.place), origin);
      } else if (tracker != "none" && tracker != "tensorboard") {
        note_ignored(origin);
      }
    }
  }

  // DeepSpeed's {"wandb": {"enabled": true, "project": ..., "team": ...}}.
  void set_wandb(const Origin& origin) {
    const Node& map = origin.entry.value;
    if (!map.is_map()) throw type_error(origin, "a map");
    const Entry* enabled = map.find("enabled");
    if (enabled == nullptr || is_off(enabled->value, "auto")) return;
    set_native("use_wandb", enabled->value, origin);
    for (const auto& [theirs, ours] :
         {std::pair("project", "wandb_project"), std::pair("team", "wandb_entity")}) {
      if (const Entry* entry = map.find(theirs)) set_native(ours, entry->value, origin);
    }
  }

  // A list, or the names of a text that are separated by commas or spaces.
  static Node list_of(const Node& value) {
    if (!value.is_scalar()) return value;
    Node list;
    list.kind = Node::Kind::Sequence;
    list.place = value.place;
    for (const std::string& name : split_words(value.text, " ,")) {
      list.items.push_back(make_scalar(name, value.place));
      list.items.back().is_quoted = true;
    }
    return list;
  }

  // The entries of `datasets` that names stand for: of LLaMA-Factory's dataset_info.json, or of the hub.
  Node named_datasets(const Node& value, bool is_of_hub) {
    const Entry* folder = file_->find("dataset_dir");
    const bool has_folder = folder != nullptr && folder->value.is_scalar();
    const std::string info = (has_folder ? folder->value.text : "data") + "/dataset_info.json";
    Node names = list_of(value);
    for (Node& name : names.items) {
      Node entry;
      entry.kind = Node::Kind::Map;
      entry.place = name.place;
      const auto add = [&](const char* key, const std::string& text) {
        entry.entries.push_back({key, name.place, make_scalar(text, name.place), ""});
        entry.entries.back().value.is_quoted = true;
      };
      add("path", is_of_hub ? name.text : info);
      if (!is_of_hub) {
        add("type", "llama_factory");
        add("name", name.text);
      } else {
        problems_.warn("dataset '" + name.text + "': the type of its rows must be set by hand");
      }
      name = std::move(entry);
    }
    return names;
  }

  // The entries of `datasets` that a path, a map or a list of these stands for: documents to concatenate.
  static Node documents(const Node& value) {
    Node list = value;
    if (!value.is_sequence()) {
      list = Node();
      list.kind = Node::Kind::Sequence;
      list.place = value.place;
      list.items.push_back(value);
    }
    for (Node& item : list.items) {
      if (item.is_scalar()) {
        Node entry;
        entry.kind = Node::Kind::Map;
        entry.place = item.place;
        entry.entries.push_back({"path", item.place, item, ""});
        item = std::move(entry);
      }
      const Entry* type = item.is_map() ? item.find("type") : nullptr;
      if (!item.is_map() || (type != nullptr && !type->value.is_null())) continue;
      if (type != nullptr) item.erase("type");
      item.entries.push_back({"type", item.place, make_scalar("pretrain", item.place), ""});
    }
    return list;
  }

  // The folder's config.json decides; a class of another kind of model cannot be what it asks for.
  void check_model_type(const Origin& origin) {
    const Node& value = origin.entry.value;
    if (!value.is_scalar()) throw type_error(origin, "text");
    for (const std::string_view kind : {"Classification", "ImageTextToText", "ConditionalGeneration",
                                        "QuestionAnswering", "SpeechSeq2Seq", "Seq2SeqLM", "Vision2Seq"}) {
      if (value.text.find(kind) == std::string::npos) continue;
      throw config_error("UNSUPPORTED",
                         "key '" + origin.path +
                             "': this kind of model is not built yet; only language "
                             "models that write text after text are",
                         value.place)
          .got(describe(value));
    }
    if (!value.text.ends_with("ForCausalLM")) note_ignored(origin);
  }

  // Plugins that choose kernels or report somewhere change no result; others would have to run.
  void check_plugins(const Origin& origin) {
    const Node& value = origin.entry.value;
    const std::vector<Node> one = {value};
    for (const Node& plugin : value.is_sequence() ? value.items : one) {
      if (!plugin.is_scalar()) throw type_error(origin, "a list of names");
      const std::string name = plugin.text.substr(plugin.text.rfind('.') + 1);
      const auto is = [&](std::string_view other) { return name == std::string(other) + "Plugin"; };
      if (is("Liger") || is("CutCrossEntropy") || is("Kernels") || is("ExpertParallel")) continue;
      if (is("SwanLab") || is("LMEval")) {
        note_ignored(origin);
        continue;
      }
      throw config_error("UNSUPPORTED",
                         "key '" + origin.path +
                             "': plugins (Python classes) cannot be loaded, and this one "
                             "may change what is trained",
                         plugin.place)
          .got(describe(plugin))
          .need("plugins for kernels alone, such as LigerPlugin or CutCrossEntropyPlugin");
    }
  }

  void read_deepspeed_file(const Origin& origin) {
    namespace fs = std::filesystem;
    const std::string& name = origin.entry.value.text;
    std::error_code ignored;
    std::string path = name;
    if (!fs::exists(path, ignored) && fs::path(name).is_relative()) {
      const Place& place = origin.entry.value.place;
      const fs::path own_folder = place.file && !place.is_override ? fs::path(*place.file).parent_path() : "";
      for (const fs::path& folder : {own_folder, fs::path(folder_)}) {
        if (path == name && fs::exists(folder / name, ignored)) path = (folder / name).string();
      }
    }
    if (!fs::exists(path, ignored)) {
      throw config_error("NOT-FOUND", "key '" + origin.path + "': no such file", origin.entry.value.place)
          .got(describe(origin.entry.value))
          .need("a DeepSpeed JSON file")
          .hint("of the usual zero1, zero2 and zero3 files zero_stage: 1, 2 or 3 says as much");
    }
    Place file;
    file.file = std::make_shared<const std::string>(path);
    const Node document = parse_yaml(read_config_file(path), file);
    if (!document.is_map()) {
      throw config_error("TYPE", "a DeepSpeed configuration is a JSON object", document.place)
          .got(describe(document));
    }
    // Keys are named as that file has them.
    translate_map(document, section("deepspeed"), "", origin.out);
  }

  // Adds a native key, unless another spelling already gave the same value.
  void set_native(std::string_view key, const Node& value, const Origin& origin) {
    if (value.is_null()) {
      if (key != "roles_to_train" && key != "train_on_eos") return;
      // Both blank is how one asks for the last message alone.
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
      origin.out.entries.push_back(
          {"train_on_eos", origin.entry.key_place, make_scalar("", value.place), ""});
      problems_.warn("keys 'roles_to_train' and 'train_on_eos' are blank: the last message alone is trained");
      return;
    }
    if ((key == "rl" || key == "eot_tokens") && is_off(value, "")) return;
    if (key == "type" && value.is_map()) return set_own_format(value, origin);
    const std::string_view entries = entries_of(key);
    Node translated = entries.empty() ? value : translate_entries(value, section(entries), origin);
    if (key == "type") translated.text = dataset_type(value.text);
    Entry entry{std::string(key), origin.entry.key_place, std::move(translated),
                origin.path == key ? std::string() : origin.path};
    if (key == "lora_target_modules") rename_target_text(entry);
    Entry* other = origin.out.find(entry.key);
    if (other == nullptr) {
      origin.out.entries.push_back(std::move(entry));
      return;
    }
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

  // Values that leave a decision to another spelling of the key: FSDP's switch stands beside
  // `gradient_checkpointing: false`, DeepSpeed's `bf16.enabled` beside `bf16: auto`.
  static bool yields(std::string_view key, const Node& value) {
    return (key == "gradient_checkpointing" && is_off(value, "")) ||
           (key == "dtype" && value.is_scalar() && value.text == "auto");
  }

  // `type: {format: ...}` is type user_defined, with the map's keys beside it.
  void set_own_format(const Node& map, const Origin& origin) {
    constexpr std::string_view kKeys[] = {
        "system_prompt", "system_format",    "field_system",    "field_instruction", "field_input",
        "field_output",  "format",           "no_input_format", "field_prompt",      "prompt_format",
        "field_chosen",  "chosen_format",    "field_rejected",  "rejected_format",   "field_completion",
        "field_label",   "completion_format"};
    for (const Entry& entry : map.entries) {
      const std::string path = origin.path + '.' + entry.key;
      const Origin inner{entry, path, origin.out};
      if (std::find(std::begin(kKeys), std::end(kKeys), entry.key) == std::end(kKeys)) {
        const std::vector<std::string> names(std::begin(kKeys), std::end(kKeys));
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

  // Names that mean the same type.
  static std::string dataset_type(const std::string& name) {
    if (name == "chat_template.default") return "chat_template";
    if (name == "alpaca:instruct" || name == "alpaca_instruct") return "alpaca";
    if (name == "alpaca:chat") return "alpaca_chat";
    for (const char* const suffix : {".load", ".default"}) {
      if (name.ends_with(suffix))
        return dataset_type(name.substr(0, name.size() - std::string_view(suffix).size()));
    }
    return name;
  }

  // A text instead of a list is a regular expression over module names, or PEFT's "all-linear".
  static void rename_target_text(Entry& entry) {
    if (!entry.value.is_scalar()) return;
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

  Node translate_entries(const Node& list, const Section& entries, const Origin& origin) {
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
      apply_sharegpt(translated);
      out.items[i] = std::move(translated);
    }
    return out;
  }

  void warn_blank(Node& dataset) {
    for (const char* const key : {"roles_to_train", "train_on_eos"}) {
      const std::string name = std::string(key) + kBlank;
      const Entry* blank = dataset.find(name);
      if (blank == nullptr) continue;
      problems_.warn("key '" + blank->origin + "' is blank: its default holds");
      dataset.erase(name);
    }
  }

  // Old ShareGPT rows: {conversations: [{from: human, value: ...}]}.
  void apply_sharegpt(Node& dataset) {
    const Entry* type = dataset.find("type");
    if (type == nullptr || type->value.text != "sharegpt") return;
    const Place place = type->value.place;
    if (dataset.find("field_messages") == nullptr && dataset.find("message_property_mappings") == nullptr) {
      problems_.warn((place.file ? *place.file + ':' + std::to_string(place.line) + ": " : std::string()) +
                     "type: sharegpt is read as type: chat_template with field_messages: conversations and "
                     "message_property_mappings: {role: from, content: value}");
    }
    if (dataset.find("field_messages") == nullptr) {
      dataset.entries.push_back({"field_messages", place, make_scalar("conversations", place), ""});
    }
    if (dataset.find("message_property_mappings") == nullptr) {
      Node map;
      map.kind = Node::Kind::Map;
      map.place = place;
      map.entries.push_back({"role", place, make_scalar("from", place), ""});
      map.entries.push_back({"content", place, make_scalar("value", place), ""});
      dataset.entries.push_back({"message_property_mappings", place, std::move(map), ""});
    }
  }

  static Error type_error(const Origin& origin, std::string_view need) {
    return config_error("TYPE", "key '" + origin.path + "': wrong type", origin.entry.value.place)
        .got(describe(origin.entry.value))
        .need(need);
  }

  static Error conflict(const Entry& other, const Origin& origin, const Node& value) {
    const Place& here = origin.entry.key_place;
    return config_error("CONFLICT",
                        "keys '" + other.name_in_file() + "' (" + describe_place(other.key_place, here) +
                            ") and '" + origin.path + "' (" + describe_place(here, here) + ") disagree",
                        here)
        .got(describe(other.value) + " and " + describe(value))
        .hint("keep one of them");
  }

  // `name`: the entry's key without the section's prefix.
  static Error unknown_key(const Section& section, const Entry& entry, std::string_view name,
                           const std::string& path, const ForeignKey* other_name) {
    Error error = config_error("UNKNOWN-KEY", "unknown key '" + path + "'", entry.key_place);
    if (other_name != nullptr) return error.hint("did you mean '" + std::string(other_name->target) + "'?");
    const std::string home = other_home(section, name);
    if (!home.empty()) return error.hint("'" + entry.key + "' belongs " + home);
    const std::string near = nearest_name(name, names_of(section));
    if (!near.empty()) return error.hint("did you mean '" + near + "'?");
    return error;
  }

  void note_ignored(const Origin& origin) {
    const Place& place = origin.entry.key_place;
    const std::string file = place.file ? *place.file : "";
    auto group =
        std::find_if(ignored_.begin(), ignored_.end(), [&](const auto& g) { return g.first == file; });
    if (group == ignored_.end()) group = ignored_.insert(group, {file, {}});
    group->second.push_back(origin.path +
                            (place.is_override ? "" : " (line " + std::to_string(place.line) + ')'));
  }

  void warn_ignored() {
    for (const auto& [file, keys] : ignored_)
      problems_.warn((file.empty() ? "" : file + ": ") + "accepted without effect: " + join(keys, ", "));
  }

  const std::string& folder_;
  Problems& problems_;
  const Node* file_ = nullptr;                                             // that is being translated
  std::vector<std::pair<std::string, std::vector<std::string>>> ignored_;  // keys of each file
};

}  // namespace

Node translate(const std::vector<SourceFile>& files, const std::string& folder, Problems& problems) {
  return Translator(folder, problems).run(files);
}

std::vector<std::string> all_key_paths() {
  std::vector<std::string> paths;
  for (const Section& section : sections()) {
    if (section.path == kTrainerSection) continue;
    std::string prefix(section.path);
    if (prefix == "datasets" || prefix == "lr_groups") prefix += ".0";
    if (!prefix.empty()) prefix += '.';
    for (const std::string& name : names_of(section)) paths.push_back(prefix + name);
  }
  for (const Key<Recipe>& key : recipe_keys()) {
    if (!std::holds_alternative<std::map<std::string, std::string> Recipe::*>(key.field)) continue;
    for (const Choice& choice : key.choices)
      paths.push_back(std::string(key.name) + '.' + std::string(choice.name));
  }
  return paths;
}

}  // namespace tessera::config

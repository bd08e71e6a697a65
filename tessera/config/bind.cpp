#include "tessera/config/bind.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>
#include <strings.h>

#include "tessera/config/scalar.h"
#include "tessera/config/schema.h"
#include "tessera/core/strings.h"

namespace tessera::config {
namespace {

// A value on its way into a field: the node, the key path for messages, and the key's table line.
struct Source {
  const Node& node;
  const std::string& path;
  double low, high;
  std::span<const Choice> choices;
  Problems& problems;
};

std::string format_range(double low, double high) {
  constexpr double kTiny = std::numeric_limits<double>::min();
  const std::string from = low == kTiny ? "above 0" : "at least " + format_number(low);
  if (high >= kUnbounded) return "a number " + from;
  const bool is_open = high < 1.0 && high > 0.9999;
  return "a number " + from + (is_open ? " and below 1" : " and at most " + format_number(high));
}

Error key_error(std::string_view name, const std::string& what, const Source& source) {
  return config_error(name, "key '" + source.path + "': " + what, source.node.place)
      .got(describe(source.node));
}

Error type_error(const Source& source, std::string_view need) {
  return key_error("TYPE", "wrong type", source).need(need);
}

void check_range(double value, const Source& source) {
  if (value < source.low || value > source.high) {
    throw key_error("RANGE", "out of range", source).need(format_range(source.low, source.high));
  }
}

// Lists all names, or the first few of many and the command that lists all.
std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kMost = 24, kSome = 8;
  if (names.size() <= kMost) return join(names, ", ");
  return join({names.begin(), names.begin() + kSome}, ", ") + ", ... (`tessera recipe keys` lists all " +
         std::to_string(names.size()) + ")";
}

// Returns the values that an error message offers.
std::vector<std::string> choice_names(const Source& source) {
  std::vector<std::string> names;
  for (const Choice& choice : source.choices) {
    if (choice.value != kNotBuilt && !choice.name.empty()) names.emplace_back(choice.name);
  }
  return names;
}

// Compares without case; Choice::name says what a * in `name` stands for.
bool is_named(std::string_view name, std::string_view text) {
  const auto equal = [](std::string_view a, std::string_view b) {
    return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), a.size()) == 0;
  };
  if (name == "*.*") return text.find('.') != std::string_view::npos;
  if (!name.ends_with('*')) return equal(name, text);
  name.remove_suffix(1);
  return text.size() >= name.size() && equal(name, text.substr(0, name.size()));
}

const Choice& find_choice(const std::string& text, const Source& source) {
  for (const Choice& choice : source.choices) {
    if (is_named(choice.name, text)) {
      if (choice.value == kNotBuilt) {
        Error error = config_error("UNSUPPORTED",
                                   "key '" + source.path + "': '" + text + "': " + std::string(choice.note),
                                   source.node.place);
        // A note that says what to write instead does so behind a semicolon; then no list is needed.
        if (choice.note.find("; ") == choice.note.npos) error.need(some_of(choice_names(source)));
        throw error;
      }
      if (!choice.note.empty()) {
        source.problems.warn(place_prefix(source.node.place) + "key '" + source.path + "': '" + text +
                             "': " + std::string(choice.note));
      }
      return choice;
    }
  }
  const std::vector<std::string> names = choice_names(source);
  Error error = key_error("VALUE", "unknown value", source).need(some_of(names));
  const std::string near = nearest_name(text, names);
  if (!near.empty()) error.hint("did you mean '" + near + "'?");
  throw error;
}

// Returns the scalar's text. If it is an unquoted YAML boolean that the key does not list, returns the word
// of the key that means the same, so that `off` selects `no` or `none`.
std::string choice_text(const Source& source) {
  const auto takes = [&](std::string_view word) {
    return std::any_of(source.choices.begin(), source.choices.end(),
                       [&](const Choice& choice) { return is_named(choice.name, word); });
  };
  const auto value = source.node.is_quoted ? std::nullopt : parse_bool(source.node.text);
  if (!value || takes(source.node.text)) return source.node.text;
  for (const char* word : {"true", "yes", "false", "no", "none"}) {
    if (*parse_bool(word == std::string_view("none") ? "no" : word) == *value && takes(word)) return word;
  }
  return source.node.text;
}

void read(const Source& source, bool& out) {
  if (source.node.is_scalar()) {
    const auto value = parse_bool(source.node.text);
    if (value && (!source.node.is_quoted || source.node.text == "true" || source.node.text == "false")) {
      out = *value;
      return;
    }
  }
  throw type_error(source, "true or false");
}

void read(const Source& source, std::optional<bool>& out) { read(source, out.emplace()); }

void read(const Source& source, int64_t& out) {
  if (!source.node.is_scalar()) throw type_error(source, "a whole number");
  const ParsedInteger parsed = parse_integer(source.node.text);
  switch (parsed.status) {
    case IntegerStatus::NotANumber:
    case IntegerStatus::NotWhole: throw type_error(source, "a whole number");
    case IntegerStatus::Overflow:
      throw key_error("RANGE", "out of range", source).need(format_range(source.low, source.high));
    case IntegerStatus::Ok: break;
  }
  check_range(static_cast<double>(parsed.value), source);
  out = parsed.value;
}

void read(const Source& source, double& out) {
  const auto value = source.node.is_scalar() ? parse_number(source.node.text) : std::nullopt;
  if (!value) throw type_error(source, "a number");
  if (!std::isfinite(*value)) throw key_error("RANGE", "not a finite number", source).need("a finite number");
  check_range(*value, source);
  out = *value;
}

void read(const Source& source, std::optional<int64_t>& out) { read(source, out.emplace()); }
void read(const Source& source, std::optional<double>& out) { read(source, out.emplace()); }

void read(const Source& source, std::string& out) {
  if (!source.node.is_scalar()) throw type_error(source, "text");
  if (!source.choices.empty()) {
    const std::string_view name = find_choice(choice_text(source), source).name;
    out = name.ends_with('*') ? source.node.text : std::string(name);
    return;
  }
  if (!source.node.is_quoted && parse_bool(source.node.text)) {
    throw type_error(source, "text").hint("quote it if it is meant as text");
  }
  out = source.node.text;
}

void read(const Source& source, DeviceChoice& out) {
  std::string text;
  read(source, text);
  const auto device = DeviceChoice::parse(text);
  if (!device) throw key_error("VALUE", "not a device number", source).need("cuda:0, cuda:1, ...");
  out = *device;
}

// Reads a list; a scalar counts as a list of one item.
template <class Value>
void read(const Source& source, std::vector<Value>& out) {
  out.clear();
  if (source.node.is_scalar()) {
    read(source, out.emplace_back());
    return;
  }
  if (!source.node.is_sequence()) {
    throw type_error(source,
                     std::is_same_v<Value, std::string> ? "a list of texts" : "a list of whole numbers");
  }
  for (size_t i = 0; i < source.node.items.size(); ++i) {
    const std::string path = source.path + '.' + std::to_string(i);
    read(Source{source.node.items[i], path, source.low, source.high, source.choices, source.problems},
         out.emplace_back());
  }
}

void read(const Source& source, std::optional<std::vector<std::string>>& out) { read(source, out.emplace()); }

template <class Value>
void read(const Source& source, std::map<std::string, Value>& out) {
  if (!source.node.is_map()) throw type_error(source, "a map");
  out.clear();
  const auto read_entry = [&](const Entry& entry) {
    const std::string path = source.path + '.' + entry.key;
    if (!source.choices.empty()) {
      std::vector<std::string> names;
      for (const Choice& choice : source.choices) names.emplace_back(choice.name);
      const auto known = std::find(names.begin(), names.end(), entry.key);
      if (known == names.end()) {
        Error error = config_error("UNKNOWN-KEY", "unknown key '" + path + "'", entry.key_place)
                          .need(join(names, ", "));
        const std::string near = nearest_name(entry.key, names);
        if (!near.empty()) error.hint("did you mean '" + near + "'?");
        throw error;
      }
      const Choice& choice = source.choices[static_cast<size_t>(known - names.begin())];
      if (choice.value == kNotBuilt && !entry.value.is_null()) {
        throw config_error("UNSUPPORTED", "key '" + path + "': " + std::string(choice.note), entry.key_place);
      }
    }
    if (entry.value.is_null()) return;
    read(Source{entry.value, path, source.low, source.high, {}, source.problems}, out[entry.key]);
  };
  for (const Entry& entry : source.node.entries) {
    source.problems.attempt(source.path, to_key_place(entry.key_place), [&] { read_entry(entry); });
  }
}

// Reads a map in the order of the file.
template <class Value>
void read(const Source& source, NamePatterns<Value>& out) {
  if (!source.node.is_map()) throw type_error(source, "a map from names of layers to numbers");
  out.clear();
  for (const Entry& entry : source.node.entries) {
    if (entry.value.is_null()) continue;
    const std::string path = source.path + '.' + entry.key;
    source.problems.attempt(path, to_key_place(entry.key_place), [&] {
      Value value{};
      read(Source{entry.value, path, source.low, source.high, {}, source.problems}, value);
      out.emplace_back(entry.key, value);
    });
  }
}

template <class T>
void bind_map(const Node& map, std::span<const Key<T>> keys, const std::string& prefix, T& out,
              std::map<std::string, KeyPlace>& places, Problems& problems);

// Throws E-CONFIG-MISSING unless an entry of `datasets` or `lr_groups` holds the keys that it cannot be
// without.
void check_entry(const DatasetConfig& dataset, const Node& item, const std::string& path,
                 const Problems& problems) {
  if (dataset.path.empty() && !problems.has(path + ".path")) {
    throw config_error("MISSING", "missing key '" + path + ".path'", item.place).need("a file or folder");
  }
}

void check_entry(const LrGroup& group, const Node& item, const std::string& path, const Problems& problems) {
  if (group.modules.empty() && !problems.has(path + ".modules")) {
    throw config_error("MISSING", "missing key '" + path + ".modules'", item.place)
        .need("parts of the names of parameters");
  }
  if (item.find("lr") == nullptr) {
    throw config_error("MISSING", "missing key '" + path + ".lr'", item.place).need("a learning rate");
  }
}

void set_source(DatasetConfig& dataset, const Place& place) {
  dataset.source_file = place.file ? *place.file : "";
  dataset.source_line = place.line;
}
void set_source(LrGroup&, const Place&) {}

template <class Item>
void read_entries(const Source& source, std::span<const Key<Item>> keys, const std::string& with,
                  std::vector<Item>& out, std::map<std::string, KeyPlace>& places) {
  if (!source.node.is_sequence()) throw type_error(source, "a list of maps " + with);
  out.clear();
  for (size_t i = 0; i < source.node.items.size(); ++i) {
    const Node& item = source.node.items[i];
    const std::string path = source.path + '.' + std::to_string(i);
    Item& entry = out.emplace_back();
    set_source(entry, item.place);
    source.problems.attempt(path, to_key_place(item.place), [&] {
      if (!item.is_map()) throw type_error({item, path, 0, 0, {}, source.problems}, "a map " + with);
      bind_map(item, keys, path + '.', entry, places, source.problems);
      check_entry(entry, item, path, source.problems);
    });
  }
}

template <class T>
void bind_map(const Node& map, std::span<const Key<T>> keys, const std::string& prefix, T& out,
              std::map<std::string, KeyPlace>& places, Problems& problems) {
  for (const Entry& entry : map.entries) {
    const auto key =
        std::find_if(keys.begin(), keys.end(), [&](const Key<T>& k) { return k.name == entry.key; });
    TESSERA_ASSERT(key != keys.end(), "a key that is not native reached binding: " + entry.key);
    if (entry.value.is_null()) continue;
    const std::string path = entry.origin.empty() ? prefix + entry.key : entry.origin;
    const Source source{entry.value, path, key->low, key->high, key->choices, problems};
    places[prefix + entry.key] = to_key_place(entry.key_place);
    if (entry.origin != prefix + entry.key) places[prefix + entry.key].written_as = entry.origin;
    for (const Entry& inner : entry.value.entries) {
      places[prefix + entry.key + '.' + inner.key] = to_key_place(inner.key_place);
    }
    const auto bind_field = [&](auto field) {
      if constexpr (std::is_same_v<decltype(field), EnumField<T>>) {
        if (!entry.value.is_scalar()) throw type_error(source, join(choice_names(source), ", "));
        field.set(out, find_choice(choice_text(source), source).value);
      } else if constexpr (std::is_same_v<decltype(field), std::vector<DatasetConfig> T::*>) {
        read_entries(source, dataset_keys(), "with 'path' and 'type'", out.*field, places);
      } else if constexpr (std::is_same_v<decltype(field), std::vector<LrGroup> T::*>) {
        read_entries(source, lr_group_keys(), "with 'modules' and 'lr'", out.*field, places);
      } else {
        read(source, out.*field);
      }
    };
    problems.attempt(prefix + entry.key, to_key_place(entry.key_place),
                     [&] { std::visit(bind_field, key->field); });
  }
}

std::string quote(const std::string& text) { return nlohmann::json(text).dump(); }
std::string write(bool value) { return value ? "true" : "false"; }
std::string write(const std::optional<bool>& value) { return write(*value); }
std::string write(int64_t value) { return std::to_string(value); }
std::string write(double value) { return format_number(value); }
std::string write(const std::optional<int64_t>& value) { return write(*value); }
std::string write(const std::optional<double>& value) { return write(*value); }
std::string write(const std::string& value) { return quote(value); }
std::string write(const DeviceChoice& value) { return quote(value.text()); }
template <class Value>
std::string write(const std::vector<Value>& value) {
  return nlohmann::json(value).dump();
}
std::string write(const std::optional<std::vector<std::string>>& value) { return write(*value); }
template <class Value>
std::string write(const NamePatterns<Value>& value) {
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  for (const auto& [name, item] : value) map[name] = item;
  return map.dump();
}
template <class Value>
std::string write(const std::map<std::string, Value>& value) {
  return nlohmann::json(value).dump();
}

std::span<const Key<DatasetConfig>> keys_of(const DatasetConfig&) { return dataset_keys(); }
std::span<const Key<LrGroup>> keys_of(const LrGroup&) { return lr_group_keys(); }

template <class T, class F>
constexpr bool is_list_of_maps =
    std::is_same_v<F, std::vector<DatasetConfig> T::*> || std::is_same_v<F, std::vector<LrGroup> T::*>;

// The keys that write_map() writes, and the comments that it puts behind them.
struct Writing {
  const std::map<std::string, KeyPlace>& places;
  KeysToWrite keys;
  PlacesToWrite comments;

  bool skips(const std::string& path) const { return keys == KeysToWrite::Given && !places.contains(path); }
  // Returns the comment for the key at `path`, to stand behind a line of `length` characters.
  std::string comment(const std::string& path, size_t length) const {
    constexpr size_t kColumn = 48;
    if (comments == PlacesToWrite::None) return "";
    const auto place = places.find(path);
    std::string text = "default";
    if (place != places.end()) {
      const KeyPlace& at = place->second;
      text = place_text(at) + (at.written_as.empty() ? "" : " (" + at.written_as + ')');
    }
    return std::string(length < kColumn ? kColumn - length : 1, ' ') + "# " + text;
  }
};

template <class T>
void write_map(const T& object, std::span<const Key<T>> keys, const std::string& prefix,
               const std::string& first, const std::string& indent, const Writing& writing,
               std::string& out) {
  const T defaults;
  bool is_first = true;
  for (const Key<T>& key : keys) {
    const std::string path = prefix + std::string(key.name);
    std::string value;
    bool is_skipped = writing.skips(path);
    if (is_skipped) continue;
    std::visit(
        [&](auto field) {
          using F = decltype(field);
          if constexpr (std::is_same_v<F, EnumField<T>>) {
            const int number = field.get(object);
            for (const Choice& choice : key.choices) {
              if (choice.value == number) {
                value = quote(std::string(choice.name));
                break;
              }
            }
          } else if constexpr (is_list_of_maps<T, F>) {
            for (size_t i = 0; i < (object.*field).size(); ++i) {
              const auto& item = (object.*field)[i];
              value += '\n';
              write_map(item, keys_of(item), path + '.' + std::to_string(i) + '.', "  - ", "    ", writing,
                        value);
              value.pop_back();
            }
            if (value.empty()) is_skipped = true;
          } else {
            // An empty text, list or map means the same as an absent key, and so does an unset optional.
            if constexpr (requires { (object.*field).empty(); }) {
              is_skipped = (object.*field).empty() && (defaults.*field).empty();
            } else if constexpr (requires { (object.*field).has_value(); }) {
              is_skipped = !(object.*field).has_value();
            }
            if (!is_skipped) value = write(object.*field);
          }
        },
        key.field);
    if (is_skipped) continue;
    std::string line = is_first ? first : indent;
    is_first = false;
    line += key.name;
    line += ':';
    const bool has_items = value.starts_with('\n');
    if (!has_items) line += ' ' + value;
    out += line + writing.comment(path, line.size());
    if (has_items) out += value;
    out += '\n';
  }
}

}  // namespace

void bind_recipe(const Node& map, Recipe& recipe, Problems& problems) {
  bind_map(map, recipe_keys(), "", recipe, recipe.key_places, problems);
}

std::string write_yaml(const Recipe& recipe, KeysToWrite keys, PlacesToWrite places) {
  std::string out;
  write_map(recipe, recipe_keys(), "", "", "", {recipe.key_places, keys, places}, out);
  return out;
}

}  // namespace tessera::config

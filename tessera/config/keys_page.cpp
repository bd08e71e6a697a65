#include "tessera/config/keys_page.h"

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tessera/config/foreign_keys.h"
#include "tessera/config/scalar.h"
#include "tessera/config/schema.h"
#include "tessera/core/strings.h"

namespace tessera::config {
namespace {

std::string code(std::string_view text) { return '`' + std::string(text) + '`'; }

std::string row(const std::string& first, const std::string& second) {
  return "| " + first + " | " + second + " |\n";
}

std::string head(const std::string& first, const std::string& second) {
  return '\n' + row(first, second) + "|---|---|\n";
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  size_t start = 0;
  while ((start = text.find_first_not_of(' ', start)) != std::string_view::npos) {
    const size_t end = std::min(text.find(' ', start), text.size());
    words.emplace_back(text.substr(start, end - start));
    start = end;
  }
  return words;
}

std::string bounds(double low, double high) {
  constexpr double kTiny = std::numeric_limits<double>::min();
  const std::string from = low == kTiny ? "above 0" : "from " + format_number(low);
  if (high >= kUnbounded) return ", " + from;
  return ", " + from + (high < 1.0 && high > 0.9999 ? " to below 1" : " to " + format_number(high));
}

// Says what values the key takes.
template <class T>
std::string type_of(const Key<T>& key) {
  return std::visit(
      [&](auto field) -> std::string {
        using F = decltype(field);
        if constexpr (kHasNames<F, T>) {
          return "one of the names below";
        } else {
          using Value = std::remove_cvref_t<decltype(std::declval<T>().*field)>;
          if constexpr (std::is_same_v<Value, bool> || std::is_same_v<Value, std::optional<bool>>) {
            return "true or false";
          } else if constexpr (std::is_same_v<Value, int64_t> ||
                               std::is_same_v<Value, std::optional<int64_t>>) {
            return "a whole number" + bounds(key.low, key.high);
          } else if constexpr (std::is_same_v<Value, double> ||
                               std::is_same_v<Value, std::optional<double>>) {
            return "a number" + bounds(key.low, key.high);
          } else if constexpr (std::is_same_v<Value, std::string>) {
            return key.choices.empty() ? "text" : "one of the names below";
          } else if constexpr (requires(Value v) { v.begin()->second; }) {
            return key.choices.empty() ? "a map" : "a map with the keys below";
          } else {
            return "a list";
          }
        }
      },
      key.field);
}

// Adds the names that a key takes, and the names that it refuses, grouped by reason.
template <class T>
void add_choices(const Key<T>& key, std::string& page) {
  if (key.choices.empty()) return;
  std::vector<std::string> taken, noted;
  std::vector<std::pair<std::string_view, std::vector<std::string>>> refused;
  for (const Choice& choice : key.choices) {
    const std::string name = choice.name.empty() ? "blank" : code(choice.name);
    if (choice.value != kNotBuilt) {
      taken.push_back(choice.note.empty() ? name : name + " (" + std::string(choice.note) + ')');
      continue;
    }
    const auto group =
        std::find_if(refused.begin(), refused.end(), [&](const auto& g) { return g.first == choice.note; });
    if (group == refused.end()) {
      refused.push_back({choice.note, {name}});
    } else {
      group->second.push_back(name);
    }
  }
  page += row(code(key.name), "takes " + join(taken, ", "));
  for (const auto& [reason, names] : refused) {
    page += row("", "refuses " + join(names, ", ") + ": " + std::string(reason));
  }
}

template <class T>
void add_native(std::span<const Key<T>> keys, std::string& page) {
  page += head("key", "value");
  for (const auto& key : keys) page += row(code(key.name), type_of(key));
  page += head("key", "names");
  for (const auto& key : keys) add_choices(key, page);
}

// Describes the pairs of a Map: "`full_shard` is `3`, `no_shard` is `0`; refused: `hybrid_shard`".
std::string describe_values(std::string_view values) {
  std::vector<std::string> ours, none, refused;
  for (const std::string& pair : words_of(values)) {
    const size_t equals = pair.find('=');
    const std::string theirs = pair.substr(0, equals), value = pair.substr(equals + 1);
    const std::string name = theirs == "*" ? "all other values" : code(theirs);
    if (value == "!") {
      refused.push_back(name);
    } else if (value.empty()) {
      none.push_back(name);
    } else {
      ours.push_back(name + " is " + code(value));
    }
  }
  std::string text = join(ours, ", ");
  if (!none.empty()) text += (text.empty() ? "" : "; ") + std::string("unchanged with ") + join(none, ", ");
  if (!refused.empty()) text += "; refused: " + join(refused, ", ");
  return text;
}

std::string off_values(std::string_view values) {
  std::vector<std::string> names;
  for (const std::string& word : words_of(values)) names.push_back(code(word));
  return names.empty() ? "" : " except " + join(names, ", ");
}

std::string describe(const ForeignKey& key) {
  const std::string target(key.target);
  switch (key.rule) {
    case Rule::Rename: return "means " + code(target);
    case Rule::Map: return "means " + code(target) + ": " + describe_values(key.values);
    case Rule::Ignore: return "no effect, with one warning" + off_values(key.values) + ": " + target;
    case Rule::Quiet: return "no effect: " + target;
    case Rule::Refuse: return "refused" + off_values(key.values) + ": " + target;
    case Rule::Enter: return "a map, see " + code(target) + " below";
    case Rule::Special: return std::string(key.values);
    case Rule::Hint: return "unknown; the error names " + code(target);
  }
  return "";
}

std::string title_of(const Section& section) {
  if (section.path.empty()) return "Other keys of a recipe";
  if (section.path == "datasets") return "Other keys of an entry of `datasets`";
  if (section.path == kTrainerSection) {
    return "Arguments of Transformers, TRL and LLaMA-Factory, for `tessera recipe convert`";
  }
  return code(section.path);
}

}  // namespace

std::string keys_page() {
  std::string page =
      "# Reference of all keys\n\nThis page is the output of `tessera recipe keys`, which prints the tables "
      "that recipes are checked against; a test compares the two.\n[recipes.md](recipes.md) explains "
      "Tessera's own keys, which come first. The others are keys of Axolotl, Accelerate, DeepSpeed "
      "and\nTransformers:\n\n- **means**: another spelling of a key of Tessera. A recipe may contain both if "
      "they agree.\n- **no effect**: the key is accepted, because no result depends on it.\n- **refused**: "
      "exit code 2, with the reason. The key is accepted if its value asks for nothing (blank, `false`, "
      "`none` or empty),\n  and with the values that its line lists.\n\nA `*` at the end of a name stands "
      "for any ending. All other keys are unknown: exit code 2, with the nearest name.\n\n## Keys of a "
      "recipe\n";
  add_native(recipe_keys(), page);
  page += "\n## Keys of an entry of `datasets`\n";
  add_native(dataset_keys(), page);
  page += "\n## Keys of an entry of `lr_groups`\n";
  page += head("key", "value");
  for (const auto& key : lr_group_keys()) page += row(code(key.name), type_of(key));
  for (const Section& section : sections()) {
    if (section.keys.empty()) continue;
    page += "\n## " + title_of(section) + '\n';
    if (!section.strip_prefix.empty()) {
      page += "\nEach key may also have the prefix " + code(section.strip_prefix) + ".\n";
    }
    if (section.path == "deepspeed") {
      page +=
          "\nKeys of a DeepSpeed configuration, as a file or a map. `\"auto\"` keeps the recipe's own "
          "value.\n";
    }
    page += head("key", "in Tessera");
    for (const ForeignKey& key : section.keys) page += row(code(key.name), describe(key));
  }
  return page;
}

}  // namespace tessera::config

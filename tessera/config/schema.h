// The native keys of a recipe: one table line a key. Everything else (reading, checking, writing back,
// completion, the documentation test) walks these tables.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "tessera/config/recipe.h"

namespace tessera::config {

// One accepted spelling of a key that has a fixed set of values. It is compared without case.
struct Choice {
  std::string_view name;       // a trailing * stands for any rest, *.* for any text with a dot
  int value = 0;               // value of the enum member; kNotBuilt = known but refused
  std::string_view note = "";  // reason of a refusal; for an accepted value, the text of a warning
};
constexpr int kNotBuilt = -1;

// An enum member of T, seen as an int.
template <class T>
struct EnumField {
  int (*get)(const T&);
  void (*set)(T&, int);
};

template <class T>
using Field =
    std::variant<bool T::*, std::optional<bool> T::*, int64_t T::*, std::optional<int64_t> T::*, double T::*,
                 std::optional<double> T::*, std::string T::*, std::vector<std::string> T::*,
                 std::vector<int64_t> T::*, std::optional<std::vector<std::string>> T::*,
                 std::map<std::string, std::string> T::*,
                 std::map<std::string, std::vector<std::string>> T::*, NamePatterns<int64_t> T::*,
                 NamePatterns<double> T::*, EnumField<T>, DeviceChoice T::*, std::vector<DatasetConfig> T::*,
                 std::vector<LrGroup> T::*>;

// True for the types of fields that take one of Key::choices.
template <class F, class T>
constexpr bool kHasNames = std::is_same_v<F, EnumField<T>> || std::is_same_v<F, DeviceChoice T::*>;

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

template <class T>
struct Key {
  std::string_view name;
  Field<T> field;
  double low = -kUnbounded, high = kUnbounded;  // inclusive bounds of a number
  // The values of an enum or a text; the keys of a map of texts.
  std::span<const Choice> choices = {};
};

std::span<const Key<Recipe>> recipe_keys();
std::span<const Key<DatasetConfig>> dataset_keys();
std::span<const Key<LrGroup>> lr_group_keys();

// Returns the keys without which there is nothing to train.
std::span<const std::string_view> required_recipe_keys();

}  // namespace tessera::config

// The tables of keys by topic, of which schema.cpp makes one, and what these tables share.
#pragma once

#include <limits>
#include <span>
#include <type_traits>

#include "tessera/config/schema.h"

namespace tessera::config {

std::span<const Key<Recipe>> model_keys();
std::span<const Key<Recipe>> data_keys();
std::span<const Key<Recipe>> training_keys();
std::span<const Key<Recipe>> output_keys();
std::span<const Key<Recipe>> adapter_keys();
std::span<const Key<Recipe>> parallelism_keys();

// Reads and writes an enum field of the recipe, those of its bases included.
template <auto Member>
struct EnumAccess {
  static int get(const Recipe& recipe) { return static_cast<int>(recipe.*Member); }
  static void set(Recipe& recipe, int value) {
    auto& field = recipe.*Member;
    field = static_cast<std::remove_reference_t<decltype(field)>>(value);
  }
  static constexpr EnumField<Recipe> field{&get, &set};
};

template <auto Member>
constexpr auto enum_field = EnumAccess<Member>::field;

inline constexpr double kTiny = std::numeric_limits<double>::min();  // stands for "above zero"
inline constexpr double kBelowOne = 1.0 - std::numeric_limits<double>::epsilon() / 2;
inline constexpr double kMaxSeed = 9007199254740992.0;  // 2^53; every YAML reader reads such integers exactly
inline constexpr double kMaxSteps = 1e12;
inline constexpr double kMaxSequence = 16777216.0;  // 2^24 tokens
inline constexpr double kMaxRanks = 1e6;
inline constexpr double kMaxPipeline = 4096;

constexpr int as_int(auto value) { return static_cast<int>(value); }

}  // namespace tessera::config

// The practical guidelines of the field, each with its reason.
#pragma once

#include <span>
#include <string_view>

namespace tessera::planner {

struct Rule {
  std::string_view rule, reason, source;
};

std::span<const Rule> rules();

}  // namespace tessera::planner

// The filters: value | name(arguments).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/text/chat_template/arguments.h"
#include "tessera/text/chat_template/runtime.h"

namespace tessera::text::jinja {

struct FilterEntry {
  std::string_view name;
  std::vector<std::string_view> parameters;
  size_t required = 0;
  Value (*apply)(Runtime&, const Value&, const BoundArguments&) = nullptr;
  // For filters that take any arguments; then `apply` is null.
  Value (*apply_any)(Runtime&, const Value&, const Arguments&) = nullptr;
};

// Null when there is none.
const FilterEntry* find_filter(std::string_view name);
std::vector<std::string> filter_names();
Value apply_filter(Runtime& runtime, const FilterEntry& filter, const Value& input,
                   const Arguments& arguments);

// The two halves of the table.
const std::vector<FilterEntry>& text_filters();
const std::vector<FilterEntry>& sequence_filters();

}  // namespace tessera::text::jinja

// The filters of a template: value | name(arguments).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/text/chat_template/arguments.h"
#include "tessera/text/chat_template/lexer.h"
#include "tessera/text/chat_template/runtime.h"

namespace tessera::text::jinja {

struct FilterEntry {
  std::string_view name;
  std::vector<std::string_view> parameters;
  size_t required = 0;
  Value (*apply)(Runtime&, const Value&, const BoundArguments&) = nullptr;
  // Used instead of `apply`, which is then null, by filters that take any arguments.
  Value (*apply_any)(Runtime&, const Value&, const Arguments&) = nullptr;
};

// Returns the filter, or null when there is none of this name.
const FilterEntry* find_filter(std::string_view name, Dialect dialect = Dialect::Chat);
std::vector<std::string> filter_names();
Value apply_filter(Runtime& runtime, const FilterEntry& filter, const Value& input,
                   const Arguments& arguments);

// The two halves of the table of filters, and those that the dialect Task has besides.
const std::vector<FilterEntry>& text_filters();
const std::vector<FilterEntry>& sequence_filters();
const std::vector<FilterEntry>& task_filters();

}  // namespace tessera::text::jinja

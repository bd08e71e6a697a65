// The functions that a template may call by name.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/text/chat_template/runtime.h"

namespace tessera::text::jinja {

std::optional<Function> find_function(std::string_view name);
std::vector<std::string> function_names();
Value call_function(Runtime& runtime, Function function, const Arguments& arguments);
// Returns the entries of the one argument that `dict` and `namespace` take: a dict, or an iterable of pairs.
std::vector<std::pair<Value, Value>> entries_of(Runtime& runtime, const Value& value);

}  // namespace tessera::text::jinja

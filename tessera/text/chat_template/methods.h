// The methods of strings, dicts, lists and of `loop` that a template may call.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/text/chat_template/runtime.h"

namespace tessera::text::jinja {

// Returns whether any type has a method of this name.
bool is_known_method(std::string_view name);
std::vector<std::string> method_names();
// Returns `name` in static memory if the value's type has such a method; else empty.
std::string_view find_method(const Value& value, std::string_view name);
// Calls a method. `name` must be a result of find_method() for `receiver`.
Value call_method(Runtime& runtime, const Value& receiver, std::string_view name, const Arguments& arguments);

}  // namespace tessera::text::jinja

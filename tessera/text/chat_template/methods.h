// The methods of strings, dicts, lists and of `loop` that a template may call.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/text/chat_template/runtime.h"

namespace tessera::text::jinja {

// Whether any type has a method of this name.
bool is_known_method(std::string_view name);
std::vector<std::string> method_names();
// The method `name` of the value's type, as a lasting string; empty when there is none.
std::string_view find_method(const Value& value, std::string_view name);
// `name` is what find_method gave.
Value call_method(Runtime& runtime, const Value& receiver, std::string_view name, const Arguments& arguments);

}  // namespace tessera::text::jinja

// Python's operators and look-ups on values.
#pragma once

#include <optional>
#include <string_view>

#include "tessera/text/chat_template/ast.h"
#include "tessera/text/chat_template/runtime.h"

namespace tessera::text::jinja {

Value arithmetic(Runtime& runtime, Operator op, const Value& a, const Value& b);
Value negative(Runtime& runtime, const Value& value);
// Returns whether `item in container` holds.
bool contains(Runtime& runtime, const Value& container, const Value& item);

// Return value.name and value[key]: a method or attribute, an entry, or undefined. Only a look into an
// undefined value fails. If both exist, `.` prefers the attribute and `[]` the entry.
Value get_attribute(Runtime& runtime, const Value& value, std::string_view name);
Value get_item(Runtime& runtime, const Value& value, const Value& key);
// Returns value[start:stop:step]; a bound that is None was left out. Fails when the value has no slices.
Value get_slice(Runtime& runtime, const Value& value, const Value& start, const Value& stop,
                const Value& step);

// Returns `text % values` with printf's conversions as in Python: %s %r %d %i %x %X %o %f %F %e %g %%.
// `values` is a tuple, a dict for %(name)s, or one value.
Text format_percent(Runtime& runtime, const Text& text, const Value& values);

}  // namespace tessera::text::jinja

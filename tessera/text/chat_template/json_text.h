// Converts between JSON and the values of a template.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tessera/text/chat_template/runtime.h"

namespace tessera::text::jinja {

// Converts JSON to a value. Every string and container gets `origin`.
Value from_json(Runtime& runtime, const nlohmann::ordered_json& json, Origin origin);
// Converts message number `index`. All of it is content of that message, except the role, which is scaffold:
// templates write it into control sequences.
Value message_from_json(Runtime& runtime, const nlohmann::ordered_json& json, int32_t index);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool pretty = false;  // one entry per line, after `indent` for each level
  std::string indent;
  std::string item_separator = ", ", key_separator = ": ";
};
// Writes a value as json.dumps() does; fails for a value that JSON cannot hold.
Text to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace tessera::text::jinja

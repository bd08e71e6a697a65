// Between JSON and the values of a template.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tessera/text/chat_template/runtime.h"

namespace tessera::text::jinja {

// Every string and container gets `origin`.
Value from_json(Runtime& runtime, const nlohmann::ordered_json& json, Origin origin);
// One message: all of it is content of message `index`, but for the role, which is scaffold.
Value message_from_json(Runtime& runtime, const nlohmann::ordered_json& json, int32_t index);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool pretty = false;  // one entry a line, after `indent` for each level
  std::string indent;
  std::string item_separator = ", ", key_separator = ": ";
};
// json.dumps(): fails for what JSON cannot hold.
Text to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace tessera::text::jinja

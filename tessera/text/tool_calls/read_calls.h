// Reads the value of a tool call.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/text/tool_calls/tool_format.h"

namespace tessera::text {

// Values that are nested more deeply are no calls.
inline constexpr int kDeepestCall = 64;

struct ToolCall {
  std::string name;
  std::string arguments;  // the text of a JSON object
};

// The schema of the parameters of each function that a request offers, by its name.
using ToolParameters = std::map<std::string, nlohmann::ordered_json>;

// Returns the calls, at least one, of a value in the shape's form; nothing if it is malformed. `name` is the
// one that stands before the value, if the shape has it there. An argument between tags is a text if its
// schema says so or it is no JSON.
std::optional<std::vector<ToolCall>> read_calls(const CallShape& shape, const std::string& name,
                                                std::string_view value, const ToolParameters& tools);

// Reads [f(x=1), g()], with arguments by name alone, whose values are literals but not tuples. Returns
// nothing if the text is anything else.
std::optional<std::vector<ToolCall>> read_python_calls(std::string_view text);

}  // namespace tessera::text

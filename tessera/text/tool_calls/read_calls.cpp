#include "tessera/text/tool_calls/read_calls.h"

#include <algorithm>
#include <utility>

namespace tessera::text {
namespace {

using Json = nlohmann::ordered_json;
using Calls = std::optional<std::vector<ToolCall>>;

const Json* find(const Json& object, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto found = object.find(name);
    if (found != object.end()) return &*found;
  }
  return nullptr;
}

// Returns a discarded value for text that is no JSON, or is nested so deeply that it could not be written.
Json parse(std::string_view text) {
  int depth = 0, deepest = 0;
  for (const char c : text) {
    depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
    deepest = std::max(deepest, depth);
  }
  if (deepest > kDeepestCall) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::optional<ToolCall> read_call(const Json& object) {
  if (!object.is_object()) return std::nullopt;
  if (const Json* function = find(object, {"function"}); function != nullptr && function->is_object())
    return read_call(*function);
  const Json* name = find(object, {"name", "tool_name"});
  if (name == nullptr || !name->is_string() || name->get_ref<const std::string&>().empty())
    return std::nullopt;
  ToolCall call{name->get<std::string>(), "{}"};
  const Json* arguments = find(object, {"arguments", "parameters"});
  if (arguments == nullptr || arguments->is_null()) return call;
  // Some models write the object as a text.
  call.arguments = arguments->is_string() ? arguments->get<std::string>() : arguments->dump();
  const bool is_right =
      arguments->is_object() || (arguments->is_string() && parse(call.arguments).is_object());
  return is_right ? std::optional(std::move(call)) : std::nullopt;
}

Calls read_json_calls(std::string_view text) {
  Json value = parse(text);
  if (value.is_discarded()) return std::nullopt;
  if (!value.is_array()) value = Json::array({std::move(value)});
  std::vector<ToolCall> calls;
  for (const Json& each : value) {
    auto call = read_call(each);
    if (!call) return std::nullopt;
    calls.push_back(std::move(*call));
  }
  return calls.empty() ? Calls() : std::move(calls);
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpaces);
  return first == std::string_view::npos ? ""
                                         : text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

// Takes `mark` off the front of the text, behind white space; returns whether it was there.
bool skip(std::string_view& text, std::string_view mark) {
  const std::string_view rest = trim(text);
  if (!rest.starts_with(mark)) return false;
  text = rest.substr(mark.size());
  return true;
}

// Takes everything up to `mark`, and the mark, off the front of the text; nothing if it is not there.
std::optional<std::string_view> take_until(std::string_view& text, std::string_view mark) {
  const size_t end = text.find(mark);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(end + mark.size());
  return taken;
}

// Models write values that take several lines on lines of their own.
std::string_view without_outer_lines(std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

bool is_text(const Json* schema) {
  const Json* type = schema != nullptr && schema->is_object() ? find(*schema, {"type"}) : nullptr;
  return type != nullptr && *type == "string";
}

Calls read_tags(const TagMarks& tags, const std::string& name, std::string_view text,
                const ToolParameters& tools) {
  const auto tool = tools.find(name);
  const Json* properties =
      tool != tools.end() && tool->second.is_object() ? find(tool->second, {"properties"}) : nullptr;
  Json arguments = Json::object();
  while (!trim(text).empty()) {
    if (!skip(text, tags.before_name)) return std::nullopt;
    const auto key = take_until(text, tags.behind_name);
    if (!key || (!tags.before_value.empty() && !skip(text, tags.before_value))) return std::nullopt;
    const auto value = take_until(text, tags.behind_value);
    if (!value) return std::nullopt;
    const std::string argument(trim(*key)), written(without_outer_lines(*value));
    const Json* schema =
        properties != nullptr && properties->is_object() ? find(*properties, {argument.c_str()}) : nullptr;
    Json read = is_text(schema) ? Json(Json::value_t::discarded) : parse(written);
    arguments[argument] = read.is_discarded() ? Json(written) : std::move(read);
  }
  return {{{name, arguments.dump(-1, ' ', false, Json::error_handler_t::replace)}}};
}

}  // namespace

Calls read_calls(const CallShape& shape, const std::string& name, std::string_view value,
                 const ToolParameters& tools) {
  switch (shape.body) {
    case CallBody::Calls: return read_json_calls(value);
    case CallBody::Tags: return read_tags(shape.tags, name, value, tools);
    case CallBody::Python: return read_python_calls(value);
    case CallBody::Arguments: break;
  }
  if (!parse(value).is_object()) return std::nullopt;
  return {{{name, std::string(value)}}};
}

}  // namespace tessera::text

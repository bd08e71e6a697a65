#include "tessera/serving/tool_fields.h"

#include <algorithm>
#include <utility>

#include "tessera/core/error.h"

namespace tessera::serving {
namespace {

Json name_of(const Json& tool) { return tool.at("function").at("name"); }

// A function without parameters takes none.
Json parameters_of(const Json& tool) {
  const auto found = tool.at("function").find("parameters");
  const bool is_given = found != tool.at("function").end() && !found->is_null();
  return is_given ? *found : Json{{"type", "object"}, {"properties", Json::object()}};
}

void check_tools(const Json& tools, const std::string& place) {
  if (!tools.is_array() || tools.empty())
    throw ApiError::bad(place + ": an array of at least one tool is needed", place);
  for (size_t i = 0; i < tools.size(); ++i) {
    Fields tool(tools[i], place + "[" + std::to_string(i) + "].");
    if (tool.text("type") != "function")
      throw tool.problem("type", "only tools of the type \"function\" are supported");
    const Json* function = tool.find("function");
    if (function == nullptr) throw tool.problem("function", "this field is needed");
    Fields inner(*function, tool.place("function") + ".");
    if (inner.text("name").value_or("").empty()) throw inner.problem("name", "this field is needed");
  }
}

// Reads tool_choice; returns whether tools may be called at all.
bool read_choice(Fields& fields, ToolFields& read) {
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr || *choice == "auto") return true;
  if (*choice == "none") return false;
  if (*choice == "required") {
    read.choice = ToolChoice::Required;
    return true;
  }
  if (choice->is_object()) {
    Fields chosen(*choice, fields.place("tool_choice") + ".");
    const Json* function = chosen.text("type") == "function" ? chosen.find("function") : nullptr;
    if (function != nullptr) {
      read.choice = ToolChoice::Named;
      read.named = Fields(*function, chosen.place("function") + ".").text("name").value_or("");
      return true;
    }
  }
  throw fields.problem("tool_choice", "none, auto, required, or a function's name in an object is needed");
}

Json required_schema(const ToolFields& tools) {
  Json calls = Json::array();
  for (const Json& tool : tools.tools) {
    calls.push_back(
        {{"type", "object"},
         {"properties", {{"name", {{"const", name_of(tool)}}}, {"parameters", parameters_of(tool)}}},
         {"required", Json::array({"name", "parameters"})}});
  }
  Json schema = {{"type", "array"}, {"minItems", 1}, {"items", {{"anyOf", std::move(calls)}}}};
  if (!tools.has_several) schema["maxItems"] = 1;
  return schema;
}

}  // namespace

ToolFields read_tools(Fields& fields) {
  ToolFields read;
  const Json* tools = fields.find("tools");
  const bool may_call = read_choice(fields, read);
  read.has_several = fields.boolean("parallel_tool_calls", true);
  if (tools == nullptr) {
    if (read.choice != ToolChoice::Auto) throw fields.problem("tool_choice", "\"tools\" is needed beside it");
    return read;
  }
  check_tools(*tools, fields.place("tools"));
  if (may_call) read.tools = *tools;
  const bool is_known =
      std::ranges::any_of(*tools, [&](const Json& tool) { return name_of(tool) == read.named; });
  if (read.choice == ToolChoice::Named && !is_known)
    throw fields.problem("tool_choice", "'" + read.named + "' is none of the tools");
  return read;
}

void use_tools(const ToolFields& tools, const ServedModel& model, AnswerFields& answer) {
  const bool is_forced = tools.choice != ToolChoice::Auto;
  const text::ToolFormat* format = is_forced ? &text::find_tool_format("json") : model.tool_format;
  const bool has_channels = format != nullptr && format->has_channels && answer.constraint == nullptr;
  if (format == nullptr || (tools.tools.is_null() && !has_channels)) return;
  auto reading = std::make_shared<text::CallReading>();
  reading->format = format;
  reading->named = tools.named;
  reading->only_one = !tools.has_several;
  for (const Json& tool : tools.tools) reading->tools[name_of(tool)] = parameters_of(tool);
  answer.calls = reading;
  if (!is_forced) return;
  if (answer.constraint != nullptr) {
    throw ApiError::bad("tool_choice: an answer that has to be a call cannot be bound to anything else",
                        "tool_choice");
  }
  const Json schema = tools.named.empty() ? required_schema(tools) : reading->tools.at(tools.named);
  try {
    answer.constraint = model.constraints->make({text::ConstraintSource::Kind::JsonSchema, schema});
  } catch (const Error& error) {
    throw ApiError::bad(std::string("tools: ") + error.what(), "tools");
  }
}

}  // namespace tessera::serving

// The fields of a request that offer tools to the model.
#pragma once

#include <memory>
#include <string>

#include "tessera/serving/answer_fields.h"
#include "tessera/serving/fields.h"
#include "tessera/serving/served_model.h"

namespace tessera::serving {

// Auto: the model may call tools. Required: it must. Named: it must call the one of that name.
enum class ToolChoice { Auto, Required, Named };

struct ToolFields {
  Json tools;  // what the template is given; null if there are none, or none may be called
  ToolChoice choice = ToolChoice::Auto;
  std::string named;
  bool has_several = true;  // an answer may call several
};

// Reads tools, tool_choice and parallel_tool_calls. Throws ApiError.
ToolFields read_tools(Fields& fields);

// Lets answers be read for calls as the tools say, and for channels, if the model writes such. Where a call
// is needed, answers are bound to JSON of the tools' parameters. Throws ApiError if they are bound to
// something else already, or for parameters that are not a schema which is supported.
void use_tools(const ToolFields& tools, const ServedModel& model, AnswerFields& answer);

}  // namespace tessera::serving

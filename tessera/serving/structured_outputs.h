// The fields of a request that say what an answer has to match.
#pragma once

#include <memory>

#include "tessera/serving/fields.h"
#include "tessera/serving/served_model.h"

namespace tessera::serving {

// Reads response_format, vLLM's structured_outputs and its older guided_json, guided_regex, guided_choice,
// guided_grammar and guided_json_object, of which a request may have one. Returns null if it has none. Throws
// ApiError, which names the field, also for a constraint that is not valid or not supported.
std::shared_ptr<text::Constraint> read_structured_outputs(Fields& fields, const ServedModel& model);

}  // namespace tessera::serving

// Requests of Anthropic's Messages API.
#pragma once

#include "tessera/serving/requests.h"

namespace tessera::serving {

// Reads the body of POST /v1/messages. Throws what read_completion() throws.
AnswerRequest read_message_request(const Json& body, const ServedModel& model, const EngineFacts& facts);
// Returns the number of tokens of the prompt of POST /v1/messages/count_tokens.
int64_t count_message_tokens(const Json& body, const ServedModel& model);

}  // namespace tessera::serving

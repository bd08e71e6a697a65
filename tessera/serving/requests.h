// Requests for answers: their JSON, read into what the engine is to do.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/serving/answer.h"
#include "tessera/serving/answer_fields.h"
#include "tessera/serving/reply_format.h"

namespace tessera::serving {

// A request that has been read and checked. Each plan is one answer.
struct AnswerRequest {
  AnswerFields fields;
  std::vector<AnswerPlan> plans;
  std::vector<int64_t> max_new_tokens;  // of each plan
  std::unique_ptr<ReplyFormat> format;
  int64_t prompt_tokens = 0;         // of all prompts, each counted once
  std::vector<std::string> unknown;  // fields that nobody knows, which are left out
};

// Reads the body of POST /v1/completions. Throws ApiError, and Error(Data) for a text that cannot be encoded.
AnswerRequest read_completion(const Json& body, const ServedModel& model, const EngineFacts& facts);
// Reads the body of POST /v1/chat/completions. Throws what read_completion() throws.
AnswerRequest read_chat(const Json& body, const ServedModel& model, const EngineFacts& facts);

// A text or token ids of a request: the tokens, and the text if it was given or is to be echoed.
struct TokenPrompt {
  std::vector<int64_t> ids;
  std::string text;
};
// Reads the field `name`: a text, token ids, or an array of these; and add_special_tokens. Throws ApiError.
std::vector<TokenPrompt> read_prompts(Fields& fields, const std::string& name, bool echoes,
                                      const ServedModel& model, const EngineFacts& facts);
// Returns the tokens of a text. Special tokens of the tokenizer, such as BOS, are added only if the text does
// not begin with BOS already.
std::vector<int64_t> encode_text(const std::string& text, bool adds_special, const ServedModel& model);
// Returns the tokens of the chat in the fields messages, chat_template_kwargs, ... of a request, with the
// header of the answer behind it unless add_generation_prompt is false. `tools` may be null.
std::vector<int64_t> encode_messages(Fields& fields, const Json& tools, const ServedModel& model);

}  // namespace tessera::serving

// Makes the steps of the pipeline from their descriptions in tokenizer.json.
#pragma once

#include <memory>

#include "tessera/text/tokenizer/added_tokens.h"
#include "tessera/text/tokenizer/decoder.h"
#include "tessera/text/tokenizer/json_field.h"
#include "tessera/text/tokenizer/normalizer.h"
#include "tessera/text/tokenizer/post_processor.h"
#include "tessera/text/tokenizer/pre_tokenizer.h"

namespace tessera::text {

// All functions throw Error(Model) with the JSON path for a type or setting that is not supported.

// Returns null for a null field.
std::unique_ptr<Normalizer> read_normalizer(const JsonField& field);
// `model_takes_bytes` allows PreTokenizer::byte_level.
PreTokenizer read_pre_tokenizer(const JsonField& field, bool model_takes_bytes);
// Calls `check` with each id and its token, since this function does not know the vocabulary.
PostProcessor read_post_processor(
    const JsonField& field,
    FunctionRef<void(const JsonField& place, int32_t id, const std::string& token)> check);
TokenDecoder read_decoder(const JsonField& field);
// Reads an added token without its id, which some files give as the key of the field.
AddedToken read_token_flags(const JsonField& field);

}  // namespace tessera::text

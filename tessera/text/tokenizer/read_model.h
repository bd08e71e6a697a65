// Makes the model of a tokenizer from its description in tokenizer.json.
#pragma once

#include <memory>

#include "tessera/text/tokenizer/json_field.h"
#include "tessera/text/tokenizer/tokenizer_json.h"

namespace tessera::text {

// Takes the tables out of `document`, whose field "model" is `field`. `byte_level` tells that words come as
// bytes. Throws Error(Model) with the JSON path for a model that is not supported or does not fit together.
std::unique_ptr<WordModel> read_model(TokenizerDocument& document, const JsonField& field, bool byte_level);
// Returns whether the model spells bytes by itself, so that words may come as bytes.
bool model_takes_bytes(const TokenizerDocument& document, const JsonField& field);

}  // namespace tessera::text

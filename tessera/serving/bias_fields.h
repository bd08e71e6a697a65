// The fields of a request that make single tokens likelier or less likely.
#pragma once

#include <cstdint>

#include "tessera/serving/fields.h"
#include "tessera/serving/served_model.h"

namespace tessera::serving {

// Reads presence_penalty, frequency_penalty, logit_bias, min_tokens and bad_words. Token ids are those below
// `vocabulary`. Throws ApiError.
void read_biases(Fields& fields, const ServedModel& model, int64_t vocabulary, Sampling& sampling);

}  // namespace tessera::serving

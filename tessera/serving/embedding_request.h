// Requests for embeddings: their JSON, and that of their replies.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/serving/fields.h"
#include "tessera/serving/served_model.h"

namespace tessera::serving {

// A request that has been read and checked.
struct EmbeddingFields {
  std::vector<std::vector<int64_t>> texts;  // their tokens
  int64_t num_tokens = 0;                   // of all texts
  bool normalizes = true, is_base64 = false;
  std::vector<std::string> unknown;  // fields that nobody knows, which are left out
};

// Reads the body of POST /v1/embeddings. Throws ApiError, and Error(Data) for a text that cannot be encoded.
EmbeddingFields read_embedding(const Json& body, const ServedModel& model, const EngineFacts& facts);

// Returns the reply: the vectors as arrays of numbers with as many digits as float32 needs, or as base64 of
// their bytes in little-endian order.
std::string embedding_reply(const EmbeddingFields& fields, std::span<const std::vector<float>> vectors,
                            const std::string& model);

}  // namespace tessera::serving

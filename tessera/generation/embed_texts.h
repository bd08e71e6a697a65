// Embeddings of texts: one vector for each, made of a model's hidden states.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/models/common/causal_lm.h"

namespace tessera::generation {

// The vector of a text is made of the hidden states behind the last layer and the final norm: that of its
// first token, that of its last one, or the mean over all tokens.
enum class Pooling { Cls, Last, Mean };

// How a model makes embeddings, as the files of the sentence-transformers package beside it say. Without such
// files an encoder takes the first token and a decoder the last one.
struct EmbeddingOptions {
  Pooling pooling = Pooling::Last;
  std::string refusal;  // why the model makes none; empty if it does
};

// Reads "cls", "last" or "mean". Throws Error(Config, "POOLING") for any other name.
Pooling read_pooling(const std::string& name);

// Reads the modules.json and the configuration of the pooling in the model's folder, if they are there;
// `chosen` goes before the pooling of the files. Another pooling, and modules behind the hidden states other
// than a pooling and a normalisation, are reasons to refuse. Throws Error(Model, "CONFIG") for files that are
// not valid.
EmbeddingOptions embedding_options(const models::CausalLM& model, const std::string& folder,
                                   std::optional<Pooling> chosen);

// Returns the vectors of the texts, [texts, hidden_size], in the model's type (at least float32 for means),
// on its device. Their lengths are any. Each text is one document of tokens, at least one. `adapter`: as in
// models::NewTokens. Throws Error(Data)
// and Error(Model) for ids outside the vocabulary and texts that are too long.
at::Tensor embed_texts(models::CausalLM& model, const std::vector<std::vector<int64_t>>& texts,
                       Pooling pooling, int64_t adapter = nn::AdapterRows::kNoAdapter);

}  // namespace tessera::generation

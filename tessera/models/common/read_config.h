// Helpers that the families' readers of config.json share.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/core/error.h"
#include "tessera/io/json_reader.h"
#include "tessera/models/common/model_config.h"

namespace tessera::models {

inline constexpr int64_t kMaxSize = int64_t{1} << 31;  // largest size of one dim
inline constexpr int64_t kMaxLayers = 10000, kMaxHeads = 1 << 20;

// Returns an Error(Model, "UNSUPPORTED") about `key`, for the caller to complete and throw.
Error unsupported(const io::JsonReader& reader, const std::string& key, const std::string& what);

// Fills the fields that do not depend on the family: source_file, model_type, the special tokens, the stored
// type, the labels of a classifier, and is_masked_lm of an encoder. Throws Error(Model, "UNSUPPORTED") for
// quantised weights and for architectures other than causal language models and classifiers; those of
// encoders, which `config` tells by is_encoder, may be any, and those of an encoder-decoder
// (is_encoder_decoder) generate.
void read_common(const io::JsonReader& reader, ModelConfig& config);

// Returns the probability of dropout of this key, which is below 1.
double read_dropout(const io::JsonReader& reader, const std::string& key, double fallback = 0.0);

// Tells of an encoder whether its output projection has the embedding's weight, which only the head of a
// masked language model has.
void read_masked_tie(const io::JsonReader& reader, ModelConfig& config);

// Throws if a weight of `size` rows and config.hidden_size columns, for any {key, size} of `keys`, would have
// more than 2^44 elements. Each size was checked alone before; this checks their product before a model is
// built.
void check_products(const io::JsonReader& reader, const ModelConfig& config,
                    const std::vector<std::pair<std::string, int64_t>>& keys);

// Throws if a weight of `rows` rows, which `key` gives, and so many columns would have more than 2^44
// elements. Both are from [1, 2^62].
void check_elements(const io::JsonReader& reader, const std::string& key, int64_t rows, int64_t columns);

}  // namespace tessera::models

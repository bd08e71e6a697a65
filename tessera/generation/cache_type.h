// How keys and values are kept while texts are generated.
#pragma once

#include "tessera/models/common/causal_lm.h"

namespace tessera::generation {

// Caches have numbers of the model's type, or, on the host alone, signed bytes with a scale for each token of
// each head.
enum class CacheType { Model, Int8 };

// Throws Error(Config, "KV-CACHE") if a device has no caches of the type.
void check_cache_type(CacheType type, at::Device device);

// Returns the options of a cache of the model. Throws what check_cache_type() and CausalLM::cache_options()
// throw, and Error(Config, "KV-CACHE") for a type that the model cannot have.
nn::KvCacheOptions cache_options(const models::CausalLM& model, CacheType type);

}  // namespace tessera::generation

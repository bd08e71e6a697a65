// What the readers of config.json share.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/core/error.h"
#include "tessera/io/json_reader.h"
#include "tessera/models/common/model_config.h"

namespace tessera::models {

inline constexpr int64_t kMaxSize = int64_t{1} << 31;  // of one dimension
inline constexpr int64_t kMaxLayers = 10000, kMaxHeads = 1 << 20;

// Error(Model, "UNSUPPORTED") about `key`, to be completed and thrown.
Error unsupported(const io::JsonReader& reader, const std::string& key, const std::string& what);

// Fills what does not depend on the family: source_file, model_type, the special tokens and the stored type.
// Refuses quantised weights and other architectures than causal language models.
void read_common(const io::JsonReader& reader, ModelConfig& config);

// Each size is sane alone; refuses `keys` of which config.hidden_size columns would be more than any weight
// holds, before anything is built of them.
void check_products(const io::JsonReader& reader, const ModelConfig& config,
                    const std::vector<std::pair<std::string, int64_t>>& keys);

}  // namespace tessera::models

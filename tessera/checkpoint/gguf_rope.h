// The scaling of rotary positions in a GGUF file.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "tessera/io/gguf.h"

namespace tessera::checkpoint {

// The tensor with the numbers by which the frequencies of Llama 3.1 and later models are divided.
inline constexpr const char* kGgufRopeFactors = "rope_freqs.weight";

// Returns what rope_scaling of config.json has to say; null if the positions are not scaled. `prefix` is the
// architecture's, "llama.". Throws Error(Model) for a scaling that config.json cannot express.
nlohmann::ordered_json gguf_rope_scaling(const io::GgufFile& file, const std::string& prefix,
                                         int64_t head_dim, double theta);

}  // namespace tessera::checkpoint

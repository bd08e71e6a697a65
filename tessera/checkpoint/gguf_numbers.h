// Numbers of a GGUF file's metadata as config.json has them.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "tessera/io/gguf.h"

namespace tessera::checkpoint {

// Returns the integer of a key. Throws Error(Model, "CONFIG") for one below 1.
int64_t gguf_size(const io::GgufFile& file, const std::string& key);

// Returns the number of a key; `fallback` if the key is missing, NAN for none. The file stores a float32; the
// result is the shortest decimal that rounds to it, which is the one that it was made from: 1e-05, not
// 9.999999747378752e-06. Throws Error(Model, "CONFIG") for a number that is not above zero, or beyond what
// float32 holds.
double gguf_number(const io::GgufFile& file, const std::string& key, double fallback = NAN);

}  // namespace tessera::checkpoint

// The header of a GGUF file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/io/file.h"
#include "tessera/io/gguf.h"

namespace tessera::io {

struct GgufHeader {
  uint32_t version = 0;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<GgufTensor> tensors;
};

// GGUF value types, by their numbers in the file.
enum class GgufType : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64 };
inline constexpr uint32_t kNumGgufTypes = 13;

// Returns the number of bytes of one number or bool; 0 for strings and arrays.
int64_t gguf_type_size(GgufType type);
// Decodes the number or bool that stands at `bytes`, and widens it: the result holds one of the alternatives
// 0 to 3 of GgufValue.
GgufValue decode_gguf_scalar(GgufType type, const char* bytes);

// Reads the header through a buffer of 64 KiB. Every length is compared with the rest of the file before
// anything is allocated. Throws Model for malformed contents, naming the byte, key or tensor, and Storage
// when reading fails.
GgufHeader read_gguf_header(const File& file);

}  // namespace tessera::io

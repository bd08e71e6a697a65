// The JSON header of a safetensors file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/io/safetensors.h"

namespace tessera::io {

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // ordered by their bytes
  std::map<std::string, std::string> metadata;
};

// Parses `text`, which stands at byte 8 of the file `path` of `file_size` bytes. Checks every rule of the
// format: the tensors' bytes tile the rest of the file exactly. Throws Model.
SafetensorsHeader parse_safetensors_header(std::string_view text, int64_t file_size, const std::string& path);

// Computes the number of bytes of a tensor of this shape. Returns false when a dim is negative or the number
// does not fit 63 bits.
bool checked_tensor_bytes(DType dtype, const std::vector<int64_t>& shape, int64_t* num_bytes);

}  // namespace tessera::io

#include "tessera/cli/weight_dtype.h"

#include <algorithm>
#include <cctype>

namespace tessera::cli {

std::optional<DType> find_weight_dtype(std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char letter) { return std::tolower(letter); });
  if (name == "fp32" || name == "f32" || name == "float32") return DType::F32;
  if (name == "bf16" || name == "bfloat16") return DType::BF16;
  if (name == "fp16" || name == "f16" || name == "float16") return DType::F16;
  return std::nullopt;
}

}  // namespace tessera::cli

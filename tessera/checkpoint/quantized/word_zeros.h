// Parts that GPTQ's and compressed-tensors' files share.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/checkpoint/quantized/grid.h"

namespace tessera::checkpoint::quantized {

// Zero codes in words along the rows of the weight: [groups, words], or with `is_turned` [words, groups].
// plus: is added to each, modulo the number of codes.
struct ZeroWords {
  int bits = 4, plus = 0;
  bool is_turned = false;
};
std::shared_ptr<const Grid> word_zeros(const Files& files, const io::TensorInfo& tensor,
                                       const ZeroWords& words);

// Reads the group of each column. Throws Error(Model, "QUANTIZED") for one that does not exist.
std::vector<int32_t> read_index(const io::ModelFiles& files, const io::TensorInfo& tensor, int64_t columns,
                                int64_t groups);

}  // namespace tessera::checkpoint::quantized

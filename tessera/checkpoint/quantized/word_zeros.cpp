#include "tessera/checkpoint/quantized/word_zeros.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "tessera/checkpoint/quantized/codes.h"
#include "tessera/checkpoint/quantized/parts.h"
#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/device/host_memory.h"

namespace tessera::checkpoint::quantized {
namespace {

class WordZeros : public Grid {
 public:
  WordZeros(Files files, const io::TensorInfo& tensor, const ZeroWords& words)
      : files_(std::move(files)), tensor_(&tensor), words_(words) {}

  at::Tensor read(int64_t first_row, int64_t rows, int64_t first_group, int64_t groups) const override {
    const int bits = words_.bits;
    const int64_t word = first_row * bits / 32, count = words_of(first_row + rows, bits) - word;
    const Box box = words_.is_turned ? Box{{word, first_group}, {count, groups}}
                                     : Box{{first_group, word}, {groups, count}};
    const at::Tensor stored = at::empty(box.size, on_host(at::kInt));
    read_box(*files_, tensor_->name, box, stored);
    const int64_t to_group = words_.is_turned ? 1 : count, to_word = words_.is_turned ? groups : 1;
    const at::Tensor zeros = at::empty({rows, groups}, on_host(at::kFloat));
    const int32_t* const from = stored.const_data_ptr<int32_t>();
    float* to = zeros.mutable_data_ptr<float>();
    for (int64_t row = first_row; row < first_row + rows; ++row) {
      for (int64_t group = 0; group < groups; ++group) {
        const int code = code_at(from + group * to_group, to_word, word, row, bits);
        *to++ = static_cast<float>((code + words_.plus) & ((1 << bits) - 1));
      }
    }
    return zeros;
  }

 private:
  const Files files_;
  const io::TensorInfo* const tensor_;
  const ZeroWords words_;
};

}  // namespace

std::shared_ptr<const Grid> word_zeros(const Files& files, const io::TensorInfo& tensor,
                                       const ZeroWords& words) {
  return std::make_shared<WordZeros>(files, tensor, words);
}

std::vector<int32_t> read_index(const io::ModelFiles& files, const io::TensorInfo& tensor, int64_t columns,
                                int64_t groups) {
  std::vector<int32_t> index(static_cast<size_t>(tensor.numel()));
  files.read(tensor.name, 0, tensor.num_bytes(), index.data());
  const bool is_in_range = std::ranges::all_of(index, [&](int32_t i) { return i >= 0 && i < groups; });
  if (tensor.numel() == columns && is_in_range) return index;
  throw broken(files, tensor.name,
               is_in_range ? "not one group for each column" : "a column's group does not exist")
      .need(std::to_string(columns) + " numbers below " + std::to_string(groups));
}

}  // namespace tessera::checkpoint::quantized

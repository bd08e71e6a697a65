#include "tessera/checkpoint/quantized/codes.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/device/host_memory.h"
#include "tessera/device/torch_dtype.h"

namespace tessera::checkpoint::quantized {
namespace {

// A tensor of the folder.
class StoredCodes : public Codes {
 public:
  StoredCodes(Files files, const io::TensorInfo& tensor) : files_(std::move(files)), tensor_(&tensor) {}

 protected:
  // Returns a box of the tensor as it is stored.
  at::Tensor stored(const Box& box) const {
    const at::Tensor values = at::empty(box.size, on_host(to_scalar_type(tensor_->dtype)));
    read_box(*files_, tensor_->name, box, values);
    return values;
  }
  at::Tensor words(int64_t row, int64_t rows, int64_t column, int64_t columns) const {
    return stored({{row, column}, {rows, columns}});
  }
  const io::ModelFiles& files() const { return *files_; }
  const io::TensorInfo& tensor() const { return *tensor_; }

 private:
  const Files files_;
  const io::TensorInfo* const tensor_;
};

class ByteCodes : public StoredCodes {
 public:
  ByteCodes(const Files& files, const io::TensorInfo& tensor, uint8_t plus)
      : StoredCodes(files, tensor), plus_(plus) {}
  void read(const Box& box, uint8_t* codes) const override {
    const at::Tensor values = stored(box);
    const auto* from = static_cast<const uint8_t*>(values.const_data_ptr());
    for (int64_t i = 0; i < values.numel(); ++i) codes[i] = static_cast<uint8_t>(from[i] + plus_);
  }

 private:
  const uint8_t plus_;
};

class NibbleCodes : public StoredCodes {
 public:
  using StoredCodes::StoredCodes;
  void read(const Box& box, uint8_t* codes) const override {
    const int64_t begin = box.offset[1], end = begin + box.size[1], bytes = (end + 1) / 2 - begin / 2;
    const at::Tensor values = words(box.offset[0], box.size[0], begin / 2, bytes);
    const uint8_t* from = values.const_data_ptr<uint8_t>();
    for (int64_t row = 0; row < box.size[0]; ++row, from += bytes) {
      for (int64_t i = begin; i < end; ++i) *codes++ = from[i / 2 - begin / 2] >> (i % 2 * 4) & 15;
    }
  }
};

class WordCodes : public StoredCodes {
 public:
  WordCodes(const Files& files, const io::TensorInfo& tensor, int bits)
      : StoredCodes(files, tensor), bits_(bits) {}
  void read(const Box& box, uint8_t* codes) const override {
    const int64_t begin = box.offset[1], end = begin + box.size[1], first = begin * bits_ / 32;
    const int64_t count = words_of(end, bits_) - first;
    const at::Tensor values = words(box.offset[0], box.size[0], first, count);
    const int32_t* from = values.const_data_ptr<int32_t>();
    for (int64_t row = 0; row < box.size[0]; ++row, from += count) {
      for (int64_t i = begin; i < end; ++i) *codes++ = code_at(from, 1, first, i, bits_);
    }
  }

 private:
  const int bits_;
};

class TurnedWordCodes : public StoredCodes {
 public:
  TurnedWordCodes(const Files& files, const io::TensorInfo& tensor, int bits)
      : StoredCodes(files, tensor), bits_(bits) {}
  void read(const Box& box, uint8_t* codes) const override {
    const int64_t begin = box.offset[1], end = begin + box.size[1], first = begin * bits_ / 32;
    const int64_t rows = box.size[0];
    const at::Tensor values = words(first, words_of(end, bits_) - first, box.offset[0], rows);
    const int32_t* from = values.const_data_ptr<int32_t>();
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = begin; i < end; ++i) *codes++ = code_at(from + row, rows, first, i, bits_);
    }
  }

 private:
  const int bits_;
};

class AwqCodes : public StoredCodes {
 public:
  using StoredCodes::StoredCodes;
  void read(const Box& box, uint8_t* codes) const override {
    const int64_t begin = box.offset[0], rows = box.size[0], columns = box.size[1], first = begin / 8;
    const int64_t count = (begin + rows - 1) / 8 - first + 1;
    const at::Tensor values = words(box.offset[1], columns, first, count);
    const int32_t* const from = values.const_data_ptr<int32_t>();
    for (int64_t row = begin; row < begin + rows; ++row) {
      const int shift = 4 * awq_place(row);
      const int32_t* word = from + (row / 8 - first);
      for (int64_t i = 0; i < columns; ++i) {
        *codes++ = static_cast<uint8_t>(static_cast<uint32_t>(word[i * count]) >> shift & 15);
      }
    }
  }
};

class FlatNibbles : public StoredCodes {
 public:
  FlatNibbles(const Files& files, const io::TensorInfo& tensor, int64_t columns, bool low_first)
      : StoredCodes(files, tensor), columns_(columns), first_shift_(low_first ? 0 : 4) {}
  void read(const Box& box, uint8_t* codes) const override {
    const int64_t rows = box.size[0], count = box.size[1];
    if (count == columns_) return read_run(box.offset[0] * columns_, rows * columns_, codes);
    for (int64_t row = 0; row < rows; ++row) {
      read_run((box.offset[0] + row) * columns_ + box.offset[1], count, codes + row * count);
    }
  }

 private:
  void read_run(int64_t begin, int64_t count, uint8_t* codes) const {
    std::vector<uint8_t> bytes(static_cast<size_t>((begin + count + 1) / 2 - begin / 2));
    files().read(tensor().name, begin / 2, static_cast<int64_t>(bytes.size()), bytes.data());
    for (int64_t i = begin; i < begin + count; ++i) {
      *codes++ =
          bytes[static_cast<size_t>(i / 2 - begin / 2)] >> (i % 2 == 0 ? first_shift_ : 4 - first_shift_) &
          15;
    }
  }

  const int64_t columns_;
  const int first_shift_;
};

}  // namespace

std::shared_ptr<const Codes> byte_codes(const Files& files, const io::TensorInfo& tensor, uint8_t plus) {
  return std::make_shared<ByteCodes>(files, tensor, plus);
}

std::shared_ptr<const Codes> nibble_codes(const Files& files, const io::TensorInfo& tensor) {
  return std::make_shared<NibbleCodes>(files, tensor);
}

std::shared_ptr<const Codes> word_codes(const Files& files, const io::TensorInfo& tensor, int bits) {
  return std::make_shared<WordCodes>(files, tensor, bits);
}

std::shared_ptr<const Codes> turned_word_codes(const Files& files, const io::TensorInfo& tensor, int bits) {
  return std::make_shared<TurnedWordCodes>(files, tensor, bits);
}

std::shared_ptr<const Codes> awq_codes(const Files& files, const io::TensorInfo& tensor) {
  return std::make_shared<AwqCodes>(files, tensor);
}

std::shared_ptr<const Codes> flat_nibbles(const Files& files, const io::TensorInfo& tensor, int64_t columns,
                                          bool low_first) {
  return std::make_shared<FlatNibbles>(files, tensor, columns, low_first);
}

}  // namespace tessera::checkpoint::quantized

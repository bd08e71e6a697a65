#include <algorithm>
#include <cmath>
#include <cstring>

#include "tessera/checkpoint/quantized/codes.h"
#include "tessera/checkpoint/quantized/formats.h"
#include "tessera/checkpoint/quantized/grid.h"
#include "tessera/core/strings.h"
#include "tessera/device/host_memory.h"
#include "tessera/io/json_reader.h"

namespace tessera::checkpoint::quantized {
namespace {

constexpr std::string_view kWeight = ".weight", kAbsmax = ".weight.absmax", kMap = ".weight.quant_map";
constexpr std::string_view kNestedAbsmax = ".weight.nested_absmax", kNestedMap = ".weight.nested_quant_map";
constexpr std::string_view kNf4 = ".weight.quant_state.bitsandbytes__nf4";
constexpr std::string_view kFp4 = ".weight.quant_state.bitsandbytes__fp4";
constexpr std::string_view kRowScales = ".SCB", kLayout = ".weight_format";
constexpr std::string_view kSuffixes[] = {kWeight, kAbsmax, kMap,       kNestedAbsmax, kNestedMap,
                                          kNf4,    kFp4,    kRowScales, kLayout};
constexpr int64_t kNestedBlock = 256;

// Scales of blocks in the flat order of the whole matrix.
class FlatScales : public Scales {
 public:
  FlatScales(Files files, const io::TensorInfo& absmax, int64_t columns, int64_t block)
      : files_(std::move(files)), absmax_(&absmax), columns_(columns), block_(block) {}

  void read(const Box& box, int64_t elements, float* scales, float*) const override {
    std::vector<float> run;
    for (int64_t row = box.offset[0]; row < box.offset[0] + box.size[0]; ++row) {
      const int64_t begin = row * columns_ + box.offset[1], end = begin + box.size[1];
      const int64_t first = begin / block_, count = (end - 1) / block_ - first + 1;
      run.resize(static_cast<size_t>(count));
      read_run(first, run);
      for (int64_t at = begin; at < end; at += elements)
        *scales++ = run[static_cast<size_t>(at / block_ - first)];
    }
  }

 protected:
  // Fills `run` with the scales from block `first` on.
  virtual void read_run(int64_t first, std::vector<float>& run) const {
    files_->read(absmax_->name, first * 4, static_cast<int64_t>(run.size()) * 4, run.data());
    if (std::ranges::all_of(run, [](float scale) { return scale >= 0.0f; })) return;
    throw broken(*files_, absmax_->name, "a largest magnitude is negative or no number");
  }
  const io::ModelFiles& files() const { return *files_; }
  const io::TensorInfo& absmax() const { return *absmax_; }

 private:
  const Files files_;
  const io::TensorInfo* const absmax_;
  const int64_t columns_, block_;
};

// Scales that are quantised themselves: map[code] * scale of 256 codes + offset, each step rounded.
class NestedScales : public FlatScales {
 public:
  NestedScales(const Files& files, const io::TensorInfo& absmax, int64_t columns, int64_t block,
               std::vector<float> map, std::vector<float> outer, float offset)
      : FlatScales(files, absmax, columns, block),
        map_(std::move(map)),
        outer_(std::move(outer)),
        offset_(offset) {}

 protected:
  void read_run(int64_t first, std::vector<float>& run) const override {
    std::vector<uint8_t> codes(run.size());
    files().read(absmax().name, first, static_cast<int64_t>(codes.size()), codes.data());
    for (size_t i = 0; i < run.size(); ++i) {
      run[i] = map_[codes[i]] * outer_[(static_cast<size_t>(first) + i) / kNestedBlock];
    }
    for (float& scale : run) scale += offset_;  // a loop of its own, lest product and sum are rounded once
  }

 private:
  const std::vector<float> map_, outer_;
  const float offset_;
};

io::JsonReader read_state(const Parts& parts, std::string_view suffix) {
  const io::TensorInfo& tensor = parts.require(suffix, {DType::U8});
  if (tensor.num_bytes() > 1 << 16) {
    throw broken(parts.files(), tensor.name, "the description of a quantised weight is too long");
  }
  std::string text(static_cast<size_t>(tensor.num_bytes()), '\0');
  parts.files().read(tensor.name, 0, tensor.num_bytes(), text.data());
  return io::JsonReader::parse(text, parts.files().folder() + ": tensor '" + tensor.name + "'");
}

// Reads a vector of `count` float32 numbers, all of which are finite.
std::vector<float> read_vector(const Parts& parts, std::string_view suffix, int64_t count) {
  const io::TensorInfo& tensor = parts.require(suffix, {DType::F32});
  if (tensor.numel() != count) {
    throw broken(parts.files(), tensor.name, "a part of a quantised weight has another shape")
        .got(format_shape(tensor.shape))
        .need("[" + std::to_string(count) + "]");
  }
  std::vector<float> numbers = read_floats(parts.files(), tensor);
  if (std::ranges::all_of(numbers, [](float x) { return std::isfinite(x); })) return numbers;
  throw broken(parts.files(), tensor.name, "a number of this tensor is not finite");
}

// A file's values of the codes must be those with which blocks are expanded.
void check_map(const Parts& parts, io::BlockKind kind) {
  if (!parts.has(kMap)) return;
  const std::vector<float> map = read_vector(parts, kMap, 16);
  if (std::equal(map.begin(), map.end(), io::code_table(kind))) return;
  throw broken(parts.files(), parts.name_of(kMap), "the values of the four-bit codes are not bitsandbytes'")
      .hint("another program or an old version has written the folder: quantise the model again");
}

int64_t block_size_of(const io::JsonReader& state) {
  const int64_t size = state.integer("blocksize", 1, int64_t{1} << 20);
  if (size >= 32 && size <= 4096 && (size & (size - 1)) == 0) return size;
  throw state.problem("blocksize", "no block size of bitsandbytes")
      .got(std::to_string(size))
      .need("a power of two from 32 to 4096");
}

std::shared_ptr<const Scales> scales_of(const Folder& folder, const Parts& parts, const io::JsonReader& state,
                                        int64_t rows, int64_t columns, int64_t block) {
  const int64_t blocks = (rows * columns + block - 1) / block;
  const bool is_nested = parts.has(kNestedAbsmax) || state.has("nested_blocksize");
  const io::TensorInfo& absmax = parts.require(kAbsmax, {is_nested ? DType::U8 : DType::F32});
  if (absmax.numel() != blocks) {
    throw broken(parts.files(), absmax.name, "not one scale for each block")
        .got(std::to_string(absmax.numel()))
        .need(std::to_string(blocks));
  }
  if (!is_nested) return std::make_shared<FlatScales>(folder.files, absmax, columns, block);
  (void)state.integer("nested_blocksize", kNestedBlock, kNestedBlock);
  constexpr double kMost = 3e38;
  return std::make_shared<NestedScales>(
      folder.files, absmax, columns, block, read_vector(parts, kNestedMap, 256),
      read_vector(parts, kNestedAbsmax, (blocks + kNestedBlock - 1) / kNestedBlock),
      static_cast<float>(state.number("nested_offset", -kMost, kMost)));
}

CodedWeight four_bit_weight(const Folder& folder, const Parts& parts) {
  const std::string_view suffix = parts.has(kNf4) ? kNf4 : kFp4;
  const io::BlockKind kind = suffix == kNf4 ? io::BlockKind::Nf4 : io::BlockKind::Fp4;
  const io::JsonReader state = read_state(parts, suffix);
  const std::string type = suffix == kNf4 ? "nf4" : "fp4";
  if (state.text("quant_type", type) != type) {
    throw state.problem("quant_type", "does not agree with the tensor's name").need(type);
  }
  const std::vector<int64_t> shape = state.integers("shape", 1, int64_t{1} << 40);
  if (shape.size() != 2) throw state.problem("shape", "not the shape of a matrix").got(format_shape(shape));
  const int64_t block = block_size_of(state);
  CodedWeight weight = make_weight(parts, kWeight, shape[0], shape[1], kind, block);
  const io::TensorInfo* stored = parts.find(kWeight);
  if (stored == nullptr) {
    throw broken(parts.files(), parts.name_of(kWeight), "the quantised weight lacks its codes");
  }
  // The codes may be kept as elements of a wider type, which the last one fills up.
  const int64_t bytes = (shape[0] * shape[1] + 1) / 2, element = dtype_size(stored->dtype);
  if (stored->num_bytes() != (bytes + element - 1) / element * element) {
    throw broken(parts.files(), stored->name, "not one code for each element")
        .got(std::to_string(stored->num_bytes()) + " bytes")
        .need(std::to_string(bytes));
  }
  check_map(parts, kind);
  weight.codes = flat_nibbles(folder.files, *stored, shape[1]);
  weight.scales = scales_of(folder, parts, state, shape[0], shape[1], block);
  return weight;
}

CodedWeight eight_bit_weight(const Folder& folder, const Parts& parts) {
  const io::TensorInfo& stored = parts.require_matrix(kWeight, {DType::I8});
  if (parts.has(kLayout)) {
    const io::TensorInfo& layout = parts.require(kLayout, {DType::U8});
    uint8_t number = 255;
    if (layout.numel() == 1) parts.files().read(layout.name, 0, 1, &number);
    if (number != 0) {
      throw Error(ErrorKind::Model, "UNSUPPORTED",
                  "int8 weights in a layout for one kind of GPU cannot be read")
          .in(parts.files().folder() + ": tensor '" + layout.name + "'")
          .got(number == 1   ? "col32"
               : number == 2 ? "col_turing"
               : number == 3 ? "col_ampere"
                             : std::to_string(number))
          .need("0, rows")
          .hint("save the model again with bitsandbytes 0.43 or newer");
    }
  }
  const int64_t rows = stored.shape[0], columns = stored.shape[1];
  CodedWeight weight = make_weight(parts, kWeight, rows, columns, io::BlockKind::LlmInt8, columns);
  const io::TensorInfo& scales = parts.require(kRowScales, {DType::F32});
  if (scales.numel() != rows) {
    throw broken(parts.files(), scales.name, "not one scale for each row")
        .got(std::to_string(scales.numel()))
        .need(std::to_string(rows));
  }
  for (const float scale : read_floats(parts.files(), scales)) {
    if (!(scale >= 0.0f))
      throw broken(parts.files(), scales.name, "a largest magnitude is negative or no number");
  }
  weight.codes = byte_codes(folder.files, stored);
  weight.scales = grid_scales(Groups::in_order(columns, columns), stored_grid(folder.files, scales, rows, 1));
  return weight;
}

}  // namespace

Found find_bitsandbytes(const Folder& folder) {
  Found found;
  for (const Parts& parts : modules_of(*folder.files, kSuffixes)) {
    const bool is_four_bit = parts.has(kNf4) || parts.has(kFp4) || parts.has(kAbsmax) || parts.has(kMap);
    if (is_four_bit) {
      found.weights.push_back(four_bit_weight(folder, parts));
    } else if (parts.has(kRowScales)) {
      found.weights.push_back(eight_bit_weight(folder, parts));
    } else {
      continue;
    }
    parts.note_used(kSuffixes, found);
  }
  return found;
}

}  // namespace tessera::checkpoint::quantized

#include "tessera/checkpoint/coded_source.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/core/error.h"
#include "tessera/core/round_up.h"
#include "tessera/device/device.h"
#include "tessera/device/host_memory.h"
#include "tessera/ops/weight.h"

namespace tessera::checkpoint {
namespace {

using io::BlockForm;
using io::BlockKind;
using parallel::Box;

// Bytes of float32 values that are read and quantised at a time.
constexpr int64_t kStagingBytes = int64_t{8} << 20;

bool has_row_scales(const CodedParameter& parameter) { return parameter.quantization->group == 0; }

// The scales of groups of a weight, from number `first_group` on in its flat order.
struct Scales {
  std::string name;
  int64_t first_group = 0;
  // The largest magnitudes of the blocks, by which codes are made, and the values that double quantisation
  // turns them into.
  std::vector<float> exact, kept;

  // Counts in the values of elements [first, first + count) of the flat order.
  void add(const float* values, int64_t first, int64_t count, int64_t group) {
    for (int64_t i = 0; i < count;) {
      const int64_t at = first + i, end = std::min(count, i + group - at % group);
      float& scale = exact[static_cast<size_t>(at / group - first_group)];
      for (; i < end; ++i) scale = std::max(scale, std::fabs(values[i]));
    }
  }
};

// Writes blocks whose codes are known.
class BlockWriter {
 public:
  BlockWriter(const BlockForm& form, uint8_t* to) : form_(form), to_(to) {}
  void add(float scale, const uint8_t* codes) {
    io::write_block(form_, scale, 0.0f, codes, to_);
    to_ += form_.bytes;
  }

 private:
  const BlockForm& form_;
  uint8_t* to_;
};

// Quantises one row of values from column `first` on.
struct RowOfGroups {
  const CodedParameter& parameter;
  const Scales& scales;

  void operator()(int64_t row, int64_t first, int64_t count, const float* values, uint8_t* to) const {
    const BlockForm& form = parameter.form;
    const int64_t group = parameter.quantization->group, columns = parameter.shape[1],
                  numel = parameter.shape[0] * columns;
    BlockWriter writer(form, to);
    std::vector<uint8_t> codes(static_cast<size_t>(form.elements));
    for (int64_t i = 0; i < count; i += form.elements) {
      const int64_t index = (row * columns + first + i) / group;
      const bool is_short = (index + 1) * group > numel;
      const auto at = static_cast<size_t>(index - scales.first_group);
      io::code_in_four_bits(form.kind, values + i, form.elements, scales.exact[at], is_short, codes.data());
      writer.add(scales.kept[at], codes.data());
    }
  }
};

// Quantises columns [first, first + count) of a whole row as LLM.int8 does (Dettmers et al., arXiv
// 2208.07339): to float16, then by the largest magnitude of the row.
void quantize_row(const BlockForm& form, const float* row, int64_t columns, int64_t first, int64_t count,
                  uint8_t* to) {
  float scale = 0.0f;
  for (int64_t i = 0; i < columns; ++i) scale = std::max(scale, std::fabs(row[i]));
  const float factor = scale > 0.0f ? 127.0f / scale : 0.0f;
  BlockWriter writer(form, to);
  std::vector<uint8_t> codes(static_cast<size_t>(form.elements));
  for (int64_t i = first; i < first + count; i += form.elements) {
    for (int64_t k = 0; k < form.elements; ++k) {
      codes[static_cast<size_t>(k)] =
          static_cast<uint8_t>(static_cast<int8_t>(std::nearbyint(row[i + k] * factor)));
    }
    writer.add(scale, codes.data());
  }
}

class CodedSource : public ParameterSource {
 public:
  CodedSource(std::shared_ptr<const ParameterSource> values, std::shared_ptr<const StoredTensors> files,
              std::unordered_map<std::string, CodedParameter> coded)
      : values_(std::move(values)), files_(std::move(files)), coded_(std::move(coded)) {}

  bool holds(const std::string& parameter) const override {
    return coded_.contains(parameter) || values_->holds(parameter);
  }

  std::optional<DType> stored_dtype(const std::string& parameter) const override {
    return coded_.contains(parameter) ? std::optional(DType::U8) : values_->stored_dtype(parameter);
  }

  void read(const std::string& name, const Box& box, const at::Tensor& destination) const override {
    const auto found = coded_.find(name);
    if (found == coded_.end()) return values_->read(name, box, destination);
    const CodedParameter& parameter = found->second;
    if (destination.is_floating_point()) return read_values(name, parameter.form, box, destination);
    const BlockForm& form = parameter.form;
    TESSERA_ASSERT(destination.scalar_type() == at::kByte && box.size.size() == 2 &&
                       box.offset[1] % form.bytes == 0 && box.size[1] % form.bytes == 0,
                   "a box of whole blocks");
    if (destination.numel() == 0) return;
    const auto elements = [&](int64_t bytes) { return bytes / form.bytes * form.elements; };
    const Box of_values{{box.offset[0], elements(box.offset[1])}, {box.size[0], elements(box.size[1])}};
    const bool is_here = is_on_host(destination) && destination.is_contiguous();
    const at::Tensor blocks = is_here ? destination : at::empty(box.size, on_host(at::kByte));
    if (parameter.quantization) {
      quantize(name, parameter, of_values, blocks);
    } else {
      copy(parameter, of_values, blocks);
    }
    if (!is_here) destination.copy_(blocks);
  }

 private:
  // Reads the values of a box, a few rows at a time, by way of the blocks that hold its columns.
  void read_values(const std::string& name, const BlockForm& form, const Box& box,
                   const at::Tensor& destination) const {
    const int64_t first = box.offset[1] / form.elements,
                  end = round_up(box.offset[1] + box.size[1], form.elements) / form.elements;
    const int64_t step = std::max<int64_t>(1, kStagingBytes / std::max<int64_t>(4 * box.size[1], 1));
    for (int64_t row = 0; row < box.size[0]; row += step) {
      const int64_t count = std::min(step, box.size[0] - row);
      const Box of_blocks{{box.offset[0] + row, first * form.bytes}, {count, (end - first) * form.bytes}};
      const at::Tensor blocks = at::empty(of_blocks.size, on_host(at::kByte));
      read(name, of_blocks, blocks);
      const at::Tensor values = ops::Weight(blocks, form).rows(0, count, at::kFloat);
      destination.narrow(0, row, count)
          .copy_(values.narrow(1, box.offset[1] - first * form.elements, box.size[1]));
    }
  }

  // Calls f(row, values) for rows [first, first + count) of the weight, with their columns
  // [first_column, first_column + columns) in float32; several threads call it at a time.
  template <class F>
  void each_row(const std::string& name, const CodedParameter& parameter, int64_t first, int64_t count,
                int64_t first_column, int64_t columns, bool is_parallel, const F& f) const {
    const int64_t step = std::max<int64_t>(1, kStagingBytes / (4 * columns));
    for (int64_t done = 0; done < count; done += step) {
      const int64_t rows = std::min(step, count - done);
      at::Tensor read = at::empty({rows, columns}, on_host(parameter.type));
      values_->read(name, {{first + done, first_column}, {rows, columns}}, read);
      if (parameter.form.kind == BlockKind::LlmInt8) read = read.to(at::kHalf);
      const at::Tensor values = read.to(at::kFloat);
      const float* const from = values.const_data_ptr<float>();
      const auto run = [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) f(first + done + i, from + i * columns);
      };
      is_parallel ? at::parallel_for(0, rows, std::max<int64_t>(1, 16384 / columns), run) : run(0, rows);
    }
  }

  void quantize(const std::string& name, const CodedParameter& parameter, const Box& box,
                const at::Tensor& blocks) const {
    const BlockForm& form = parameter.form;
    const int64_t first = box.offset[0], rows = box.size[0], column = box.offset[1], columns = box.size[1],
                  all_columns = parameter.shape[1], row_bytes = form.row_bytes(columns);
    auto* const to = static_cast<uint8_t*>(blocks.mutable_data_ptr());
    if (has_row_scales(parameter)) {
      return each_row(
          name, parameter, first, rows, 0, all_columns, true, [&](int64_t row, const float* values) {
            quantize_row(form, values, all_columns, column, columns, to + (row - first) * row_bytes);
          });
    }
    const bool is_local =
        all_columns % parameter.quantization->group == 0 && !parameter.quantization->double_quantization;
    const std::shared_ptr<const Scales> scales =
        is_local ? find_scales(name, parameter, first, rows) : scales_of_whole(name, parameter);
    const RowOfGroups quantize_columns{parameter, *scales};
    each_row(name, parameter, first, rows, column, columns, true, [&](int64_t row, const float* values) {
      quantize_columns(row, column, columns, values, to + (row - first) * row_bytes);
    });
  }

  // Returns the scales of the groups of these rows, with which a group begins.
  std::shared_ptr<const Scales> find_scales(const std::string& name, const CodedParameter& parameter,
                                            int64_t first, int64_t rows) const {
    const int64_t columns = parameter.shape[1], group = parameter.quantization->group;
    auto scales = std::make_shared<Scales>();
    scales->name = name;
    scales->first_group = first * columns / group;
    scales->exact.assign(static_cast<size_t>((rows * columns + group - 1) / group), 0.0f);
    each_row(name, parameter, first, rows, 0, columns, columns % group == 0,
             [&](int64_t row, const float* values) { scales->add(values, row * columns, columns, group); });
    scales->kept = scales->exact;
    if (parameter.quantization->double_quantization) io::quantize_scales(scales->kept);
    return scales;
  }

  // Keeps the scales of the last weight, as its boxes come one after the other.
  std::shared_ptr<const Scales> scales_of_whole(const std::string& name,
                                                const CodedParameter& parameter) const {
    const std::lock_guard lock(mutex_);
    if (last_ == nullptr || last_->name != name) last_ = find_scales(name, parameter, 0, parameter.shape[0]);
    return last_;
  }

  // Copies stored blocks, or cuts them into the smaller ones of the parameter's form.
  void copy(const CodedParameter& parameter, const Box& box, const at::Tensor& blocks) const {
    const std::optional<BlockForm> stored = files_->form(parameter.tensor);
    TESSERA_ASSERT(
        stored && stored->kind == parameter.form.kind && stored->elements % parameter.form.elements == 0,
        "the blocks of '" + parameter.tensor + "'");
    const int64_t row = parameter.first_row + box.offset[0];
    if (*stored == parameter.form)
      return files_->read_blocks(parameter.tensor, {{row, box.offset[1]}, box.size}, blocks);
    const int64_t begin = box.offset[1] / stored->elements * stored->elements;
    const int64_t end = round_up(box.offset[1] + box.size[1], stored->elements);
    const Box around{{row, begin}, {box.size[0], end - begin}};
    const at::Tensor read = at::empty({box.size[0], stored->row_bytes(end - begin)}, on_host(at::kByte));
    files_->read_blocks(parameter.tensor, around, read);
    const int64_t row_bytes = parameter.form.row_bytes(box.size[1]);
    for (int64_t i = 0; i < box.size[0]; ++i) {
      io::split_blocks(*stored, static_cast<const uint8_t*>(read.const_data_ptr()) + i * read.size(1),
                       box.offset[1] - begin, box.size[1], parameter.form,
                       static_cast<uint8_t*>(blocks.mutable_data_ptr()) + i * row_bytes);
    }
  }

  std::shared_ptr<const ParameterSource> values_;
  std::shared_ptr<const StoredTensors> files_;
  std::unordered_map<std::string, CodedParameter> coded_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Scales> last_;
};

}  // namespace

std::shared_ptr<const ParameterSource> coded_source(std::shared_ptr<const ParameterSource> values,
                                                    std::shared_ptr<const StoredTensors> files,
                                                    std::unordered_map<std::string, CodedParameter> coded) {
  return std::make_shared<CodedSource>(std::move(values), std::move(files), std::move(coded));
}

}  // namespace tessera::checkpoint

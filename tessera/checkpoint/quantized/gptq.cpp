#include <algorithm>

#include "tessera/checkpoint/quantized/codes.h"
#include "tessera/checkpoint/quantized/formats.h"
#include "tessera/checkpoint/quantized/grid.h"
#include "tessera/checkpoint/quantized/word_zeros.h"
#include "tessera/core/strings.h"

namespace tessera::checkpoint::quantized {
namespace {

constexpr std::string_view kCodes = ".qweight", kZeros = ".qzeros", kScales = ".scales", kIndex = ".g_idx";
constexpr std::string_view kSuffixes[] = {kCodes, kZeros, kScales, kIndex};

// Returns what is added to a stored zero code: the first version of the files keeps them less one.
int plus_of(const io::JsonReader& config) {
  const std::string key = config.has("checkpoint_format") ? "checkpoint_format" : "format";
  const std::string format = lower(config.text(key, "gptq"));
  if (config.boolean("is_marlin_format", false)) {
    refuse(config, "is_marlin_format", "GPTQ weights in Marlin's layout cannot be read",
           "use the folder from which the Marlin one was made");
  }
  if (format == "gptq") return 1;
  if (format == "gptq_v2") return 0;
  refuse(config, key, "the GPTQ layout '" + format + "' cannot be read",
         "gptq and gptq_v2 are read: quantise the model again with format: gptq");
}

// The size of groups whose columns are in order.
int64_t group_size_of(const io::JsonReader& config, const Parts& parts, int64_t columns, int64_t groups) {
  const int64_t told = config.integer("group_size", -1, int64_t{1} << 31, -1);
  const int64_t size = told < 1 ? columns : std::min(told, columns);
  if ((columns + size - 1) / size == groups) return size;
  // Single modules may have been quantised with groups of another size.
  if (groups > 0 && columns % groups == 0) return columns / groups;
  throw broken(parts.files(), parts.name_of(kScales), "not one row of scales for each group")
      .got(std::to_string(groups))
      .need(std::to_string((columns + size - 1) / size));
}

CodedWeight weight_of(const Folder& folder, const Parts& parts, int plus) {
  const io::TensorInfo& codes = parts.require_matrix(kCodes, {DType::I32});
  const io::TensorInfo& scales = parts.require_matrix(kScales, {DType::F16, DType::BF16, DType::F32});
  const int64_t groups = scales.shape[0], rows = scales.shape[1];
  const io::TensorInfo& zeros = parts.require_matrix(kZeros, {DType::I32}, groups);
  if (codes.shape[1] != rows) {
    throw broken(parts.files(), codes.name, "codes and scales have another number of columns")
        .got(std::to_string(codes.shape[1]))
        .need(std::to_string(rows));
  }
  const int64_t bits = zeros.shape[1] * 32 / rows;
  const bool is_readable = bits == 2 || bits == 3 || bits == 4 || bits == 8;
  if (!is_readable || zeros.shape[1] * 32 != rows * bits || codes.shape[0] * 32 % bits != 0) {
    throw broken(parts.files(), zeros.name,
                 "not words with one zero code of 2, 3, 4 or 8 bits for each output")
        .got(format_shape(zeros.shape) + " for " + std::to_string(rows) + " outputs");
  }
  if (folder.config.integer("bits", 1, 32, bits) != bits && !folder.config.has("dynamic")) {
    throw broken(parts.files(), zeros.name, "the codes have another width than the configuration says")
        .got(std::to_string(bits) + " bits")
        .need(std::to_string(folder.config.integer("bits", 1, 32)));
  }
  const int64_t columns = codes.shape[0] * 32 / bits;
  check_size(parts, kCodes, rows, columns);
  const Groups in_groups =
      parts.has(kIndex)
          ? Groups::of_index(read_index(parts.files(), parts.require(kIndex, {DType::I32}), columns, groups),
                             groups)
          : Groups::in_order(columns, group_size_of(folder.config, parts, columns, groups));
  const auto kind = bits <= 4 ? io::BlockKind::Affine4 : io::BlockKind::Affine8;
  CodedWeight weight = make_weight(parts, kCodes, rows, columns, kind, in_groups.size());
  weight.is_by_columns = true;
  weight.codes = turned_word_codes(folder.files, codes, static_cast<int>(bits));
  weight.scales =
      grid_scales(in_groups, stored_grid(folder.files, scales, rows, groups, {.is_turned = true}),
                  word_zeros(folder.files, zeros, {.bits = static_cast<int>(bits), .plus = plus}));
  return weight;
}

}  // namespace

Found find_gptq(const Folder& folder) {
  const int plus = plus_of(folder.config);
  Found found;
  for (const Parts& parts : modules_of(*folder.files, kSuffixes)) {
    found.weights.push_back(weight_of(folder, parts, plus));
    parts.note_used(kSuffixes, found);
  }
  return found;
}

}  // namespace tessera::checkpoint::quantized

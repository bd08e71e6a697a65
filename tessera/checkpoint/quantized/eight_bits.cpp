#include <algorithm>

#include "tessera/checkpoint/quantized/codes.h"
#include "tessera/checkpoint/quantized/formats.h"
#include "tessera/checkpoint/quantized/grid.h"
#include "tessera/core/strings.h"

namespace tessera::checkpoint::quantized {
namespace {

constexpr std::string_view kWeight = ".weight", kScale = ".weight_scale", kSecond = ".weight_scale_2";
constexpr std::string_view kInverse = ".weight_scale_inv", kSmoothing = ".pre_quant_scale";
// Beside weights, files have scales of the values between layers, which are kept as they are here.
constexpr std::string_view kSuffixes[] = {kWeight,    kScale,         kSecond,         kInverse,
                                          kSmoothing, ".input_scale", ".output_scale", ".activation_scale",
                                          ".q_scale", ".k_scale",     ".v_scale"};
constexpr std::string_view kOfActivations[] = {".input_scale", ".output_scale", ".activation_scale",
                                               ".q_scale",     ".k_scale",      ".v_scale"};

// The rows and columns of a matrix that have one scale.
struct Tile {
  int64_t rows, columns;
};

CodedWeight e4m3_weight(const Folder& folder, const Parts& parts, std::string_view suffix, Tile tile,
                        bool are_exponents) {
  const io::TensorInfo& stored = parts.require_matrix(kWeight, {DType::F8E4M3});
  const io::TensorInfo& scale =
      parts.require(suffix, {DType::F32, DType::BF16, DType::F16, are_exponents ? DType::U8 : DType::F32});
  const int64_t rows = stored.shape[0], columns = stored.shape[1];
  tile = {std::min(tile.rows, rows), std::min(tile.columns, columns)};
  CodedWeight weight = make_weight(parts, kWeight, rows, columns, io::BlockKind::E4m3, tile.columns);
  const Groups groups = Groups::in_order(columns, tile.columns);
  weight.codes = byte_codes(folder.files, stored);
  weight.scales =
      grid_scales(groups, stored_grid(folder.files, scale, (rows + tile.rows - 1) / tile.rows, groups.count(),
                                      {.tile_rows = tile.rows, .are_exponents = scale.dtype == DType::U8}));
  return weight;
}

// A tile that is as large as any matrix.
constexpr Tile kWhole = {int64_t{1} << 44, int64_t{1} << 44};

Tile tile_of(const io::JsonReader& config) {
  if (!config.has("weight_block_size")) return kWhole;
  const std::vector<int64_t> sizes = config.integers("weight_block_size", 1, int64_t{1} << 31);
  if (sizes.size() == 2) return {sizes[0], sizes[1]};
  throw config.problem("weight_block_size", "bad value").got(format_shape(sizes)).need("rows and columns");
}

CodedWeight nvfp4_weight(const Folder& folder, const Parts& parts) {
  constexpr int64_t kGroup = 16;
  const io::TensorInfo& stored = parts.require_matrix(kWeight, {DType::U8});
  const int64_t rows = stored.shape[0], columns = 2 * stored.shape[1];
  const io::TensorInfo& scale = parts.require_matrix(kScale, {DType::F8E4M3}, rows);
  const io::TensorInfo& second = parts.require(kSecond, {DType::F32});
  CodedWeight weight = make_weight(parts, kWeight, rows, columns, io::BlockKind::E2m1, kGroup);
  const Groups groups = Groups::in_order(columns, kGroup);
  if (second.numel() != 1) throw broken(parts.files(), second.name, "not one number for the whole weight");
  weight.codes = nibble_codes(folder.files, stored);
  weight.scales = grid_scales(groups, stored_grid(folder.files, scale, rows, groups.count(),
                                                  {.times = read_floats(parts.files(), second).front()}));
  return weight;
}

// Looks at all modules: `read` returns the weight of one that is quantised.
template <class Read>
Found find_all(const Folder& folder, const Read& read) {
  Found found;
  for (const Parts& parts : modules_of(*folder.files, kSuffixes)) {
    const bool has_scale = parts.has(kScale) || parts.has(kSecond) || parts.has(kInverse);
    if (!has_scale) {
      parts.note_used(kOfActivations, found);
      continue;
    }
    if (parts.has(kSmoothing)) {
      throw Error(ErrorKind::Model, "UNSUPPORTED", "weights with smoothed inputs cannot be read")
          .in(parts.files().folder() + ": tensor '" + parts.name_of(kSmoothing) + "'")
          .hint("use the model from which the quantised one was made");
    }
    found.weights.push_back(read(parts));
    parts.note_used(kSuffixes, found);
  }
  return found;
}

}  // namespace

Found find_fp8(const Folder& folder) {
  const Tile tile = tile_of(folder.config);
  return find_all(folder, [&](const Parts& parts) {
    return e4m3_weight(folder, parts, parts.has(kInverse) ? kInverse : kScale, tile, true);
  });
}

Found find_modelopt(const Folder& folder) {
  const std::string key = "quant_algo";
  const std::string algorithm = folder.config.text(key, "");
  constexpr const char* kKnown[] = {"", "FP8", "NVFP4"};
  if (std::ranges::find(kKnown, algorithm) == std::end(kKnown)) {
    refuse(folder.config, key, "the ModelOpt format '" + algorithm + "' cannot be read",
           "FP8 and NVFP4 are read; use the model from which the quantised one was made");
  }
  return find_all(folder, [&](const Parts& parts) {
    return parts.has(kSecond) ? nvfp4_weight(folder, parts)
                              : e4m3_weight(folder, parts, kScale, kWhole, false);
  });
}

}  // namespace tessera::checkpoint::quantized

#include <algorithm>

#include <ATen/ATen.h>

#include "tessera/checkpoint/quantized/codes.h"
#include "tessera/checkpoint/quantized/formats.h"
#include "tessera/checkpoint/quantized/grid.h"
#include "tessera/checkpoint/quantized/word_zeros.h"
#include "tessera/core/strings.h"

namespace tessera::checkpoint::quantized {
namespace {

constexpr std::string_view kWeight = ".weight", kPacked = ".weight_packed", kScale = ".weight_scale";
constexpr std::string_view kShape = ".weight_shape", kZero = ".weight_zero_point", kIndex = ".weight_g_idx";
constexpr std::string_view kGlobal = ".weight_global_scale";
constexpr std::string_view kSuffixes[] = {kWeight, kPacked, kScale, kShape, kZero, kIndex, kGlobal};
// Scales of the values between layers, which are kept as they are here.
constexpr std::string_view kOfActivations[] = {".input_scale",    ".input_zero_point",  ".input_global_scale",
                                               ".output_scale",   ".output_zero_point", ".q_scale",
                                               ".q_zero_point",   ".k_scale",           ".k_zero_point",
                                               ".v_scale",        ".v_zero_point",      ".input_observer",
                                               ".weight_observer"};

// How a group of the configuration quantises weights.
struct Scheme {
  int64_t bits = 8;
  bool is_float = false;
  std::string strategy;                     // "tensor", "channel", "group", "tensor_group", "block"
  int64_t tile_rows = 1, tile_columns = 1;  // that have one scale; 0: all
};

void refuse_format(const io::JsonReader& config, const std::string& format) {
  constexpr const char* kKnown[] = {
      "pack-quantized",       "int-quantized",        "float-quantized", "naive-quantized",
      "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mixed-precision", "dense"};
  if (std::ranges::find(kKnown, format) != std::end(kKnown)) return;
  refuse(config, "format", "the compressed-tensors format '" + format + "' cannot be read",
         "use the model from which the quantised one was made");
}

void check_config(const io::JsonReader& config) {
  if (config.has("format")) refuse_format(config, config.text("format"));
  if (!config.is_empty("transform_config")) {
    refuse(config, "transform_config",
           "weights that are transformed before they are quantised cannot be read",
           "use the model from which the quantised one was made");
  }
  if (const auto sparsity = config.object("sparsity_config")) {
    const std::string format = sparsity->text("format", "dense");
    if (format != "dense") {
      refuse(*sparsity, "format", "weights in the sparse format '" + format + "' cannot be read",
             "use the model from which the sparse one was made");
    }
  }
  const std::string status = config.text("quantization_status", "compressed");
  if (status != "compressed" && status != "frozen") {
    refuse(config, "quantization_status", "weights that are still being calibrated cannot be read",
           "save the model compressed");
  }
}

Scheme read_scheme(const io::JsonReader& weights) {
  Scheme scheme;
  scheme.bits = weights.integer("num_bits", 1, 16, 8);
  scheme.is_float = weights.text("type", "int") == "float";
  const bool has_group = weights.optional_integer("group_size", -1, int64_t{1} << 31).value_or(-1) > 0;
  scheme.strategy = weights.text("strategy", has_group ? "group" : "tensor");
  if (scheme.strategy == "tensor") {
    scheme.tile_rows = scheme.tile_columns = 0;
  } else if (scheme.strategy == "channel") {
    scheme.tile_columns = 0;
  } else if (scheme.strategy == "group" || scheme.strategy == "tensor_group") {
    scheme.tile_columns = weights.integer("group_size", 1, int64_t{1} << 31);
  } else if (scheme.strategy == "block") {
    const std::vector<int64_t> sizes = weights.integers("block_structure", 1, int64_t{1} << 31);
    if (sizes.size() != 2) {
      throw weights.problem("block_structure", "bad value").got(format_shape(sizes)).need("rows and columns");
    }
    scheme.tile_rows = sizes[0];
    scheme.tile_columns = sizes[1];
  } else {
    refuse(weights, "strategy", "weights with the strategy '" + scheme.strategy + "' cannot be read",
           "tensor, channel, group, tensor_group and block are read");
  }
  return scheme;
}

std::vector<Scheme> read_schemes(const Folder& folder) {
  std::vector<Scheme> schemes;
  const auto groups = folder.config.object("config_groups");
  if (!groups) throw folder.config.problem("config_groups", "missing key");
  for (const std::string& key : folder.group_names) {
    const auto group = groups->object(key);
    if (!group) continue;
    if (group->has("format")) refuse_format(*group, group->text("format"));
    if (const auto weights = group->object("weights")) schemes.push_back(read_scheme(*weights));
  }
  return schemes;
}

// The tiles of a matrix of this size that have one scale each.
struct Tiles {
  int64_t rows, columns, count_down, count_across;
};

Tiles tiles_of(const Scheme& scheme, int64_t rows, int64_t columns) {
  const int64_t down = scheme.tile_rows == 0 ? rows : std::min(scheme.tile_rows, rows);
  const int64_t across = scheme.tile_columns == 0 ? columns : std::min(scheme.tile_columns, columns);
  return {down, across, (rows + down - 1) / down, (columns + across - 1) / across};
}

// Tells whether scales of this shape are those of the tiles.
bool fits(const io::TensorInfo& scale, const Tiles& tiles) {
  if (scale.shape.size() == 2)
    return scale.shape == std::vector<int64_t>{tiles.count_down, tiles.count_across};
  return scale.shape.size() < 2 && tiles.count_across == 1 && scale.numel() == tiles.count_down;
}

// Reads the weights of one folder.
class Reader {
 public:
  explicit Reader(const Folder& folder) : folder_(folder), schemes_(read_schemes(folder)) {}

  CodedWeight read(const Parts& parts) const {
    if (!parts.has(kPacked)) return byte_weight(parts);
    const io::TensorInfo& packed = parts.require_matrix(kPacked, {DType::I32, DType::U8});
    return packed.dtype == DType::I32 ? word_weight(parts, packed) : e2m1_weight(parts, packed);
  }

 private:
  // Returns the first scheme of the configuration that the stored scales fit. The list of targets need not be
  // looked at: what a module is quantised to shows in its tensors.
  template <class Accepts>
  Scheme scheme_of(const Parts& parts, int64_t rows, int64_t columns, const Accepts& accepts) const {
    const io::TensorInfo& scale =
        parts.require(kScale, {DType::F32, DType::BF16, DType::F16, DType::F8E4M3, DType::U8});
    for (const Scheme& scheme : schemes_) {
      if (accepts(scheme) && fits(scale, tiles_of(scheme, rows, columns))) return scheme;
    }
    throw broken(parts.files(), scale.name, "the scales fit no entry of config_groups")
        .got(format_shape(scale.shape) + " for a weight of " + format_shape({rows, columns}));
  }

  Groups groups_of(const Parts& parts, const Tiles& tiles, int64_t columns) const {
    if (!parts.has(kIndex)) return Groups::in_order(columns, tiles.columns);
    const io::TensorInfo& tensor = parts.require(kIndex, {DType::I32});
    return Groups::of_index(read_index(parts.files(), tensor, columns, tiles.count_across),
                            tiles.count_across);
  }

  CodedWeight word_weight(const Parts& parts, const io::TensorInfo& packed) const {
    const io::TensorInfo& shape = parts.require(kShape, {DType::I64});
    int64_t sizes[2] = {0, 0};
    if (shape.numel() == 2) parts.files().read(shape.name, 0, sizeof sizes, sizes);
    const int64_t rows = sizes[0], columns = sizes[1];
    check_size(parts, kShape, rows, columns);
    if (rows != packed.shape[0]) {
      throw broken(parts.files(), shape.name, "does not agree with the packed weight")
          .got(format_shape({rows, columns}));
    }
    const Scheme scheme = scheme_of(parts, rows, columns, [&](const Scheme& one) {
      return !one.is_float && one.bits <= 8 && words_of(columns, one.bits) == packed.shape[1];
    });
    const Tiles tiles = tiles_of(scheme, rows, columns);
    const Groups groups = groups_of(parts, tiles, columns);
    const auto kind = scheme.bits <= 4 ? io::BlockKind::Affine4 : io::BlockKind::Affine8;
    const int bits = static_cast<int>(scheme.bits);
    CodedWeight weight = make_weight(parts, kPacked, rows, columns, kind, groups.size());
    weight.codes = word_codes(folder_.files, packed, bits);
    weight.scales = grid_scales(groups, scales_of(parts, tiles), zeros_of(parts, tiles, bits, rows));
    return weight;
  }

  std::shared_ptr<const Grid> scales_of(const Parts& parts, const Tiles& tiles) const {
    const io::TensorInfo& scale = parts.require(kScale, {DType::F32, DType::BF16, DType::F16});
    return stored_grid(folder_.files, scale, tiles.count_down, tiles.count_across, {.tile_rows = tiles.rows});
  }

  // Codes are kept with half their range added, and so are the zeros where there are some.
  std::shared_ptr<const Grid> zeros_of(const Parts& parts, const Tiles& tiles, int bits, int64_t rows) const {
    const auto half = static_cast<float>(1 << (bits - 1));
    if (!parts.has(kZero)) return constant_grid(half);
    const io::TensorInfo& zero = parts.require(kZero, {DType::I32, DType::I8});
    if (zero.dtype == DType::I8) {
      return stored_grid(folder_.files, zero, tiles.count_down, tiles.count_across,
                         {.tile_rows = tiles.rows, .plus = half});
    }
    (void)parts.require_matrix(kZero, {DType::I32}, words_of(rows, bits), tiles.count_across);
    if (tiles.rows != 1) throw broken(parts.files(), zero.name, "zeros of tiles of rows are not packed");
    return word_zeros(folder_.files, zero, {.bits = bits, .is_turned = true});
  }

  CodedWeight e2m1_weight(const Parts& parts, const io::TensorInfo& packed) const {
    const int64_t rows = packed.shape[0], columns = 2 * packed.shape[1];
    const bool is_nvfp4 = parts.has(kGlobal);
    const io::TensorInfo& scale = parts.require_matrix(kScale, {is_nvfp4 ? DType::F8E4M3 : DType::U8}, rows);
    const Scheme scheme =
        scheme_of(parts, rows, columns, [](const Scheme& one) { return one.is_float && one.bits == 4; });
    const Tiles tiles = tiles_of(scheme, rows, columns);
    StoredNumbers numbers{.tile_rows = tiles.rows, .are_exponents = !is_nvfp4};
    if (is_nvfp4) {
      const io::TensorInfo& global = parts.require(kGlobal, {DType::F32});
      if (global.numel() == 1) numbers.divided_by = read_floats(parts.files(), global).front();
      if (global.numel() != 1 || !(numbers.divided_by > 0.0f)) {
        throw broken(parts.files(), global.name, "not one positive number for the whole weight");
      }
    }
    CodedWeight weight = make_weight(parts, kPacked, rows, columns, io::BlockKind::E2m1, tiles.columns);
    weight.codes = nibble_codes(folder_.files, packed);
    weight.scales =
        grid_scales(Groups::in_order(columns, tiles.columns),
                    stored_grid(folder_.files, scale, tiles.count_down, tiles.count_across, numbers));
    return weight;
  }

  CodedWeight byte_weight(const Parts& parts) const {
    const io::TensorInfo& stored = parts.require_matrix(kWeight, {DType::I8, DType::F8E4M3});
    const int64_t rows = stored.shape[0], columns = stored.shape[1];
    const bool is_float = stored.dtype == DType::F8E4M3;
    const Scheme scheme = scheme_of(
        parts, rows, columns, [&](const Scheme& one) { return one.is_float == is_float && one.bits <= 8; });
    const Tiles tiles = tiles_of(scheme, rows, columns);
    const Groups groups = groups_of(parts, tiles, columns);
    const bool has_zero = parts.has(kZero) && !is_float;
    const auto kind = is_float   ? io::BlockKind::E4m3
                      : has_zero ? io::BlockKind::Affine8
                                 : io::BlockKind::Int8;
    CodedWeight weight = make_weight(parts, kWeight, rows, columns, kind, groups.size());
    // Affine blocks have codes from 0 on.
    weight.codes = byte_codes(folder_.files, stored, has_zero ? 128 : 0);
    std::shared_ptr<const Grid> zeros;
    if (has_zero) {
      zeros = stored_grid(folder_.files, parts.require(kZero, {DType::I8}), tiles.count_down,
                          tiles.count_across, {.tile_rows = tiles.rows, .plus = 128.0f});
    }
    weight.scales = grid_scales(groups, scales_of(parts, tiles), zeros);
    return weight;
  }

  const Folder& folder_;
  const std::vector<Scheme> schemes_;
};

}  // namespace

Found find_compressed_tensors(const Folder& folder) {
  check_config(folder.config);
  std::vector<std::string_view> suffixes(std::begin(kSuffixes), std::end(kSuffixes));
  suffixes.insert(suffixes.end(), std::begin(kOfActivations), std::end(kOfActivations));
  const std::vector<Parts> modules = modules_of(*folder.files, suffixes);
  const auto is_quantised = [](const Parts& parts) {
    return std::ranges::any_of(
        kSuffixes, [&](std::string_view suffix) { return suffix != kWeight && parts.has(suffix); });
  };
  Found found;
  for (const Parts& parts : modules) parts.note_used(kOfActivations, found);
  if (std::ranges::none_of(modules, is_quantised)) return found;
  const Reader reader(folder);
  for (const Parts& parts : modules) {
    if (!is_quantised(parts)) continue;
    found.weights.push_back(reader.read(parts));
    parts.note_used(kSuffixes, found);
  }
  return found;
}

}  // namespace tessera::checkpoint::quantized

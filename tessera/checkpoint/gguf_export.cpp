#include "tessera/checkpoint/gguf_export.h"

#include <algorithm>
#include <cctype>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/checkpoint/gguf_rope.h"
#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/device/host_memory.h"
#include "tessera/io/ggml_quantize.h"

namespace tessera::checkpoint {
namespace {

using io::GgmlType;

constexpr int64_t kPieceBytes = int64_t{16} << 20;
constexpr GgufMixture kMixtures[] = {{"F32", GgmlType::F32, 0},    {"F16", GgmlType::F16, 1},
                                     {"BF16", GgmlType::BF16, 32}, {"Q8_0", GgmlType::Q8_0, 7},
                                     {"Q4_0", GgmlType::Q4_0, 2},  {"Q4_K_M", GgmlType::Q4_K, 15},
                                     {"Q4_K", GgmlType::Q4_K, 15}};

// Returns the GGUF name of a tensor of the model's files, and whether its rows are rotated.
std::optional<std::pair<std::string, bool>> gguf_name_of(const GgufArchitecture& architecture,
                                                         const std::string& stored) {
  for (const GgufName& name : architecture.outer_names) {
    if (stored == name.hugging_face) return std::pair(std::string(name.gguf), name.is_rotated);
  }
  if (!stored.starts_with(architecture.layers)) return std::nullopt;
  const size_t dot = stored.find('.', architecture.layers.size());
  if (dot == std::string::npos) return std::nullopt;
  const std::string layer = stored.substr(architecture.layers.size(), dot - architecture.layers.size());
  for (const GgufName& name : architecture.layer_names) {
    if (stored.compare(dot + 1, std::string::npos, name.hugging_face) == 0) {
      return std::pair("blk." + layer + "." + name.gguf, name.is_rotated);
    }
  }
  return std::nullopt;
}

// Chooses the types of a file's tensors.
class Types {
 public:
  Types(const GgufMixture& mixture, int64_t num_layers, bool is_tied)
      : mixture_(mixture), num_layers_(num_layers), is_tied_(is_tied) {}

  GgmlType of(const std::string& name, const std::vector<int64_t>& shape) const {
    if (shape.size() < 2) return GgmlType::F32;
    return fitting(wanted(name, shape.back()), shape.back());
  }

 private:
  static bool is_block_type(GgmlType type) { return io::ggml_block_elements(type) > 1; }

  GgmlType wanted(const std::string& name, int64_t columns) const {
    const GgmlType type = mixture_.type;
    if (!is_block_type(type)) return type;
    // The tied embedding serves as the output too.
    if (name == (is_tied_ ? "token_embd.weight" : "output.weight")) {
      const bool fits = columns % io::ggml_block_elements(type) == 0;
      return fits && type != GgmlType::Q8_0 ? GgmlType::Q6_K : GgmlType::Q8_0;
    }
    const bool is_sensitive = name.ends_with("attn_v.weight") || name.ends_with("ffn_down.weight");
    return type == GgmlType::Q4_K && is_sensitive && gets_more_bits(name) ? GgmlType::Q6_K : type;
  }

  // Tells whether a tensor's layer is among the first or last eighth, or a third of those between.
  bool gets_more_bits(const std::string& name) const {
    const int64_t layer = std::stoll(name.substr(4)), eighth = num_layers_ / 8;
    return layer < eighth || layer >= 7 * num_layers_ / 8 || (layer - eighth) % 3 == 2;
  }

  // Returns a type whose blocks the row divides into.
  static GgmlType fitting(GgmlType type, int64_t columns) {
    if (columns % io::ggml_block_elements(type) == 0) return type;
    const GgmlType other = type == GgmlType::Q4_K   ? GgmlType::Q5_0
                           : type == GgmlType::Q6_K ? GgmlType::Q8_0
                                                    : GgmlType::F16;
    return columns % io::ggml_block_elements(other) == 0 ? other : GgmlType::F16;
  }

  const GgufMixture& mixture_;
  int64_t num_layers_;
  bool is_tied_;
};

// Puts the rows of whole heads from (half, pair) into the order (pair, half), which rotates neighbours.
at::Tensor interleaved(const at::Tensor& rows, int64_t head_dim) {
  return rows.view({rows.size(0) / head_dim, 2, head_dim / 2, rows.size(1)})
      .transpose(1, 2)
      .reshape(rows.sizes());
}

// Throws for a value that is not finite, or not in the type. Blocks hold their scales as halves.
void check_values(const at::Tensor& values, GgmlType type, const std::string& name,
                  const StoredTensors& files) {
  const bool is_wide = type == GgmlType::F32 || type == GgmlType::BF16;
  const double largest = values.abs().max().item<double>();  // NaN where there is one
  if (largest <= (is_wide ? 3.38e38 : 65504.0)) return;
  throw Error(ErrorKind::Numerics, "WEIGHT",
              "the weight '" + name + "' is not finite, or too large for the type to write")
      .in(files.place())
      .got(std::to_string(largest))
      .hint(is_wide ? "" : "--dtype BF16 has the range of float32");
}

// Writes one tensor from the model's files. A vector of a rotated layer is a column of rows here.
void write_tensor(const GgufExport& plan, size_t index, const StoredTensors& files, io::GgufWriter& writer) {
  const io::GgufTensorSpec& spec = plan.specs[index];
  const GgufExport::Tensor& tensor = plan.tensors[index];
  const bool is_vector = spec.shape.size() == 1;
  const int64_t rows = spec.shape.front(), columns = is_vector ? 1 : spec.shape.back();
  const int64_t unit = tensor.is_rotated ? plan.head_dim : 1;
  const int64_t fitting = kPieceBytes / (columns * static_cast<int64_t>(sizeof(float))) / unit * unit;
  const int64_t step = is_vector ? rows : std::max(unit, fitting);
  const int64_t row_bytes = columns / io::ggml_block_elements(spec.type) * io::ggml_block_bytes(spec.type);
  std::vector<char> blocks;
  for (int64_t row = 0; row < rows; row += step) {
    const int64_t count = std::min(step, rows - row);
    at::Tensor values = at::empty(row_box(spec.shape, row, count).size, on_host(at::kFloat));
    files.read(tensor.stored, row_box(spec.shape, row, count), values);
    check_values(values, spec.type, tensor.stored, files);
    values = values.view({count, columns});
    if (tensor.is_rotated) values = interleaved(values, plan.head_dim);
    blocks.resize(static_cast<size_t>(count * row_bytes));
    const float* from = values.const_data_ptr<float>();
    at::parallel_for(0, count, std::max<int64_t>(1, 16384 / columns), [&](int64_t begin, int64_t end) {
      io::quantize_ggml(spec.type, from + begin * columns,
                        (end - begin) * columns / io::ggml_block_elements(spec.type),
                        blocks.data() + begin * row_bytes);
    });
    writer.write_rows(index, is_vector ? 0 : row, is_vector ? 1 : count, blocks.data());
  }
}

}  // namespace

std::optional<GgufMixture> find_gguf_mixture(std::string_view name) {
  for (const GgufMixture& mixture : kMixtures) {
    if (std::ranges::equal(name, std::string_view(mixture.name),
                           [](char a, char b) { return std::toupper(static_cast<unsigned char>(a)) == b; })) {
      return mixture;
    }
  }
  return std::nullopt;
}

std::string gguf_mixture_names() {
  std::vector<std::string> names;
  for (const GgufMixture& mixture : kMixtures) names.emplace_back(mixture.name);
  return join(names, ", ");
}

GgufExport plan_gguf(const GgufArchitecture& architecture, const StateDictAdapter& table,
                     const StoredTensors& files, const GgufMixture& mixture, int64_t num_layers,
                     int64_t head_dim, std::vector<float> rope_factors) {
  GgufExport plan;
  plan.head_dim = head_dim;
  std::vector<std::pair<std::string, bool>> names;
  for (const StateDictAdapter::StoredTensor& wanted : table.stored_tensors()) {
    const auto name = gguf_name_of(architecture, wanted.name);
    if (!name) {
      throw Error(ErrorKind::Model, "UNSUPPORTED",
                  "GGUF files of the architecture '" + architecture.name + "' have no such tensor")
          .in(files.place() + ": tensor '" + wanted.name + "'");
    }
    names.push_back(*name);
  }
  const bool is_tied =
      std::ranges::none_of(names, [](const auto& name) { return name.first == "output.weight"; });
  const Types types(mixture, num_layers, is_tied);
  for (size_t i = 0; i < names.size(); ++i) {
    const StateDictAdapter::StoredTensor& wanted = table.stored_tensors()[i];
    std::string stored = wanted.name;
    for (const std::string& alias : wanted.aliases) {
      if (files.find(stored) == nullptr) stored = alias;
    }
    plan.specs.push_back({names[i].first, types.of(names[i].first, wanted.shape), wanted.shape});
    plan.tensors.push_back({stored, architecture.interleaves_rope && names[i].second});
  }
  plan.rope_factors = std::move(rope_factors);
  if (!plan.rope_factors.empty()) {
    plan.specs.push_back({kGgufRopeFactors, GgmlType::F32, {static_cast<int64_t>(plan.rope_factors.size())}});
    plan.tensors.push_back({});
  }
  return plan;
}

void write_gguf_rope(const GgufExport& plan, io::GgufWriter& writer) {
  if (!plan.rope_factors.empty()) writer.write_rows(plan.specs.size() - 1, 0, 1, plan.rope_factors.data());
}

void write_gguf_tensors(const GgufExport& plan, const StoredTensors& files, io::GgufWriter& writer) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < plan.specs.size(); ++i) {
    if (!plan.tensors[i].stored.empty()) write_tensor(plan, i, files, writer);
  }
}

}  // namespace tessera::checkpoint

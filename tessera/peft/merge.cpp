#include "tessera/peft/merge.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/checkpoint/quantized_tensors.h"
#include "tessera/checkpoint/rewrite_folder.h"
#include "tessera/checkpoint/save_folder.h"
#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/checkpoint/tied_weights.h"
#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/device/host_memory.h"
#include "tessera/device/torch_dtype.h"
#include "tessera/io/file.h"
#include "tessera/io/json_reader.h"
#include "tessera/io/model_files.h"
#include "tessera/io/result_folder.h"
#include "tessera/peft/adapter_files.h"
#include "tessera/peft/layer_options.h"
#include "tessera/peft/merge_files.h"

namespace tessera::peft {
namespace {

using checkpoint::StoredTensors;

constexpr int64_t kPieceBytes = int64_t{16} << 20;
// Merged weights above this are refused. It is far above any trained weight: a sum of a few hundred products
// of two such values overflows float32.
constexpr double kLargestWeight = 1e18;
constexpr const char* kFactorA = ".lora_A.weight";
constexpr const char* kFactorB = ".lora_B.weight";
constexpr const char* kBiasB = ".lora_B.bias";
constexpr const char* kMagnitude = ".lora_magnitude_vector.weight";

// The change of one tensor of the base: a product of two factors is added, a vector is added, or another
// tensor takes its place. All but `layer` are names in the adapter's file, and empty where there is none.
struct Change {
  std::string layer;  // the model's name for the layer that is adapted
  std::string factor_a, factor_b;
  std::string magnitude;    // beside factors: of the rows after the addition (dora.h)
  std::string addition;     // to a bias, without any of the others
  std::string replacement;  // without any of the others

  const std::string& any() const {
    for (const std::string* name : {&factor_a, &factor_b, &magnitude, &addition}) {
      if (!name->empty()) return *name;
    }
    return replacement;
  }
  bool is_product() const { return addition.empty() && replacement.empty(); }
};

Error adapter_error(const io::ModelFiles& adapter, const std::string& tensor, const std::string& what) {
  return Error(ErrorKind::Model, "ADAPTER", what)
      .in(io::join_path(adapter.folder(), "adapter_model.safetensors") + ": tensor '" + tensor + "'");
}

void expect_shape(const io::ModelFiles& adapter, const std::string& name, const std::vector<int64_t>& need) {
  const auto& got = adapter.require(name).tensor->shape;
  if (got != need)
    throw adapter_error(adapter, name, "another shape").got(format_shape(got)).need(format_shape(need));
}

// Returns the name of the base's tensor for a parameter that the adapter names. Files of a model without its
// head lack the first component: "h.0.attn.c_attn.weight" for "transformer.h.0.attn.c_attn.weight".
std::string base_name(const StoredTensors& base, const std::string& parameter) {
  const std::string rest = parameter.substr(parameter.find('.') + 1);
  return !base.find(parameter) && base.find(rest) ? rest : parameter;
}

// Tells whether a weight that the adapter brings is the head of a model whose files have no head, and repeats
// the embedding that the adapter brings too: PEFT saves a tied weight under both names.
bool is_tied_copy(const StoredTensors& base, const io::ModelFiles& adapter, const std::string& name) {
  if (name != "lm_head.weight" || base.find(name)) return false;
  const std::shared_ptr<const io::ModelFiles> borrowed(std::shared_ptr<void>(), &adapter);
  const auto tensors = checkpoint::stored_tensors(borrowed);
  const std::string embedding = checkpoint::find_embedding(*tensors);
  return !embedding.empty() && checkpoint::equal_values(*tensors, embedding, to_peft_name(name));
}

// Plans the changes, by the names of the base's tensors. Every tensor of the adapter has to belong to one.
std::map<std::string, Change> plan_changes(const StoredTensors& base, const io::ModelFiles& adapter,
                                           bool has_magnitudes) {
  std::map<std::string, Change> changes;
  for (const io::TensorInfo* tensor : adapter.tensors()) {
    const auto name = from_peft_name(tensor->name);
    if (!name.has_value()) throw adapter_error(adapter, tensor->name, "not a name that PEFT gives");
    const auto change_of = [&](const std::string& factor, const char* changed = ".weight") -> Change& {
      const std::string layer = name->substr(0, name->size() - factor.size());
      Change& change = changes[base_name(base, layer + changed)];
      change.layer = layer;
      return change;
    };
    if (name->ends_with(kFactorA)) {
      change_of(kFactorA).factor_a = tensor->name;
    } else if (name->ends_with(kFactorB)) {
      change_of(kFactorB).factor_b = tensor->name;
    } else if (name->ends_with(kMagnitude)) {
      change_of(kMagnitude).magnitude = tensor->name;
    } else if (name->ends_with(kBiasB)) {
      change_of(kBiasB, ".bias").addition = tensor->name;
    } else if (!is_tied_copy(base, adapter, *name)) {
      changes[base_name(base, *name)].replacement = tensor->name;
    }
  }
  if (changes.empty()) {
    throw Error(ErrorKind::Model, "ADAPTER", "the adapter contains no tensor").at(adapter.folder());
  }
  for (const auto& [name, change] : changes) {
    const std::string& any = change.any();
    if (!base.find(name)) throw adapter_error(adapter, any, "the base model has no tensor '" + name + "'");
    if (!change.replacement.empty() && any != change.replacement) {
      throw adapter_error(adapter, any, "the weight is both adapted and replaced");
    }
    if (!change.is_product()) continue;
    if (change.factor_a.empty() || change.factor_b.empty())
      throw adapter_error(adapter, any, "the other factor of the pair is missing");
    if (change.magnitude.empty() == has_magnitudes) {
      throw adapter_error(adapter, any,
                          has_magnitudes ? "the layer's lora_magnitude_vector is missing"
                                         : "there is a lora_magnitude_vector without use_dora");
    }
  }
  return changes;
}

// Compares the shapes of the adapter's tensors with those of the base. `is_transposed`: the base holds W^T.
void check_shapes(const StoredTensors& base, const io::ModelFiles& adapter, const LayerOptions& options_of,
                  bool is_transposed, const std::map<std::string, Change>& changes) {
  for (const auto& [name, change] : changes) {
    const io::TensorSpec& weight = *base.find(name);
    if (!checkpoint::is_weight_dtype(weight.dtype)) {
      throw Error(ErrorKind::Model, "DTYPE", "an adapter cannot be merged into a weight of this type")
          .in(base.place() + ": tensor '" + name + "'")
          .got(dtype_name(weight.dtype))
          .need("F64, F32, F16 or BF16");
    }
    if (!change.is_product()) {
      expect_shape(adapter, change.any(), weight.shape);
    } else if (weight.shape.size() != 2) {
      throw adapter_error(adapter, change.factor_a, "the base's '" + name + "' is not a matrix");
    } else {
      const int64_t rank = options_of(change.layer).rank;
      expect_shape(adapter, change.factor_a, {rank, weight.shape[is_transposed ? 0 : 1]});
      expect_shape(adapter, change.factor_b, {weight.shape[is_transposed ? 1 : 0], rank});
      if (!change.magnitude.empty())
        expect_shape(adapter, change.magnitude, {weight.shape[is_transposed ? 1 : 0]});
    }
  }
}

void check_weight(const io::TensorSpec& tensor, const at::Tensor& piece) {
  if (piece.numel() == 0) return;
  const double largest = piece.abs().max().item<double>();  // NaN where there is one
  if (largest <= kLargestWeight) return;
  char got[32];
  std::snprintf(got, sizeof(got), "%g", largest);
  throw Error(ErrorKind::Numerics, "MERGE",
              "the merged weight '" + tensor.name + "' is not finite or far too large")
      .got(got)
      .hint("the adapter's values or its scaling are wrong; the training has probably diverged");
}

// Calls f(first, count) for the rows of a tensor in pieces.
template <class F>
void for_each_piece(const io::TensorSpec& tensor, const F& f) {
  const int64_t rows = tensor.shape.empty() ? 1 : tensor.shape.front();
  const int64_t row_elements = rows == 0 ? 0 : checkpoint::whole_box(tensor.shape).numel() / rows;
  if (row_elements == 0) return;
  // A row takes 8 bytes an element at most, as the widest intermediate is float64.
  const int64_t step = std::max<int64_t>(1, kPieceBytes / (8 * row_elements));
  for (int64_t first = 0; first < rows; first += step) f(first, std::min(step, rows - first));
}

// Writes the rows of a tensor in pieces, as type `dtype`: `make(first, count)` returns `count` rows from
// `first` on, in any type.
template <class Make>
void write_rows(io::ShardedSafetensorsWriter& writer, const io::TensorSpec& tensor, DType dtype,
                const Make& make) {
  for_each_piece(tensor, [&](int64_t first, int64_t count) {
    const at::Tensor piece = make(first, count).to(to_scalar_type(dtype)).contiguous();
    check_weight(tensor, piece);
    const int64_t row_bytes = piece.numel() / count * dtype_size(dtype);
    writer.write(tensor.name, first * row_bytes, host_span<const char>(piece).data(), count * row_bytes);
  });
}

at::Tensor read_piece(const StoredTensors& files, const std::string& name, int64_t first, int64_t count,
                      const std::vector<int64_t>& shape) {
  const auto box = checkpoint::row_box(shape, first, count);
  const at::Tensor piece = at::empty(box.size, on_host(at::kDouble));
  files.read(name, box, piece);
  return piece;
}

at::Tensor read_adapter(const io::ModelFiles& adapter, const std::string& name, int64_t first, int64_t count,
                        const std::vector<int64_t>& shape) {
  const auto box = checkpoint::row_box(shape, first, count);
  const at::Tensor piece = at::empty(box.size, on_host(at::kDouble));
  checkpoint::read_box(adapter, name, box, piece);
  if (at::isfinite(piece).all().item<bool>()) return piece;
  throw adapter_error(adapter, name, "the adapter contains a value that is not finite");
}

void write_changed(const StoredTensors& base, const io::ModelFiles& adapter, const io::TensorSpec& tensor,
                   DType dtype, const Change& change, double scaling, bool is_transposed,
                   io::ShardedSafetensorsWriter& writer) {
  if (!change.is_product()) {
    write_rows(writer, tensor, dtype, [&](int64_t first, int64_t count) {
      const at::Tensor own = read_adapter(adapter, change.any(), first, count, tensor.shape);
      if (change.addition.empty()) return own;
      return read_piece(base, tensor.name, first, count, tensor.shape).add_(own, scaling);
    });
    return;
  }
  const auto read_whole = [&](const std::string& name) {
    const std::vector<int64_t>& shape = adapter.require(name).tensor->shape;
    return read_adapter(adapter, name, 0, shape[0], shape);
  };
  // Rows of a stored W take rows of B; rows of a stored W^T take rows of A^T.
  const at::Tensor a = read_whole(change.factor_a), b = read_whole(change.factor_b);
  const at::Tensor rows = is_transposed ? a.t() : b, columns = is_transposed ? b.t() : a;
  const auto changed = [&](int64_t first, int64_t count) {
    const at::Tensor weight = read_piece(base, tensor.name, first, count, tensor.shape);
    return weight.addmm_(rows.narrow(0, first, count), columns, 1, scaling);
  };
  if (change.magnitude.empty()) return write_rows(writer, tensor, dtype, changed);

  // DoRA's rows run over the inputs, which are the rows of a stored W^T.
  const at::Tensor squares = at::zeros({b.size(0)}, on_host(at::kDouble));
  for_each_piece(tensor, [&](int64_t first, int64_t count) {
    const at::Tensor square = changed(first, count).square_();
    is_transposed ? squares.add_(square.sum(0)) : squares.narrow(0, first, count).copy_(square.sum(1));
  });
  const at::Tensor factors =
      read_whole(change.magnitude).div_(squares.sqrt_().masked_fill_(squares.eq(0), 1));
  write_rows(writer, tensor, dtype, [&](int64_t first, int64_t count) {
    return changed(first, count)
        .mul_(is_transposed ? factors.unsqueeze(0) : factors.narrow(0, first, count).unsqueeze(1));
  });
}

}  // namespace

MergeReport merge_adapter(const std::string& base_folder, const std::string& adapter_folder,
                          const std::string& output_folder, bool overwrites, std::optional<DType> dtype) {
  const AdapterConfig config = read_adapter_config(adapter_folder);
  const auto base =
      checkpoint::model_tensors(std::make_shared<const io::ModelFiles>(io::ModelFiles::open(base_folder)));
  const io::ModelFiles adapter = open_adapter(adapter_folder);
  const auto changes = plan_changes(*base, adapter, config.options.use_dora);
  const LayerOptions options_of(config.options);
  check_shapes(*base, adapter, options_of, config.fan_in_fan_out, changes);
  SideFiles side_files = read_side_files(base_folder, adapter_folder);
  if (const auto file = side_files.texts.find("config.json"); dtype && file != side_files.texts.end()) {
    (void)io::JsonReader::parse(file->second,
                                io::join_path(base_folder, file->first));  // names what is wrong
    file->second = checkpoint::with_config_dtype(file->second, *dtype);
  }

  MergeReport report;
  std::vector<io::TensorSpec> specs;
  for (const io::TensorSpec& tensor : base->tensors()) {
    specs.push_back({tensor.name, checkpoint::written_dtype(*base, tensor, dtype), tensor.shape});
    report.total_bytes += specs.back().num_bytes();
  }
  io::ResultFolder result(output_folder,
                          {.overwrites = overwrites,
                           .how_to_overwrite = "--overwrite",
                           .inputs = {{"the base model", base_folder}, {"the adapter", adapter_folder}}});
  result.begin();
  int64_t num_bytes = report.total_bytes;
  for (const auto& [name, bytes] : side_files.texts) num_bytes += static_cast<int64_t>(bytes.size());
  result.require_space(num_bytes);
  io::ShardedSafetensorsWriter writer(result.staging(), specs);
  at::NoGradGuard no_grad;
  for (const io::TensorSpec& spec : specs) {
    const io::TensorSpec& tensor = *base->find(spec.name);
    const auto change = changes.find(spec.name);
    if (change == changes.end()) {
      checkpoint::copy_tensor(*base, tensor, spec.dtype, writer);
      continue;
    }
    const double scaling = lora_scaling(options_of(change->second.layer));
    write_changed(*base, adapter, tensor, spec.dtype, change->second, scaling, config.fan_in_fan_out, writer);
    ++(change->second.replacement.empty() ? report.num_merged : report.num_replaced);
  }
  writer.commit();
  write_side_files(side_files, result.staging());
  result.commit();
  return report;
}

}  // namespace tessera::peft

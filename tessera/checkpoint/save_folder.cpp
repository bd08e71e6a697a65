#include "tessera/checkpoint/save_folder.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "tessera/checkpoint/quantized_tensors.h"
#include "tessera/checkpoint/rewrite_folder.h"
#include "tessera/core/error.h"
#include "tessera/device/host_memory.h"
#include "tessera/device/torch_dtype.h"
#include "tessera/io/file.h"
#include "tessera/io/json_file.h"
#include "tessera/io/json_reader.h"
#include "tessera/parallel/box_part.h"

namespace tessera::checkpoint {
namespace {

using parallel::Box;

constexpr int64_t kPieceBytes = int64_t{16} << 20;
constexpr const char* kConfigFile = "config.json";

using Parameters = std::unordered_map<std::string, const parallel::ShardedParameter*>;

Parameters parameters_of(const parallel::ShardedModel& model) {
  Parameters parameters;
  for (const parallel::ShardedParameter& parameter : model.parameters()) {
    parameters[parameter.name] = &parameter;
  }
  return parameters;
}

std::vector<io::TensorSpec> specs_of(const parallel::ShardedModel& model, const StateDictAdapter& table,
                                     std::optional<DType> wanted) {
  const Parameters parameters = parameters_of(model);
  std::vector<io::TensorSpec> specs;
  for (const StateDictAdapter::StoredTensor& stored : table.stored_tensors()) {
    const DType dtype = parameters.at(stored.parameters.front())->layout.dtype();
    for (const std::string& name : stored.parameters) {
      TESSERA_ASSERT(parameters.at(name)->layout.dtype() == dtype, stored.name + " is made of several types");
    }
    specs.push_back({stored.name, wanted.value_or(dtype), stored.shape});
  }
  return specs;
}

// Throws if a trained weight is not finite: a model that the last update has spoilt must not be saved.
void check_finite(const std::string& name, const at::Tensor& value) {
  if (at::isfinite(value).all().item<bool>()) return;
  throw Error(ErrorKind::Numerics, "WEIGHT", "the trained weight '" + name + "' is not finite")
      .hint("nothing is saved; lower learning_rate, check the data, or set max_grad_norm");
}

// Throws if a finite weight has become infinite in the type that is written.
void check_fits(const std::string& name, const at::Tensor& value) {
  if (at::isfinite(value).all().item<bool>()) return;
  throw Error(ErrorKind::Numerics, "WEIGHT", "the weight '" + name + "' is too large for the type to write")
      .hint("bfloat16 has the range of float32: save_dtype: bfloat16, or --dtype bf16 of tessera convert");
}

// Writes `elements`, which are `box` of a stored tensor in the order of that tensor. Elements that are not
// contiguous, such as a transposed view, are copied in pieces of whole rows.
void write_box(io::ShardedSafetensorsWriter& writer, const StoredPart& part, const Box& box,
               const at::Tensor& elements) {
  const auto element = static_cast<int64_t>(elements.element_size());
  const int64_t rows = box.size.empty() ? 1 : box.size.front();
  const int64_t row_bytes = elements.numel() / rows * element;
  const int64_t step = elements.is_contiguous() ? rows : std::max<int64_t>(1, kPieceBytes / row_bytes);
  for (int64_t row = 0; row < rows; row += step) {
    const int64_t count = std::min(step, rows - row);
    Box piece = row_box(box.size, row, count);
    const at::Tensor values =
        (count == rows ? elements : elements.narrow(0, row, count)).to(kHost).contiguous();
    for (size_t d = 0; d < piece.offset.size(); ++d) piece.offset[d] += box.offset[d];
    const char* bytes = host_span<const char>(values).data();
    for (const parallel::ElementRun& run : contiguous_runs(part.shape, piece)) {
      writer.write(part.name, run.global_begin * element, bytes + run.local_begin * element,
                   run.count * element);
    }
  }
}

// Writes the parts of one stored tensor that the parameter `whole` makes up. If several parts fill a
// rectangle of the stored tensor, they are put together and written as one.
void write_parts(io::ShardedSafetensorsWriter& writer, const std::vector<StateDictAdapter::Overlap>& overlaps,
                 const at::Tensor& whole) {
  std::vector<Box> parts;
  int64_t numel = 0;
  for (const auto& overlap : overlaps) {
    parts.push_back(overlap.stored);
    numel += overlap.stored.numel();
  }
  const Box bounds = parallel::bounding_box(parts);
  if (overlaps.size() == 1 || bounds.numel() != numel) {
    for (const auto& overlap : overlaps)
      write_box(writer, *overlap.part, overlap.stored, overlap.view(whole));
    return;
  }
  const at::Tensor together = at::empty(bounds.size, whole.options());
  for (const auto& overlap : overlaps) {
    parallel::box_part(together, parallel::relative_to(bounds, overlap.stored)).copy_(overlap.view(whole));
  }
  write_box(writer, *overlaps.front().part, bounds, together);
}

// Puts tensors of FolderPlan::innermost_first together and writes those that are whole.
class WholeTensors {
 public:
  explicit WholeTensors(const std::set<std::string>& names) : names_(names) {}

  bool has(const std::string& tensor) const { return names_.contains(tensor); }

  void add(io::ShardedSafetensorsWriter& writer, const std::vector<StateDictAdapter::Overlap>& overlaps,
           const at::Tensor& parameter) {
    const StoredPart& part = *overlaps.front().part;
    Whole& whole = tensors_[part.name];
    if (!whole.values.defined()) whole.values = at::empty(part.shape, parameter.options().device(kHost));
    for (const auto& overlap : overlaps) {
      parallel::box_part(whole.values, overlap.stored).copy_(overlap.view(parameter));
      whole.filled += overlap.stored.numel();
    }
    if (whole.filled < whole.values.numel()) return;
    const at::Tensor values = whole.values.permute({1, 2, 0}).contiguous();
    writer.write(part.name, 0, host_span<const char>(values).data(), static_cast<int64_t>(values.nbytes()));
    tensors_.erase(part.name);
  }

 private:
  struct Whole {
    at::Tensor values;
    int64_t filled = 0;
  };
  const std::set<std::string>& names_;
  std::unordered_map<std::string, Whole> tensors_;
};

}  // namespace

std::string with_config_dtype(const std::string& config_json, DType dtype) {
  auto config = nlohmann::ordered_json::parse(config_json);
  const char* name = dtype == DType::F64    ? "float64"
                     : dtype == DType::BF16 ? "bfloat16"
                     : dtype == DType::F16  ? "float16"
                                            : "float32";
  // Transformers 5 reads `dtype`, older versions read `torch_dtype`.
  for (const char* key : {"torch_dtype", "dtype"}) config[key] = name;
  return config.dump(2) + "\n";
}

BaseFiles read_base_files(const std::string& folder) {
  BaseFiles files;
  files.config = plain_config(io::JsonReader::read_text(io::join_path(folder, "config.json")));
  const std::string generation = io::join_path(folder, "generation_config.json");
  if (io::exists(generation)) files.generation = io::JsonReader::read_text(generation);
  for (const char* name : kProcessorFileNames) {
    const std::string path = io::join_path(folder, name);
    if (io::exists(path)) files.processors.emplace_back(name, io::JsonReader::read_text(path));
  }
  return files;
}

FolderPlan model_folder(StateDictAdapter table, const BaseFiles& base, DType dtype,
                        std::shared_ptr<const WholeModel> whole) {
  FolderPlan plan;
  plan.table = whole ? whole->with_stored_names(table) : std::move(table);
  plan.whole = std::move(whole);
  plan.files.emplace_back(kConfigFile, with_config_dtype(base.config, dtype));
  if (!base.generation.empty()) plan.files.emplace_back("generation_config.json", base.generation);
  plan.files.insert(plan.files.end(), base.processors.begin(), base.processors.end());
  return plan;
}

FolderPlan with_dtype(FolderPlan plan, DType dtype) {
  plan.dtype = dtype;
  for (auto& [name, text] : plan.files) {
    if (name == kConfigFile) text = with_config_dtype(text, dtype);
  }
  return plan;
}

int64_t weight_bytes(const parallel::ShardedModel& model, const StateDictAdapter& table,
                     std::optional<DType> dtype) {
  int64_t bytes = 0;
  for (const io::TensorSpec& spec : specs_of(model, table, dtype)) bytes += spec.num_bytes();
  return bytes;
}

void save_folder(const parallel::ShardedModel& model, const FolderPlan& plan, const std::string& folder,
                 comm::AgreedWork& work) {
  const Parameters parameters = parameters_of(model);
  std::optional<io::ShardedSafetensorsWriter> writer;
  work.run_on_first([&] {
    std::vector<io::TensorSpec> specs = specs_of(model, plan.table, plan.dtype);
    for (io::TensorSpec& spec : specs) {
      if (plan.innermost_first.contains(spec.name))
        spec.shape = {spec.shape[1], spec.shape[2] * spec.shape[0]};
    }
    for (const auto& [name, value] : plan.constants)
      specs.push_back({name, to_dtype(value.scalar_type()), value.sizes().vec()});
    if (plan.whole) specs.insert(specs.end(), plan.whole->others().begin(), plan.whole->others().end());
    writer.emplace(folder, specs, plan.weights);
    for (const auto& [name, value] : plan.constants) {
      const at::Tensor dense = value.contiguous();
      writer->write(name, 0, host_span<const char>(dense).data(), static_cast<int64_t>(dense.nbytes()));
    }
    if (!plan.whole) return;
    for (const io::TensorSpec& tensor : plan.whole->others())
      copy_tensor(plan.whole->files(), tensor, tensor.dtype, *writer);
  });
  WholeTensors together(plan.innermost_first);
  for (const StoredParameter& entry : plan.table.parameters()) {
    at::Tensor whole = model.full_tensor(*parameters.at(entry.name));
    work.run_on_first([&] {
      check_finite(entry.name, whole);
      if (plan.dtype) {
        const at::ScalarType type = to_scalar_type(*plan.dtype);
        const bool is_cast = whole.scalar_type() != type;
        whole = whole.to(type);
        if (is_cast) check_fits(entry.name, whole);
      }
      for (const auto& overlaps : plan.table.overlaps(entry.name, whole_box(entry.shape))) {
        if (together.has(overlaps.front().part->name)) {
          together.add(*writer, overlaps, whole);
        } else {
          write_parts(*writer, overlaps, whole);
        }
      }
    });
  }
  work.run_on_first([&] {
    writer->commit();
    for (const auto& [name, text] : plan.files) io::write_file_atomic(io::join_path(folder, name), text);
  });
}

}  // namespace tessera::checkpoint

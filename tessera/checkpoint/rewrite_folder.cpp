#include "tessera/checkpoint/rewrite_folder.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "tessera/checkpoint/quantized_tensors.h"
#include "tessera/checkpoint/save_folder.h"
#include "tessera/core/error.h"
#include "tessera/device/host_memory.h"
#include "tessera/device/torch_dtype.h"
#include "tessera/io/file.h"
#include "tessera/io/json_reader.h"
#include "tessera/text/tokenizer/template_files.h"

namespace tessera::checkpoint {
namespace {

constexpr int64_t kMaxSideFile = int64_t{512} << 20;

// Throws if a value that was finite is not finite after the cast.
void check_fits(const StoredTensors& files, const io::TensorSpec& tensor, const at::Tensor& values,
                const at::Tensor& cast) {
  if (at::isfinite(cast).logical_or_(at::isfinite(values).logical_not_()).all().item<bool>()) return;
  throw Error(ErrorKind::Numerics, "WEIGHT",
              "the weight '" + tensor.name + "' is too large for the type to write")
      .in(files.place())
      .hint("--dtype bf16 has the range of float32");
}

}  // namespace

SideFiles read_side_files(const std::string& folder, std::span<const char* const> names) {
  SideFiles files;
  for (const char* name : names) {
    const std::string path = io::join_path(folder, name);
    if (io::exists(path)) files[name] = io::read_file(path, kMaxSideFile);
  }
  return files;
}

SideFiles read_tokenizer_files(const std::string& folder, std::span<const char* const> names) {
  SideFiles files = read_side_files(folder, names);
  for (const std::string& name : text::named_template_files(folder))
    files[name] = io::read_file(io::join_path(folder, name), kMaxSideFile);
  return files;
}

void write_side_files(const SideFiles& files, const std::string& folder) {
  for (const auto& [name, text] : files) {
    const std::string path = io::join_path(folder, name);
    io::make_directories(io::parent_path(path));
    io::write_file_atomic(path, text);
  }
}

DType written_dtype(const StoredTensors& files, const io::TensorSpec& tensor, std::optional<DType> wanted) {
  if (!wanted || tensor.dtype == *wanted || !is_floating(tensor.dtype)) return tensor.dtype;
  if (is_weight_dtype(tensor.dtype)) return *wanted;
  throw Error(ErrorKind::Model, "DTYPE", "a weight of this type cannot be written in another one")
      .in(files.place() + ": tensor '" + tensor.name + "'")
      .got(dtype_name(tensor.dtype))
      .need("F64, F32, F16 or BF16");
}

void copy_tensor(const StoredTensors& files, const io::TensorSpec& tensor, DType dtype,
                 io::ShardedSafetensorsWriter& writer) {
  const at::NoGradGuard no_grad;
  // Read in the wider of the two types: the values of a quantised weight may be wider than its folder's type.
  const DType read_as = dtype_size(dtype) > dtype_size(tensor.dtype) ? dtype : tensor.dtype;
  for_each_rows(tensor.shape, dtype_size(read_as), [&](int64_t first, int64_t count) {
    const auto box = row_box(tensor.shape, first, count);
    const at::Tensor values = at::empty(box.size, on_host(to_scalar_type(read_as)));
    files.read(tensor.name, box, values);
    const at::Tensor cast = values.to(to_scalar_type(dtype));
    if (dtype != tensor.dtype) check_fits(files, tensor, values, cast);
    const auto bytes = static_cast<int64_t>(cast.nbytes());
    writer.write(tensor.name, bytes / count * first, host_span<const char>(cast).data(), bytes);
  });
}

int64_t rewrite_folder(const StoredTensors& files, DType dtype, io::ResultFolder& result) {
  const std::string& folder = files.place();
  SideFiles side_files = read_tokenizer_files(folder);
  side_files.merge(read_side_files(folder, kModelFileNames));
  side_files.merge(read_side_files(folder, kProcessorFileNames));
  const std::string config_path = io::join_path(folder, "config.json");
  std::string& config = side_files["config.json"];
  config = io::JsonReader::read_text(config_path);
  (void)io::JsonReader::parse(config, config_path);  // names what is wrong
  config = with_config_dtype(plain_config(config), dtype);
  std::vector<io::TensorSpec> specs;
  int64_t weight_bytes = 0, num_bytes = 0;
  for (const io::TensorSpec& tensor : files.tensors()) {
    specs.push_back({tensor.name, written_dtype(files, tensor, dtype), tensor.shape});
    weight_bytes += specs.back().num_bytes();
  }
  for (const auto& [name, text] : side_files) num_bytes += static_cast<int64_t>(text.size());
  result.begin();
  result.require_space(num_bytes + weight_bytes);
  io::ShardedSafetensorsWriter writer(result.staging(), specs);
  for (size_t i = 0; i < specs.size(); ++i) {
    copy_tensor(files, files.tensors()[i], specs[i].dtype, writer);
  }
  writer.commit();
  write_side_files(side_files, result.staging());
  result.commit();
  return weight_bytes;
}

}  // namespace tessera::checkpoint

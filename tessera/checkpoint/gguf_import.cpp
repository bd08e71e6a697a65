#include "tessera/checkpoint/gguf_import.h"

#include <algorithm>
#include <vector>

#include "tessera/core/float_cast.h"
#include "tessera/io/file.h"
#include "tessera/io/model_files.h"

namespace tessera::checkpoint {
namespace {

// Converts one weight to `dtype` and writes it, a block of rows at a time.
void copy_weight(const GgufModel& model, const GgufWeight& weight, DType dtype,
                 io::ShardedSafetensorsWriter& writer) {
  constexpr int64_t kBlockElements = int64_t{1} << 20;
  const int64_t columns = weight.spec.shape.back();
  const int64_t rows = weight.spec.shape.size() == 1 ? 1 : weight.spec.shape.front();
  const int64_t step = std::max<int64_t>(1, kBlockElements / std::max<int64_t>(1, columns));
  std::vector<float> values;
  std::vector<char> bytes;
  for (int64_t row = 0; row < rows; row += step) {
    const int64_t count = std::min(step, rows - row) * columns;
    values.resize(static_cast<size_t>(count));
    model.read_rows(weight, row, std::min(step, rows - row), values.data());
    bytes.resize(static_cast<size_t>(count * dtype_size(dtype)));
    cast_from_float(values.data(), count, dtype, bytes.data());
    writer.write(weight.spec.name, row * columns * dtype_size(dtype), bytes.data(),
                 static_cast<int64_t>(bytes.size()));
  }
}

}  // namespace

int64_t gguf_import_bytes(const GgufModel& model, DType dtype) {
  int64_t bytes = 0;
  for (const GgufWeight& weight : model.weights()) {
    const int64_t size = io::TensorSpec{weight.spec.name, dtype, weight.spec.shape}.num_bytes();
    if (__builtin_add_overflow(bytes, size, &bytes)) return INT64_MAX;
  }
  return bytes;
}

void import_gguf(const GgufModel& model, const std::string& folder, DType dtype) {
  std::vector<io::TensorSpec> specs;
  for (const GgufWeight& weight : model.weights()) {
    specs.push_back({weight.spec.name, dtype, weight.spec.shape});
  }
  io::make_directories(folder);
  io::ShardedSafetensorsWriter writer(folder, specs);
  for (const GgufWeight& weight : model.weights()) copy_weight(model, weight, dtype, writer);
  io::write_file_atomic(io::join_path(folder, "config.json"), model.config(dtype));
  const std::string generation = model.generation_config();
  if (!generation.empty()) {
    io::write_file_atomic(io::join_path(folder, "generation_config.json"), generation);
  }
  writer.commit();
}

}  // namespace tessera::checkpoint

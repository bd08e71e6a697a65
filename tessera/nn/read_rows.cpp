#include "tessera/nn/read_rows.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/torch_dtype.h"

namespace tessera::nn {
namespace {

constexpr int64_t kStagingBytes = int64_t{16} << 20;

}  // namespace

bool is_weight_dtype(DType dtype) {
  return dtype == DType::F64 || dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16;
}

void read_rows(const io::ModelFiles& files, const std::string& name, int64_t first_row, int64_t num_rows,
               at::Tensor destination) {
  const io::ModelFiles::Location found = files.require(name);
  const io::TensorInfo& tensor = *found.tensor;
  if (!is_weight_dtype(tensor.dtype)) {
    throw Error(ErrorKind::Model, "DTYPE", "weights of this type cannot be read")
        .in(files.folder() + ": tensor '" + name + "'")
        .got(dtype_name(tensor.dtype))
        .need("F64, F32, F16 or BF16");
  }
  const int64_t rows = tensor.shape.empty() ? 1 : tensor.shape.front();
  TESSERA_ASSERT(first_row >= 0 && num_rows >= 0 && first_row <= rows - num_rows, "rows outside the tensor");
  const int64_t row_elements = rows == 0 ? 0 : tensor.numel() / rows;
  TESSERA_ASSERT(destination.is_contiguous() && destination.device().is_cpu() &&
                     destination.numel() == num_rows * row_elements,
                 "destination of read_rows");
  const int64_t element = dtype_size(tensor.dtype);
  const int64_t total = num_rows * row_elements;
  const int64_t first = first_row * row_elements;
  const at::ScalarType type = to_scalar_type(tensor.dtype);
  if (total == 0) return;
  if (destination.scalar_type() == type) {
    files.read(name, first * element, total * element, destination.data_ptr());
    return;
  }
  at::NoGradGuard no_grad;
  const at::Tensor flat = destination.view({-1});
  const int64_t step = std::min(total, kStagingBytes / element);
  const at::Tensor staging = at::empty({step}, at::TensorOptions().dtype(type));
  for (int64_t done = 0; done < total; done += step) {
    const int64_t count = std::min(step, total - done);
    files.read(name, (first + done) * element, count * element, staging.data_ptr());
    flat.narrow(0, done, count).copy_(staging.narrow(0, 0, count));
  }
}

}  // namespace tessera::nn

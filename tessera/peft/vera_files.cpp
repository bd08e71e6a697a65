#include "tessera/peft/vera_files.h"

#include <vector>

#include <ATen/ATen.h>

#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/core/strings.h"
#include "tessera/device/device.h"
#include "tessera/peft/carried_parameters.h"

namespace tessera::peft {
namespace {

// Reads a matrix that has at least this shape; the length of `fixed_dim` is exact.
at::Tensor read_matrix(const io::ModelFiles& files, const char* name, const std::vector<int64_t>& least,
                       size_t fixed_dim) {
  const auto error = [&](const std::string& what) { return adapter_error(files, name, what); };
  const auto place = files.find(name);
  if (!place) throw error("the adapter lacks a matrix that save_projection promises");
  const std::vector<int64_t>& shape = place.tensor->shape;
  const size_t other = 1 - fixed_dim;
  if (shape.size() != 2 || shape[fixed_dim] != least[fixed_dim] || shape[other] < least[other])
    throw error("the shared matrix does not fit the layers")
        .got(format_shape(shape))
        .need(format_shape(least));
  const at::Tensor matrix = at::empty(shape, on_host(at::kFloat));
  checkpoint::read_box(files, name, checkpoint::whole_box(shape), matrix);
  if (!at::isfinite(matrix).all().item<bool>())
    throw error("the adapter contains a value that is not finite");
  return matrix;
}

}  // namespace

bool is_projection(const std::string& stored) { return stored == kProjectionA || stored == kProjectionB; }

void read_projections(VeraProjections& projections, const io::ModelFiles& files) {
  const int64_t rank = projections.rank();
  at::Tensor a = read_matrix(files, kProjectionA, {rank, projections.in()}, 0);
  projections.set(std::move(a), read_matrix(files, kProjectionB, {projections.out(), rank}, 1));
}

}  // namespace tessera::peft

#include "tessera/peft/low_rank.h"

#include <tuple>

#include <ATen/ATen.h>

#include "tessera/checkpoint/random_source.h"
#include "tessera/core/error.h"
#include "tessera/device/host_memory.h"

namespace tessera::peft {
namespace {

at::Tensor orthonormal(const at::Tensor& columns) { return std::get<0>(at::linalg_qr(columns)); }

// Left singular vectors, values, and right singular vectors as rows.
struct Singular {
  at::Tensor left, values, right;
};

Singular decompose(const at::Tensor& matrix) {
  auto [left, values, right] = at::linalg_svd(matrix, /*full_matrices=*/false);
  return {left, values, right};
}

// The `rank` largest singular values by iterations on a random subspace of that size.
Singular decompose_fast(const at::Tensor& weight, int64_t rank, int64_t iterations, uint64_t stream) {
  const at::Tensor random = at::empty({weight.size(1), rank}, on_host(at::kDouble));
  checkpoint::fill_box(random, "subspace", random.sizes().vec(), checkpoint::whole_box(random.sizes().vec()),
                       nn::InitialValue::gaussian(1.0), stream);
  at::Tensor range = orthonormal(at::mm(weight, random));
  for (int64_t i = 0; i < iterations; ++i) {
    const at::Tensor rows = orthonormal(at::mm(weight.t(), range));
    range = orthonormal(at::mm(weight, rows));
  }
  Singular inner = decompose(at::mm(range.t(), weight));
  inner.left = at::mm(range, inner.left);
  return inner;
}

// The signs of a pair of singular vectors are free. They are chosen so that all programs agree on them.
at::Tensor signs_of(const at::Tensor& columns) {
  const at::Tensor largest = columns.abs().argmax(0, /*keepdim=*/true);
  const at::Tensor signs = columns.gather(0, largest).sign();
  return signs.masked_fill(signs.eq(0), 1.0);  // [1, rank]
}

}  // namespace

LowRank initial_factors(const at::Tensor& weight, int64_t rank, double scaling, const LoraStart& start,
                        uint64_t stream) {
  TESSERA_ASSERT(start.reads_base() && rank <= std::min(weight.size(0), weight.size(1)),
                 "factors of a weight");
  const at::NoGradGuard no_grad;
  if (start.kind == LoraStart::Kind::Olora) {
    // The first columns of Q depend on the first columns of the weight alone.
    const at::Tensor b = orthonormal(weight.narrow(1, 0, rank));
    return {at::mm(b.t(), weight), b};
  }
  const Singular all =
      start.iterations > 0 ? decompose_fast(weight, rank, start.iterations, stream) : decompose(weight);
  const at::Tensor left = all.left.narrow(1, 0, rank), signs = signs_of(left);
  const at::Tensor root = all.values.narrow(0, 0, rank).div(scaling).sqrt();
  return {all.right.narrow(0, 0, rank) * (root.unsqueeze(1) * signs.t()), left * (root.unsqueeze(0) * signs)};
}

}  // namespace tessera::peft

// Copies that change the type.
#include "tessera/ops/cuda/entries.cuh"
#include "tessera/ops/cuda/launch.cuh"

namespace tessera::ops::cuda {
namespace {

template <class From, class To>
struct Cast {
  const From* from;
  To* to;

  template <int N>
  __device__ void run(int64_t i) const {
    store(to + i, load<N>(from + i));
  }
};

}  // namespace

int32_t cast(Type from_type, const void* from, Type to_type, void* to, int64_t n, void* stream) {
  return dispatch_stored(from_type, [&](auto from_tag) {
    return dispatch_stored(to_type, [&](auto to_tag) {
      using From = decltype(from_tag);
      using To = decltype(to_tag);
      constexpr int N = kVector<From> < kVector<To> ? kVector<From> : kVector<To>;
      const Cast<From, To> op = {static_cast<const From*>(from), static_cast<To*>(to)};
      return map<N>(op, n, are_aligned<N>(op.from, op.to), stream);
    });
  });
}

}  // namespace tessera::ops::cuda

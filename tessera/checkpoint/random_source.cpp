#include "tessera/checkpoint/random_source.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/core/error.h"
#include "tessera/core/rng.h"
#include "tessera/device/host_memory.h"

namespace tessera::checkpoint {
namespace {

constexpr int64_t kGrain = 4096;

// Sets every element of the destination to make(its index in the whole parameter). A row along the last dim
// is contiguous both in the box and in the whole, so the index is computed once for each row.
template <class Make>
void fill(const at::Tensor& destination, const std::vector<int64_t>& shape, const parallel::Box& box,
          const Make& make) {
  const size_t rank = shape.size();
  const int64_t row = rank == 0 ? 1 : box.size.back();
  // Returns the index in the whole of the first element of row `number` of the box.
  const auto row_begin = [&](int64_t number) {
    int64_t begin = 0, stride = 1;
    for (size_t d = rank; d-- > 0;) {
      const bool is_row = d + 1 == rank;
      begin += stride * (box.offset[d] + (is_row ? 0 : number % box.size[d]));
      if (!is_row) number /= box.size[d];
      stride *= shape[d];
    }
    return begin;
  };
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, destination.scalar_type(), "initial values", [&] {
    auto* out = destination.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, destination.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end;) {
        const int64_t stop = std::min(end, (i / row + 1) * row);
        for (int64_t global = row_begin(i / row) + i % row; i < stop; ++i, ++global) {
          out[i] = static_cast<scalar_t>(make(static_cast<uint64_t>(global)));
        }
      }
    });
  });
}

}  // namespace

void fill_box(const at::Tensor& destination, const std::string& name, const std::vector<int64_t>& shape,
              const parallel::Box& box, const nn::InitialValue& value, uint64_t seed) {
  TESSERA_ASSERT(destination.is_contiguous() && destination.sizes() == at::IntArrayRef(box.size) &&
                     box.size.size() == shape.size(),
                 "destination of initial values");
  const at::NoGradGuard no_grad;
  if (!is_on_host(destination)) {
    const at::Tensor staging = at::empty(destination.sizes(), on_host(destination.scalar_type()));
    fill_box(staging, name, shape, box, value, seed);
    destination.copy_(staging);
    return;
  }
  const CounterRng rng(seed, stream_of(name.c_str()));
  switch (value.kind) {
    case nn::InitialValue::Kind::Zeros: destination.zero_(); return;
    case nn::InitialValue::Kind::Ones: destination.fill_(1.0); return;
    case nn::InitialValue::Kind::Constant: destination.fill_(value.scale); return;
    case nn::InitialValue::Kind::Normal:
    case nn::InitialValue::Kind::Gaussian:
      return fill(destination, shape, box, [&](uint64_t index) { return value.scale * rng.normal(index); });
    case nn::InitialValue::Kind::Uniform:
      return fill(destination, shape, box,
                  [&](uint64_t index) { return value.scale * (2.0 * rng.uniform(index) - 1.0); });
    case nn::InitialValue::Kind::LogUniform:
      return fill(destination, shape, box, [&](uint64_t index) {
        return std::log(value.least + (value.scale - value.least) * rng.uniform(index));
      });
  }
}

RandomSource::RandomSource(const torch::nn::Module& root, double standard_deviation, uint64_t seed)
    : seed_(seed) {
  const auto add = [&](const std::string& prefix, const torch::nn::Module& module) {
    const auto* says = dynamic_cast<const nn::HasInitialValues*>(&module);
    if (says == nullptr) return;
    for (const auto& own : module.named_parameters(/*recurse=*/false)) {
      nn::InitialValue value = says->initial_value(own.key());
      if (value.kind == nn::InitialValue::Kind::Normal) value.scale *= standard_deviation;
      entries_[prefix + own.key()] = {own.value().sizes().vec(), value};
    }
  };
  add("", root);
  for (const auto& child : root.named_modules("", /*include_self=*/false)) {
    add(child.key() + ".", *child.value());
  }
}

void RandomSource::read(const std::string& parameter, const parallel::Box& box,
                        const at::Tensor& destination) const {
  const Entry& entry = entries_.at(parameter);
  fill_box(destination, parameter, entry.shape, box, entry.value, seed_);
}

}  // namespace tessera::checkpoint

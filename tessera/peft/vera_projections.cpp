#include "tessera/peft/vera_projections.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "tessera/core/error.h"
#include "tessera/device/device.h"

namespace tessera::peft {
namespace {

at::Tensor kaiming_uniform(int64_t rows, int64_t columns, const at::Generator& generator) {
  const double bound = std::sqrt(3.0) * (std::sqrt(2.0) / std::sqrt(static_cast<double>(columns)));
  return at::empty({rows, columns}, on_host(at::kFloat)).uniform_(-bound, bound, generator);
}

}  // namespace

VeraProjections::VeraProjections(int64_t rank, int64_t in, int64_t out, uint64_t seed)
    : rank_(rank), in_(in), out_(out), seed_(seed) {}

void VeraProjections::set(at::Tensor a, at::Tensor b) {
  const std::scoped_lock lock(mutex_);
  TESSERA_ASSERT(!a_.defined() && a.size(0) == rank_ && a.size(1) >= in_ && b.size(0) >= out_ &&
                     b.size(1) == rank_ && a.scalar_type() == at::kFloat && b.scalar_type() == at::kFloat,
                 "the projections fit the layers");
  a_ = std::move(a);
  b_ = std::move(b);
}

void VeraProjections::make() const {
  if (a_.defined()) return;
  const at::NoGradGuard no_grad;
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed_);
  a_ = kaiming_uniform(rank_, in_, generator);
  b_ = kaiming_uniform(out_, rank_, generator);
}

const at::Tensor& VeraProjections::a() const {
  const std::scoped_lock lock(mutex_);
  make();
  return a_;
}

const at::Tensor& VeraProjections::b() const {
  const std::scoped_lock lock(mutex_);
  make();
  return b_;
}

namespace {

template <class Form>
Form form_of(const at::TensorOptions& options) {
  return {static_cast<int8_t>(c10::typeMetaToScalarType(options.dtype())),
          static_cast<int8_t>(options.device().type()), static_cast<int8_t>(options.device().index())};
}

}  // namespace

at::Tensor VeraProjections::columns_of_a(int64_t first, int64_t count,
                                         const at::TensorOptions& options) const {
  const std::scoped_lock lock(mutex_);
  make();
  at::Tensor& part = parts_of_a_[{{{first, count}}, form_of<Form>(options)}];
  if (part.defined()) return part;
  const at::NoGradGuard no_grad;
  return part = a_.narrow(1, first, count)
                    .to(options.device(), c10::typeMetaToScalarType(options.dtype()))
                    .contiguous();
}

at::Tensor VeraProjections::rows_of_b(const Runs& rows, const at::TensorOptions& options) const {
  const std::scoped_lock lock(mutex_);
  make();
  at::Tensor& part = parts_of_b_[{rows, form_of<Form>(options)}];
  if (part.defined()) return part;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> runs;
  for (const auto& [begin, size] : rows) runs.push_back(b_.narrow(0, begin, size));
  return part = at::cat(runs).to(options.device(), c10::typeMetaToScalarType(options.dtype()));
}

}  // namespace tessera::peft

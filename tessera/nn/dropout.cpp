#include "tessera/nn/dropout.h"

#include <ATen/ATen.h>

#include "tessera/core/rng.h"

namespace tessera::nn {
namespace {

// Returns how many tokens the ranks of tensor parallelism share.
int64_t num_tokens(const RandomPlace& place) {
  if (!place.part) return place.document_starts.back();
  int64_t count = 0;
  for (const TokenRun& run : *place.part) count += run.count;
  return count;
}

}  // namespace

Dropout::Dropout(double probability, const std::string& site)
    : probability_(probability), stream_(stream_of(site.c_str())) {}

bool Dropout::drops() const { return is_training() && RandomScope::current() != nullptr; }

at::Tensor Dropout::forward(const at::Tensor& x) const {
  if (!drops()) return x;
  if (parallel() == nullptr) return x * dropout_mask_here(x, probability_, stream_);
  const at::Tensor all = x.new_empty({1}).expand({num_tokens(*RandomScope::current()), x.size(1)});
  return x * parallel()->output(dropout_mask_here(all, probability_, stream_));
}

at::Tensor Dropout::forward(const at::Tensor& x, const RowPart& part) const {
  return drops() ? x * dropout_mask_here(x, probability_, stream_, part) : x;
}

std::shared_ptr<Dropout> add_dropout(torch::nn::Module& parent, const std::string& name, double probability,
                                     const std::string& site) {
  if (probability == 0.0) return nullptr;
  return parent.register_module(name, std::make_shared<Dropout>(probability, site));
}

}  // namespace tessera::nn

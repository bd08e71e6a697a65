#include "tessera/peft/vera.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/rng.h"
#include "tessera/nn/initial_value.h"
#include "tessera/ops/linear.h"

namespace tessera::peft {

struct VeraAdapter::Vector : torch::nn::Module, nn::HasInitialValues {
  Vector(int64_t size, double initial, at::ScalarType dtype) : initial(initial) {
    const auto options = at::TensorOptions().dtype(dtype).device(at::kMeta);
    weight = register_parameter("weight", at::empty({size}, options));
  }
  nn::InitialValue initial_value(std::string_view) const override {
    return nn::InitialValue::constant(initial);
  }
  // A copy with its graph: the memory of a parameter may be freed before the backward reads what a product of
  // activations has kept.
  at::Tensor kept() const { return weight * 1.0; }

  at::Tensor weight;
  double initial;
};

VeraAdapter::VeraAdapter(const nn::Linear& layer, const LoraOptions& options,
                         std::shared_ptr<const VeraProjections> projections, const std::string& site)
    : projections_(std::move(projections)),
      b_(std::make_shared<Vector>(layer.out_features(), 0.0, layer.dtype())),
      d_(std::make_shared<Vector>(projections_->rank(), options.vera.d_initial, layer.dtype())),
      stored_rows_(layer.stored_rows()),
      dropout_(options.dropout),
      stream_(stream_of((site + ".lora_dropout").c_str())) {
  std::ranges::sort(stored_rows_, {}, &nn::StoredRows::begin);
  register_module("vera_lambda_b", b_);
  register_module("vera_lambda_d", d_);
}

// The vectors are children of the layer, so train() and eval() reach them. This adapter itself is no child.
bool VeraAdapter::drops() const { return dropout_ > 0.0 && b_->is_training(); }

VeraProjections::Runs VeraAdapter::output_runs() const {
  const int64_t begin = first_output_, end = begin + b_->weight.size(0);
  if (stored_rows_.empty()) return {{begin, end - begin}};
  VeraProjections::Runs runs;
  for (const nn::StoredRows& rows : stored_rows_) {
    const int64_t first = std::max(begin, rows.begin), last = std::min(end, rows.begin + rows.size);
    if (first < last) runs.emplace_back(rows.stored_begin + first - rows.begin, last - first);
  }
  return runs;
}

at::Tensor VeraAdapter::forward(const ops::Activation& x, const ops::Weight& weight,
                                const std::optional<at::Tensor>& bias,
                                const c10::intrusive_ptr<ops::RowExchange>& output) {
  std::optional<at::Tensor> mask;
  if (drops()) mask = nn::dropout_mask_here(x.value(), dropout_, stream_, input_);
  const at::TensorOptions options = x.value().options();
  const at::Tensor a = projections_->columns_of_a(input_.first, x.value().size(-1), options);
  const at::Tensor b = projections_->rows_of_b(output_runs(), options);
  // A product is the first reader of x, whose rows may still be coming in (row_exchange.h).
  const at::Tensor base = ops::linear(x, weight, bias, output);
  const ops::ProductScope products(ops::ProductType::OfOperands);
  const at::Tensor low = ops::linear(mask ? ops::Activation(x.value() * *mask) : x, a) * d_->kept();
  return base + ops::linear(low, b, std::nullopt, output) * b_->kept();
}

std::vector<nn::AdapterParameter> VeraAdapter::adapter_parameters() const {
  return {{b_->weight, std::nullopt, /*out_dim=*/0}, {d_->weight, std::nullopt, std::nullopt}};
}

}  // namespace tessera::peft

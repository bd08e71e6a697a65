// The linear layer, with a place for an adapter.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/nn/initial_value.h"
#include "tessera/nn/layer.h"
#include "tessera/ops/e4m3.h"
#include "tessera/ops/row_exchange.h"

namespace tessera::nn {

// A parameter of an adapter, and which of its dims follow the layer's in_features and out_features.
struct AdapterParameter {
  at::Tensor tensor;
  std::optional<int64_t> in_dim, out_dim;
};

// Replaces the product of a Linear (LoRA and its kin). Its child modules become children of the Linear, so
// that their parameters are named <linear>.<child>.<parameter>, as in PEFT.
class LinearAdapter : public torch::nn::Module {
 public:
  // x: [..., in]; weight: [out, in]; bias: [out]. Returns [..., out]. With `output` the rows of the result go
  // there, as those of ops::linear().
  virtual at::Tensor forward(const ops::Activation& x, const at::Tensor& weight,
                             const std::optional<at::Tensor>& bias,
                             const c10::intrusive_ptr<ops::RowExchange>& output) = 0;

  // Whether forward() draws a dropout mask, for which it needs a RandomScope.
  virtual bool drops() const { return false; }

  virtual std::vector<AdapterParameter> adapter_parameters() const = 0;
  // From now on x holds the columns from `first` on of an input that has `in_features`.
  virtual void set_input_part(int64_t first, int64_t in_features) = 0;
};

// Consecutive outputs of a layer that the family's files hold elsewhere than the layer does.
struct StoredRows {
  int64_t begin = 0, stored_begin = 0, size = 0;
};

// x weight^T + bias. Parameters are made on the meta device, trainable. The bias is added to what
// LayerParallel::output() gives, so it is cut as that is: whole where outputs are summed over ranks.
class Linear : public Layer, public HasInitialValues {
 public:
  Linear(int64_t in_features, int64_t out_features, bool bias, at::ScalarType dtype);

  InitialValue initial_value(std::string_view name) const override {
    return name == "bias" ? InitialValue::zeros() : InitialValue::normal(initial_multiple_);
  }
  // Of the standard deviation of the weight's initial values.
  void set_initial_multiple(double multiple) { initial_multiple_ = multiple; }

  // Says that the family's files hold the weight as its transpose, [in, out], as GPT-2's do.
  void set_stored_transposed() { is_stored_transposed_ = true; }
  bool is_stored_transposed() const { return is_stored_transposed_; }
  // Says in which order the family's files hold the outputs: all of them, in pieces. Empty for the layer's.
  void set_stored_rows(std::vector<StoredRows> rows) { stored_rows_ = std::move(rows); }
  const std::vector<StoredRows>& stored_rows() const { return stored_rows_; }

  // x: [..., in_features] -> [..., out_features]
  at::Tensor forward(const ops::Activation& x);

  // Runs the layer through `adapter` from now on. A layer takes one adapter, and none if refuse_adapter()
  // was called: that is an Error(Config, "ADAPTER-TARGET") naming `name`.
  void set_adapter(const std::shared_ptr<LinearAdapter>& adapter, const std::string& name);
  const std::shared_ptr<LinearAdapter>& adapter() const { return adapter_; }
  // For a layer whose weight is read by other code than forward(): `reason` completes "the layer ...".
  void refuse_adapter(std::string reason) { refusal_ = std::move(reason); }
  const std::string& refusal() const { return refusal_; }

  // What type the layer's own products take from now on (ops/e4m3.h); those of its adapter keep theirs.
  void set_product_type(ops::ProductType type) { product_type_ = type; }
  ops::ProductType product_type() const { return product_type_; }

  int64_t in_features() const { return weight.size(1); }
  int64_t out_features() const { return weight.size(0); }

  at::Tensor weight;  // [out_features, in_features]
  at::Tensor bias;    // [out_features], or undefined

 private:
  at::Tensor multiply(const ops::Activation& x, const std::optional<at::Tensor>& bias,
                      const c10::intrusive_ptr<ops::RowExchange>& output = {});

  std::shared_ptr<LinearAdapter> adapter_;
  std::string refusal_;
  ops::ProductType product_type_ = ops::ProductType::OfOperands;
  double initial_multiple_ = 1.0;
  bool is_stored_transposed_ = false;
  std::vector<StoredRows> stored_rows_;
};

// What each of the layers gives for x, together faster than one by one where they see few rows.
std::vector<at::Tensor> forward_all(const ops::Activation& x, std::initializer_list<Linear*> layers);

}  // namespace tessera::nn

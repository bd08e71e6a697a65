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
#include "tessera/ops/pass_through.h"
#include "tessera/ops/row_exchange.h"
#include "tessera/ops/weight.h"

namespace tessera::nn {

// A parameter of an adapter. in_dim and out_dim are its dims that have the length of the layer's in_features
// and out_features, if it has such dims; they are cut along with the layer.
struct AdapterParameter {
  at::Tensor tensor;
  std::optional<int64_t> in_dim, out_dim;
};

// Replaces the product of a Linear (LoRA and similar methods). The adapter's child modules become children of
// the Linear, so their parameters are named <linear>.<child>.<parameter>, as in PEFT.
class LinearAdapter : public torch::nn::Module {
 public:
  // x: [..., in]; weight: [out, in], possibly coded; bias: [out]. Returns [..., out]. With `output` the rows
  // of the result are handed to it as they are made, as in ops::linear().
  virtual at::Tensor forward(const ops::Activation& x, const ops::Weight& weight,
                             const std::optional<at::Tensor>& bias,
                             const c10::intrusive_ptr<ops::RowExchange>& output) = 0;

  // Returns whether forward() draws a dropout mask, for which it needs a RandomScope.
  virtual bool drops() const { return false; }

  virtual std::vector<AdapterParameter> adapter_parameters() const = 0;
  // Declares that x holds only some columns of an input of width `in_features`: those from `first` on. `sum`
  // adds up a tensor, in place, over the ranks that hold all columns together; it is collective among them.
  virtual void set_input_part(int64_t first, int64_t in_features, const ops::ChangeInPlace& sum) = 0;
  // Declares that the layer gives only some of its outputs: those from `first` on.
  virtual void set_output_part(int64_t first) { (void)first; }
};

// A run of `size` outputs: they begin at row `begin` in the layer and at row `stored_begin` in the family's
// files.
struct StoredRows {
  int64_t begin = 0, stored_begin = 0, size = 0;
};

// The place of a layer's weight in a stored tensor of several matrices, as mixtures of experts have them.
struct StoredStack {
  int64_t index = 0, count = 0;  // the matrix's number, and that of all
  // Names of the tensors that hold the weights, [count, ...], and the biases, [count, out_features].
  // They take the place of the last `names_replaced` components of the parameter's name.
  std::string weight, bias;
  int names_replaced = 0;
};

// Computes x weight^T + bias. Parameters are made on the meta device, trainable. The bias is added to the
// result of LayerParallel::output() and must have its width: whole if that sums the outputs over ranks,
// otherwise cut like the outputs.
class Linear : public Layer, public HasInitialValues {
 public:
  Linear(int64_t in_features, int64_t out_features, bool bias, at::ScalarType dtype);

  InitialValue initial_value(std::string_view name) const override {
    return name == "weight" ? InitialValue::normal(initial_multiple_) : InitialValue::zeros();
  }
  // Multiplies the standard deviation of the weight's initial values.
  void set_initial_multiple(double multiple) { initial_multiple_ = multiple; }

  // Declares that the family's files hold the weight transposed, [in, out], as GPT-2's do.
  void set_stored_transposed() { is_stored_transposed_ = true; }
  bool is_stored_transposed() const { return is_stored_transposed_; }
  // Declares the order of the outputs in the family's files, as runs that cover all outputs. Empty: the order
  // of the layer.
  void set_stored_rows(std::vector<StoredRows> rows) { stored_rows_ = std::move(rows); }
  const std::vector<StoredRows>& stored_rows() const { return stored_rows_; }

  // Declares that the family's files hold the outputs, in the order of stored_rows(), as equal runs in
  // several layers of these names.
  void set_stored_apart(std::vector<std::string> names) { stored_apart_ = std::move(names); }
  const std::vector<std::string>& stored_apart() const { return stored_apart_; }

  // Declares that the family's files hold the weight, and the bias, in a tensor with those of other layers.
  void set_stored_stack(StoredStack stack) { stored_stack_ = std::move(stack); }
  const std::optional<StoredStack>& stored_stack() const { return stored_stack_; }

  // Multiplies the bias that forward() adds: 1 / (number of ranks) where the outputs of that many ranks are
  // summed afterwards.
  void set_bias_share(double share) { bias_share_ = share; }

  // x: [..., in_features] -> [..., out_features].
  at::Tensor forward(const ops::Activation& x);

  // Runs the layer through `adapter` from now on. A layer takes one adapter at most. If refuse_adapter() was
  // called it takes none: throws Error(Config, "ADAPTER-TARGET") that names `name`.
  void set_adapter(const std::shared_ptr<LinearAdapter>& adapter, const std::string& name);
  const std::shared_ptr<LinearAdapter>& adapter() const { return adapter_; }
  // Runs the layer without its adapter from now on, and returns that; its children leave the layer.
  std::shared_ptr<LinearAdapter> take_adapter();
  // Forbids adapters on a layer whose weight is read by other code than forward(). `reason` completes the
  // sentence "the layer ...".
  void refuse_adapter(std::string reason) { refusal_ = std::move(reason); }
  const std::string& refusal() const { return refusal_; }

  // Sets the type in which the layer's own products multiply from now on (ops/e4m3.h); those of its adapter
  // keep theirs.
  void set_product_type(ops::ProductType type) { product_type_ = type; }
  ops::ProductType product_type() const { return product_type_; }

  // Keeps the weight in blocks of this form from now on: the parameter becomes bytes, [out_features, bytes of
  // a row], frozen. For a layer without values yet, on the meta device, whose in_features() are whole blocks.
  void set_form(const io::BlockForm& form);
  const ops::WeightForm& form() const { return form_; }
  // The type of the values, also of those of a coded weight.
  at::ScalarType dtype() const { return form_ ? dtype_ : weight.scalar_type(); }

  // Declares that the layer gives only some of its outputs, or reads only some of its inputs: those from
  // `first` on.
  void set_first_output(int64_t first) { first_output_ = first; }
  void set_first_input(int64_t first) { first_input_ = first; }
  int64_t first_output() const { return first_output_; }
  int64_t first_input() const { return first_input_; }

  int64_t in_features() const { return operand().size(1); }
  int64_t out_features() const { return weight.size(0); }
  ops::Weight operand() const { return {weight, form_}; }

  at::Tensor weight;  // [out_features, in_features], or the bytes of blocks
  at::Tensor bias;    // [out_features], or undefined

 private:
  at::Tensor multiply(const ops::Activation& x, const std::optional<at::Tensor>& bias,
                      const c10::intrusive_ptr<ops::RowExchange>& output = {});

  std::shared_ptr<LinearAdapter> adapter_;
  std::string refusal_;
  ops::ProductType product_type_ = ops::ProductType::OfOperands;
  double initial_multiple_ = 1.0;
  ops::WeightForm form_;
  at::ScalarType dtype_;
  bool is_stored_transposed_ = false;
  std::vector<StoredRows> stored_rows_;
  std::vector<std::string> stored_apart_;
  std::optional<StoredStack> stored_stack_;
  double bias_share_ = 1.0;
  int64_t first_output_ = 0, first_input_ = 0;
};

// Returns each layer's output for x, in the order of `layers`. For few rows this is faster than one call
// after the other.
std::vector<at::Tensor> forward_all(const ops::Activation& x, std::initializer_list<Linear*> layers);

}  // namespace tessera::nn

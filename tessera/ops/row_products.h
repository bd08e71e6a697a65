// What products do whose rows come from others, or go to them, while they are computed.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <torch/csrc/autograd/custom_function.h>

#include "tessera/ops/activation.h"
#include "tessera/ops/product.h"
#include "tessera/ops/row_exchange.h"

namespace tessera::ops {

// The source of an activation that has the rows of all holders.
class RowSource : public ActivationSource {
 public:
  bool collects_gradient() const override { return true; }

  // In the forward: the rows of the value, which the first product that reads it takes out.
  std::shared_ptr<IncomingRows> coming;

  // Says that value() comes soon: its rows begin to come.
  virtual void start() = 0;

  // A reader that will add to `gradient` says so in the forward, and asks in its backward, when it has the
  // memory for the sum and before it adds: the last one gets where the rows of the sum go while it makes
  // them. Null for the others.
  void add_reader() { ++num_readers_; }
  std::shared_ptr<OutgoingRows> going_gradient() { return --num_readers_ == 0 ? send_gradient() : nullptr; }

 private:
  virtual std::shared_ptr<OutgoingRows> send_gradient() = 0;
  int64_t num_readers_ = 0;
};

// Null where the source is another.
RowSource* row_source(const c10::intrusive_ptr<ActivationSource>& source);
// Of a product's input x with this source, in the forward: its rows, if they are still on their way; or null.
std::shared_ptr<IncomingRows> take_coming(const c10::intrusive_ptr<ActivationSource>& source);
// In the forward of a product that will call input_gradient() if x has a gradient.
void count_reader(const at::Tensor& x, const c10::intrusive_ptr<ActivationSource>& source);
// In the backward of a product that will ask for the source's value.
void start_value(const c10::intrusive_ptr<ActivationSource>& source);

// Calls make(range) for all rows of a product: in the order in which its results go, or in which its rows
// come, or once for all. Either may be null.
template <class F>
void make_rows(IncomingRows* coming, OutgoingRows* going, int64_t num_rows, const F& make) {
  if (going != nullptr) {
    if (coming != nullptr) coming->wait_for_all();
    going->make_each(make);
  } else if (coming != nullptr) {
    coming->take_each(make);
  } else {
    make(RowRange{0, num_rows});
  }
}

// Where the rows of a product's result go (null: nowhere), kept in its context for gradient_rows().
void keep_exchange(torch::autograd::AutogradContext& ctx, const c10::intrusive_ptr<RowExchange>& output);

// The gradient of a product's result as [rows, width]. coming: where its rows are still on their way.
struct GradientRows {
  at::Tensor grad;
  std::shared_ptr<IncomingRows> coming;
};
GradientRows gradient_rows(torch::autograd::AutogradContext& ctx, const at::Tensor& grad);

// What becomes of a result that is made, where its rows go; y itself without `output`.
at::Tensor send_rows(const at::Tensor& y, const c10::intrusive_ptr<RowExchange>& output);

// What else goes into the gradient of a product's input; both may be empty.
struct MoreInputGradient {
  std::function<MoreFactors(const RowRange&)> factors;          // of a second product, for these rows
  std::function<void(const RowRange&, at::Tensor rows)> after;  // changes the rows, once they are made
};

// input_gradient() of support.h, row by row as they come and go.
at::Tensor input_gradient(const GradientRows& grad, const at::Tensor& weight,
                          const c10::intrusive_ptr<ActivationSource>& source,
                          const MoreInputGradient& more = {});

}  // namespace tessera::ops

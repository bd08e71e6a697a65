// Shared parts of the products whose rows come from other holders, or go to them, while they are computed.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <torch/csrc/autograd/custom_function.h>

#include "tessera/ops/activation.h"
#include "tessera/ops/product.h"
#include "tessera/ops/row_exchange.h"

namespace tessera::ops {

// The source of an activation that has the rows of all holders (exchange() of row_exchange.h).
class RowSource : public ActivationSource {
 public:
  bool collects_gradient() const override { return true; }

  // The rows of the value in the forward; the first product that reads the value takes them out.
  std::shared_ptr<IncomingRows> coming;

  // Announces that value() will be called soon: the rows begin to come.
  virtual void start() = 0;

  // The last reader in the backward sends the rows of the gradient's sum while it makes them. So a reader
  // that will add to `gradient` calls add_reader() in the forward, and going_gradient() in its backward,
  // after it has set `gradient` to the memory of the sum and before it adds to it: the last reader gets the
  // place to send the rows to, the others get null.
  void add_reader() { ++num_readers_; }
  std::shared_ptr<OutgoingRows> going_gradient() { return --num_readers_ == 0 ? send_gradient() : nullptr; }

 private:
  virtual std::shared_ptr<OutgoingRows> send_gradient() = 0;
  int64_t num_readers_ = 0;
};

// Returns the source as a RowSource, or null if it is of another kind.
RowSource* row_source(const c10::intrusive_ptr<ActivationSource>& source);
// Returns the rows of a product's input with this source, in the forward, if they are still on their way and
// no other product has taken them; else null.
std::shared_ptr<IncomingRows> take_coming(const c10::intrusive_ptr<ActivationSource>& source);
// Counts a reader of the source; called in the forward of a product that will call input_gradient() if x has
// a gradient.
void count_reader(const at::Tensor& x, const c10::intrusive_ptr<ActivationSource>& source);
// Announces that the source's value will be asked for; called in the backward of a product.
void start_value(const c10::intrusive_ptr<ActivationSource>& source);

// Calls make(range) for all rows of a product: in the order in which its results go, or else in which its
// rows come, or else once for all. Either may be null.
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

// Keeps in the product's context where the rows of its result go (null: nowhere), for gradient_rows().
void keep_exchange(torch::autograd::AutogradContext& ctx, const c10::intrusive_ptr<RowExchange>& output);

// The gradient of a product's result as [rows, width]. coming: set if its rows are still on their way, else
// null.
struct GradientRows {
  at::Tensor grad;
  std::shared_ptr<IncomingRows> coming;
};
GradientRows gradient_rows(torch::autograd::AutogradContext& ctx, const at::Tensor& grad);

// Sends the rows of a finished result y to `output` and returns what the exchange gives; y itself without
// `output`.
at::Tensor send_rows(const at::Tensor& y, const c10::intrusive_ptr<RowExchange>& output);

// Further parts of the gradient of a product's input; both may be empty.
struct MoreInputGradient {
  std::function<MoreFactors(const RowRange&)> factors;          // factors of a second product, for these rows
  std::function<void(const RowRange&, at::Tensor rows)> after;  // changes the rows, once they are made
};

// Does what input_gradient() of support.h does, range by range as rows come and go.
at::Tensor input_gradient(const GradientRows& grad, const Weight& weight,
                          const c10::intrusive_ptr<ActivationSource>& source,
                          const MoreInputGradient& more = {});

}  // namespace tessera::ops

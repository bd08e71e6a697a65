// Products whose rows come from elsewhere, or go there, while they are computed: between ranks, say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include "tessera/ops/activation.h"

namespace tessera::ops {

struct RowRange {
  int64_t begin = 0, size = 0;
  // Of all rows, the tensor itself.
  at::Tensor of(const at::Tensor& rows) const {
    return begin == 0 && size == rows.size(0) ? rows : rows.narrow(0, begin, size);
  }
};

// A tensor of which some rows are read while others are on their way. Used by one thread.
class IncomingRows {
 public:
  // The ranges hold each row of `whole` once, in the order in which they are taken.
  IncomingRows(at::Tensor whole, std::vector<RowRange> ranges)
      : whole_(std::move(whole)), ranges_(std::move(ranges)) {}
  virtual ~IncomingRows() = default;
  IncomingRows(const IncomingRows&) = delete;
  IncomingRows& operator=(const IncomingRows&) = delete;

  // For its shape: its numbers may not be there yet.
  const at::Tensor& whole() const { return whole_; }
  // Calls take(range) for each, once its rows are there.
  template <class F>
  void take_each(const F& take) {
    for (size_t i = 0; i < ranges_.size(); ++i) {
      wait_to(i + 1);
      take(ranges_[i]);
    }
  }
  // The tensor with all of its rows.
  const at::Tensor& wait_for_all() {
    wait_to(ranges_.size());
    return whole_;
  }

 private:
  // Returns when the rows of this range are there; once for each, in their order.
  virtual void wait(size_t range) = 0;
  void wait_to(size_t count) {
    for (; num_here_ < count; ++num_here_) wait(num_here_);
  }

  const at::Tensor whole_;
  const std::vector<RowRange> ranges_;
  size_t num_here_ = 0;
};

// A tensor of which some rows are made while others are on their way. Used by one thread.
class OutgoingRows {
 public:
  // As of IncomingRows, in the order in which they are made.
  explicit OutgoingRows(std::vector<RowRange> ranges) : ranges_(std::move(ranges)) {}
  virtual ~OutgoingRows() = default;
  OutgoingRows(const OutgoingRows&) = delete;
  OutgoingRows& operator=(const OutgoingRows&) = delete;

  // Calls make(range) for each, and sends its rows.
  template <class F>
  void make_each(const F& make) {
    for (size_t i = 0; i < ranges_.size(); ++i) {
      make(ranges_[i]);
      send(i);
    }
  }
  // What becomes of them: see RowExchange. Once, after all were made.
  virtual at::Tensor finish() = 0;

 private:
  virtual void send(size_t range) = 0;
  const std::vector<RowRange> ranges_;
};

// Each of several holders has some rows of a whole, as many as the others, one behind the other. Collective
// among them: all call the same in the same order.
class RowExchange : public torch::CustomClassHolder {
 public:
  // The rows of all: of own [rows, ...], [holders * rows, ...].
  virtual std::shared_ptr<IncomingRows> gather(const at::Tensor& own) const = 0;
  // To each holder its rows of the sum over all of their `whole`, whose rows are yet to be made; finish()
  // gives them. whole: dense; it stays as it is until then.
  virtual std::shared_ptr<OutgoingRows> scatter_sum(const at::Tensor& whole) const = 0;
};

// x, for linear and lora_linear to read: the rows of all holders, and of the sum of the gradients of all
// readers the holder's own. x: [rows, width]. Readers keep x or its source, as of exchange() in
// pass_through.h. The first of them takes the rows as they come, so no other op may read the value before it.
// In the backward they come again while a product runs, and those of the gradient go while the last reader
// makes them.
Activation exchange(const Activation& x, const c10::intrusive_ptr<RowExchange>& rows);

}  // namespace tessera::ops

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

// Successive rows of a tensor.
struct RowRange {
  int64_t begin = 0, size = 0;
  // Returns these rows of `rows`: a view, or the tensor itself if they are all of its rows.
  at::Tensor of(const at::Tensor& rows) const {
    return begin == 0 && size == rows.size(0) ? rows : rows.narrow(0, begin, size);
  }
};

// A tensor whose first rows can be read while others are on their way. Used by one thread.
class IncomingRows {
 public:
  // The ranges hold each row of `whole` once, in the order in which they are taken.
  IncomingRows(at::Tensor whole, std::vector<RowRange> ranges)
      : whole_(std::move(whole)), ranges_(std::move(ranges)) {}
  virtual ~IncomingRows() = default;
  IncomingRows(const IncomingRows&) = delete;
  IncomingRows& operator=(const IncomingRows&) = delete;

  // Returns the whole tensor. Its shape may be read at once, but its values may not have come yet.
  const at::Tensor& whole() const { return whole_; }
  // Calls take(range) for each range, as soon as its rows are there.
  template <class F>
  void take_each(const F& take) {
    for (size_t i = 0; i < ranges_.size(); ++i) {
      wait_to(i + 1);
      take(ranges_[i]);
    }
  }
  // Waits for all rows and returns the tensor.
  const at::Tensor& wait_for_all() {
    wait_to(ranges_.size());
    return whole_;
  }

 private:
  // Returns when the rows of the range with this index are there; called once for each, in their order.
  virtual void wait(size_t range) = 0;
  void wait_to(size_t count) {
    for (; num_here_ < count; ++num_here_) wait(num_here_);
  }

  const at::Tensor whole_;
  const std::vector<RowRange> ranges_;
  size_t num_here_ = 0;
};

// A tensor whose first rows are sent while others are still being made. Used by one thread.
class OutgoingRows {
 public:
  // The ranges hold each row once, in the order in which they are made.
  explicit OutgoingRows(std::vector<RowRange> ranges) : ranges_(std::move(ranges)) {}
  virtual ~OutgoingRows() = default;
  OutgoingRows(const OutgoingRows&) = delete;
  OutgoingRows& operator=(const OutgoingRows&) = delete;

  // Calls make(range) for each range, and sends its rows.
  template <class F>
  void make_each(const F& make) {
    for (size_t i = 0; i < ranges_.size(); ++i) {
      make(ranges_[i]);
      send(i);
    }
  }
  // Returns the result of the exchange (see RowExchange). Called once, after all rows were made.
  virtual at::Tensor finish() = 0;

 private:
  // Sends the rows of the range with this index; called once for each, in their order.
  virtual void send(size_t range) = 0;
  const std::vector<RowRange> ranges_;
};

// An exchange of rows among several holders (ranks), each of which has as many rows of a whole as the others,
// in the order of the holders. Collective among them: all make the same calls in the same order.
class RowExchange : public torch::CustomClassHolder {
 public:
  // Starts to gather the rows of all holders: of `own`, [rows, ...], comes [holders * rows, ...].
  virtual std::shared_ptr<IncomingRows> gather(const at::Tensor& own) const = 0;
  // Takes `whole`, [holders * rows, ...], whose rows are yet to be made, and gives each holder its own rows
  // of the sum over all holders' `whole`: finish() returns them, [rows, ...]. whole: dense; it must stay as
  // it is until then.
  virtual std::shared_ptr<OutgoingRows> scatter_sum(const at::Tensor& whole) const = 0;
};

// Returns the rows of all holders, [holders * rows, width], for linear and lora_linear to read; the gradient
// of x, [rows, width], is the holder's own rows of the sum of the gradients of all readers. Readers keep x or
// its source, as with exchange() in pass_through.h. The first reader takes the rows as they come, so no other
// op may read the value before it. In the backward the rows are gathered again while a product runs, and
// those of the gradient are sent while the last reader makes them.
Activation exchange(const Activation& x, const c10::intrusive_ptr<RowExchange>& rows);

}  // namespace tessera::ops

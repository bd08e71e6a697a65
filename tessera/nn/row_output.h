// The output of a Linear whose rows go to other ranks while the product makes them.
#pragma once

#include "tessera/nn/layer.h"
#include "tessera/ops/row_exchange.h"

namespace tessera::nn {

// A LayerParallel for a Linear, which then uses output_rows() in place of output().
class RowOutput : public LayerParallel {
 public:
  // Returns what takes the rows of the product; see ops::linear() and ops::lora_linear(). It is null where
  // the Linear is to call output() after all.
  virtual c10::intrusive_ptr<ops::RowExchange> output_rows() const = 0;
};

}  // namespace tessera::nn

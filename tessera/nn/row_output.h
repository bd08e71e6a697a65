// Linear layers whose outputs go to other ranks while they are made.
#pragma once

#include "tessera/nn/layer.h"
#include "tessera/ops/row_exchange.h"

namespace tessera::nn {

// Of a Linear, which takes output_rows() in place of output().
class RowOutput : public LayerParallel {
 public:
  // Where the rows of the product go; see ops::linear() and ops::lora_linear().
  virtual c10::intrusive_ptr<ops::RowExchange> output_rows() const = 0;
};

}  // namespace tessera::nn

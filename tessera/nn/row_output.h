// The output of a Linear whose rows go to other ranks while the product makes them.
#pragma once

#include "tessera/nn/layer.h"
#include "tessera/ops/row_exchange.h"

namespace tessera::nn {

// A LayerParallel for a Linear, which then uses output_rows() and never calls output().
class RowOutput : public LayerParallel {
 public:
  // Returns what takes the rows of the product; see ops::linear() and ops::lora_linear().
  virtual c10::intrusive_ptr<ops::RowExchange> output_rows() const = 0;
};

}  // namespace tessera::nn

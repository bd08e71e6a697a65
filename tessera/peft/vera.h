// VeRA (Kopiczko et al., arXiv 2310.11454): trained vectors around random matrices that all layers share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/nn/linear.h"
#include "tessera/nn/random_scope.h"
#include "tessera/peft/lora.h"
#include "tessera/peft/vera_projections.h"

namespace tessera::peft {

// Adds b * (B (d * (A drop(x)))) to a layer's product, with parts of the shared A and B (equation 2 of the
// paper). Its children are made on the meta device in the dtype of the layer: vera_lambda_b (weight [out],
// zeros at first) and vera_lambda_d (weight [rank], VeraOptions::d_initial at first).
class VeraAdapter : public nn::LinearAdapter {
 public:
  // `site` is the name of the layer, from which its dropout masks derive.
  VeraAdapter(const nn::Linear& layer, const LoraOptions& options,
              std::shared_ptr<const VeraProjections> projections, const std::string& site);

  // Takes x as [..., in] and returns [..., out], the layer's own product included. Dropout applies in
  // training mode, and then needs an nn::RandomScope.
  at::Tensor forward(const ops::Activation& x, const ops::Weight& weight,
                     const std::optional<at::Tensor>& bias,
                     const c10::intrusive_ptr<ops::RowExchange>& output) override;
  bool drops() const override;
  std::vector<nn::AdapterParameter> adapter_parameters() const override;
  void set_input_part(int64_t first, int64_t in_features, const ops::ChangeInPlace&) override {
    input_ = {first, in_features};
  }
  void set_output_part(int64_t first) override { first_output_ = first; }

 private:
  struct Vector;
  // The rows of B for the outputs that this rank has.
  VeraProjections::Runs output_runs() const;

  const std::shared_ptr<const VeraProjections> projections_;
  std::shared_ptr<Vector> b_, d_;
  std::vector<nn::StoredRows> stored_rows_;  // of the layer, in its order
  double dropout_;
  uint64_t stream_;           // of the random numbers for dropout
  nn::RowPart input_;         // the columns of the input that x holds
  int64_t first_output_ = 0;  // the layer's first output that this rank has
};

}  // namespace tessera::peft

// Trained factors of a layer's outputs or inputs (Liu et al., "Few-Shot Parameter-Efficient Fine-Tuning is
// Better and Cheaper than In-Context Learning", arXiv 2205.05638, section 3.3).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/nn/linear.h"
#include "tessera/peft/lora.h"

namespace tessera::peft {

// Tells whether the layer of this name has factors of its inputs, by the ends of names that the options give.
bool multiplies_inputs(const LoraOptions& options, const std::string& layer);

// Multiplies the outputs of a layer, its bias included, or its inputs (feedforward). The factors are the
// weight of the child ia3_l, [out, 1] or [1, in], made on the meta device in the dtype of the layer. They
// start as ones.
class Ia3Adapter : public nn::LinearAdapter {
 public:
  Ia3Adapter(const nn::Linear& layer, bool is_feedforward);

  // Takes x as [..., in] and returns [..., out], the layer's own product included.
  at::Tensor forward(const ops::Activation& x, const ops::Weight& weight,
                     const std::optional<at::Tensor>& bias,
                     const c10::intrusive_ptr<ops::RowExchange>& output) override;
  std::vector<nn::AdapterParameter> adapter_parameters() const override;
  void set_input_part(int64_t, int64_t in_features, const ops::ChangeInPlace&) override {
    whole_width_ = in_features;
  }

 private:
  struct Factors;
  // The factors with their graph, for a product of activations to keep.
  at::Tensor factors() const;

  std::shared_ptr<Factors> factors_;
  bool is_feedforward_;
  at::Tensor layer_bias_;    // the layer's own parameter; may be undefined
  int64_t whole_width_ = 0;  // of the layer's inputs, of which x holds a part; 0: x holds all of them
};

}  // namespace tessera::peft

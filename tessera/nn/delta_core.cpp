#include "tessera/nn/delta_core.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/nn/convolution_core.h"
#include "tessera/ops/causal_convolution.h"
#include "tessera/ops/support.h"

namespace tessera::nn {
namespace {

// The cache keeps these of a sequence, in this order: continue_convolution() makes the first.
enum Kept : size_t { kRows, kMemory, kNumKept };

class DocumentDelta : public DeltaCore {
 public:
  at::Tensor read(const ops::DeltaInputs& in, const at::Tensor& taps, const ops::DeltaHead& head,
                  const SequenceContext& context, int64_t layer) const override {
    if (context.cache != nullptr) return go_on(in, taps, head, context, layer);
    const at::Tensor rows =
        ops::causal_convolution(in.rows.flatten(1), taps, context.document_starts, /*has_silu=*/true);
    return ops::gated_delta_rule({rows.view(in.rows.sizes()), in.log_decay, in.strength}, head,
                                 context.document_starts);
  }

 private:
  static at::Tensor go_on(const ops::DeltaInputs& in, const at::Tensor& taps, const ops::DeltaHead& head,
                          const SequenceContext& context, int64_t layer) {
    const std::vector<int64_t>& starts = context.document_starts;
    std::vector<LayerState> states = context.cache->states(layer);
    const at::Tensor rows = continue_convolution(in.rows.flatten(1), taps, starts, /*has_silu=*/true, states);
    const at::Tensor no_memory = at::zeros({in.log_decay.size(1), head.key_dim, head.value_dim},
                                           in.rows.options().dtype(ops::compute_type(in.rows.scalar_type())));
    std::vector<at::Tensor> memories;
    for (LayerState& state : states) {
      memories.push_back(state.size() < kNumKept ? no_memory : state[kMemory]);
      state.resize(kNumKept);
    }
    auto [out, memory] = ops::continue_delta_rule({rows.view(in.rows.sizes()), in.log_decay, in.strength},
                                                  head, starts, at::stack(memories));
    for (size_t i = 0; i < states.size(); ++i) {
      const at::Tensor own = memory[static_cast<int64_t>(i)];
      states[i][kMemory] = states.size() == 1 ? own : own.clone();
    }
    context.cache->set_states(layer, std::move(states));
    return out;
  }
};

}  // namespace

std::shared_ptr<const DeltaCore> document_delta() {
  static const auto core = std::make_shared<const DocumentDelta>();
  return core;
}

}  // namespace tessera::nn

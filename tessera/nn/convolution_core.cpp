#include "tessera/nn/convolution_core.h"

#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/ops/causal_convolution.h"
#include "tessera/ops/support.h"

namespace tessera::nn {
namespace {

struct DocumentConvolution : ConvolutionCore {
  at::Tensor convolve(const at::Tensor& rows, const at::Tensor& taps, const SequenceContext& context,
                      int64_t layer) const override {
    const std::vector<int64_t>& starts = context.document_starts;
    if (context.cache == nullptr) return ops::causal_convolution(rows, taps, starts, /*has_silu=*/false);
    std::vector<LayerState> states = context.cache->states(layer);
    const at::Tensor y = continue_convolution(rows, taps, starts, /*has_silu=*/false, states);
    context.cache->set_states(layer, std::move(states));
    return y;
  }
};

}  // namespace

at::Tensor continue_convolution(const at::Tensor& rows, const at::Tensor& taps,
                                const std::vector<int64_t>& starts, bool has_silu,
                                std::vector<LayerState>& states) {
  const int64_t sequences = std::ssize(starts) - 1, seen = taps.size(1) - 1;
  TESSERA_ASSERT(std::ssize(states) == sequences, "a state for each sequence");
  const at::Tensor no_rows = at::zeros({seen, rows.size(1)}, rows.options());

  // The rows before the new tokens lie in front of these, as if they were new.
  std::vector<at::Tensor> line;
  std::vector<int64_t> line_starts = {0}, new_rows;
  for (int64_t i = 0; i < sequences; ++i) {
    const int64_t first = starts[static_cast<size_t>(i)], count = starts[static_cast<size_t>(i) + 1] - first;
    LayerState& state = states[static_cast<size_t>(i)];
    if (state.empty()) state.push_back(no_rows);
    line.push_back(state.front());
    line.push_back(rows.narrow(0, first, count));
    for (int64_t row = 0; row < count; ++row) new_rows.push_back(line_starts.back() + seen + row);
    line_starts.push_back(line_starts.back() + seen + count);
  }
  const at::Tensor all = at::cat(line);
  for (int64_t i = 0; i < sequences; ++i) {
    states[static_cast<size_t>(i)].front() =
        all.narrow(0, line_starts[static_cast<size_t>(i) + 1] - seen, seen).clone();
  }
  return ops::causal_convolution(all, taps, line_starts, has_silu)
      .index_select(0, ops::copied_to(all.device(), new_rows));
}

std::shared_ptr<const ConvolutionCore> document_convolution() {
  static const auto core = std::make_shared<const DocumentConvolution>();
  return core;
}

}  // namespace tessera::nn

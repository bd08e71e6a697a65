#include "tessera/nn/count_entities.h"

#include <vector>

#include <ATen/ATen.h>

#include "tessera/core/entity_metrics.h"
#include "tessera/device/device.h"
#include "tessera/device/device_copy.h"
#include "tessera/device/host_memory.h"

namespace tessera::nn {
namespace {

// Returns the places in the line of the tokens at `positions` of a batch.
at::Tensor places_in_line(const at::Tensor& positions, const TokenPart& part) {
  if (!part) return positions;
  std::vector<at::Tensor> places = {at::empty({0}, on_host(at::kLong))};
  for (const TokenRun& run : *part)
    places.push_back(at::arange(run.first, run.first + run.count, on_host(at::kLong)));
  return at::cat(places).index_select(0, positions);
}

at::Tensor to_host(const at::Tensor& values) { return HostCopy(values.contiguous()).wait(); }

}  // namespace

void count_entities(const Classification& classification, const TokenBatch& batch,
                    const at::Tensor& positions, const at::Tensor& tags, const at::Tensor& predicted,
                    const ops::ChangeInPlace& sum) {
  const at::NoGradGuard no_grad;
  const at::Tensor places = places_in_line(positions, batch.part);
  // Each token of the line has one more than its tag and than its predicted tag, or 0 without a label.
  const at::Tensor own = at::zeros({2, batch.document_starts.back()}, on_host(at::kDouble));
  own.index_copy_(1, places, at::stack({to_host(tags), to_host(predicted)}).to(at::kDouble) + 1.0);
  at::Tensor line = own;
  if (sum) {
    const at::Tensor shared = copy_to(own, batch.statistics.device()).clone();
    sum(shared);
    line = to_host(shared);
  }
  const at::Tensor labelled = line[0].nonzero().squeeze(1);
  // The rank that has the first labelled token counts for all.
  if (labelled.numel() == 0 || own[0][labelled[0]].item<double>() == 0.0) return;
  const EntityTags entities(classification.labels);
  std::vector<double> counts(EntityTags::kStatistics);
  std::vector<int64_t> are, were_predicted;
  const auto values = host_span<const double>(line);
  const auto length = static_cast<size_t>(batch.document_starts.back());
  for (size_t d = 0; d + 1 < batch.document_starts.size(); ++d) {
    are.clear();
    were_predicted.clear();
    for (auto i = static_cast<size_t>(batch.document_starts[d]);
         i < static_cast<size_t>(batch.document_starts[d + 1]); ++i) {
      if (values[i] == 0.0) continue;
      are.push_back(static_cast<int64_t>(values[i]) - 1);
      were_predicted.push_back(static_cast<int64_t>(values[length + i]) - 1);
    }
    entities.add_row(are, were_predicted, counts);
  }
  batch.statistics.add_(copy_to(at::tensor(counts, on_host(at::kDouble)), batch.statistics.device()));
}

}  // namespace tessera::nn

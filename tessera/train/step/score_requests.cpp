#include "tessera/train/step/score_requests.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/device/device_copy.h"
#include "tessera/device/host_memory.h"
#include "tessera/train/step/forward_backward.h"

namespace tessera::train {
namespace {

using scoring::TokenRequest;

// Adds a request as a document of the micro-batch. It is the source `number` of its losses.
void append(const TokenRequest& request, int64_t number, data::MicroBatch& batch) {
  const int64_t length = std::ssize(request.ids) - 1;
  if (batch.document_starts.empty()) batch.document_starts.push_back(0);
  for (int64_t i = 0; i < length; ++i) {
    const bool is_scored = i >= length - request.num_scored;
    batch.input_ids.push_back(request.ids[static_cast<size_t>(i)]);
    batch.labels.push_back(is_scored ? request.ids[static_cast<size_t>(i) + 1] : kIgnoreLabel);
    batch.position_ids.push_back(i);
    batch.datasets.push_back(number);
  }
  batch.document_starts.push_back(std::ssize(batch.input_ids));
  batch.label_tokens += request.num_scored;
}

struct Deal {
  std::vector<data::MicroBatch> own;  // of this rank, as many as every rank has
  std::vector<int64_t> done;          // requests of all ranks in as many of them, by their count
};

// Packs the requests, the longest first, so that memory is highest at the beginning.
Deal deal(std::span<const TokenRequest> requests, int64_t max_tokens, int64_t rank, int64_t num_ranks) {
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return requests[i].ids.size(); });
  Deal dealt;
  int64_t number = 0;  // of the micro-batch among those of all ranks
  for (size_t next = 0; next < order.size() || number % num_ranks != 0; ++number) {
    data::MicroBatch batch;
    for (; next < order.size(); ++next) {
      const TokenRequest& request = requests[order[next]];
      const int64_t tokens = std::ssize(batch.input_ids) + std::ssize(request.ids) - 1;
      if (!batch.input_ids.empty() && tokens > max_tokens) break;
      append(request, static_cast<int64_t>(order[next]), batch);
    }
    if (number % num_ranks == rank) dealt.own.push_back(std::move(batch));
    if (number % num_ranks == num_ranks - 1) dealt.done.push_back(static_cast<int64_t>(next));
  }
  return dealt;
}

}  // namespace

// [Note: scores are losses] The log-likelihood of a request is the negative of the sum of the cross entropies
// at its scored tokens. Each request is a source of losses (ops::LossSources), whose sums every layout that
// computes losses can tell apart: so tasks need no forward of their own.
std::optional<std::vector<generation::TokenScore>> score_requests(
    TrainedModel& trained, const parallel::DeviceMesh& mesh, std::span<const TokenRequest> requests,
    int64_t max_tokens, const std::function<bool(int64_t done)>& on_pass) {
  const at::NoGradGuard no_grad;
  const Deal dealt =
      deal(requests, max_tokens, mesh.coordinate(parallel::kAxisDp), mesh.size(parallel::kAxisDp));
  const LossParts parts{
      .datasets = at::zeros({2, std::ssize(requests)}, at::TensorOptions(mesh.device()).dtype(at::kDouble))};
  trained.model->eval();
  bool goes_on = true;
  const auto count = static_cast<int64_t>(dealt.own.size());
  for (int64_t begin = 0; goes_on && begin < count;) {
    const int64_t end = std::min(count, begin + micro_batches_at_once(mesh));
    forward(trained, mesh, {dealt.own.begin() + begin, dealt.own.begin() + end}, parts);
    begin = end;
    goes_on = on_pass(dealt.done[static_cast<size_t>(end) - 1]);
  }
  trained.model->train();
  if (!goes_on) return std::nullopt;
  mesh.group(parallel::kAxisLoss)->all_reduce(parts.datasets);
  const at::Tensor sums = HostCopy(parts.datasets).wait();
  const auto values = host_span<const double>(sums);
  std::vector<generation::TokenScore> scores;
  for (size_t i = 0; i < requests.size(); ++i)
    scores.push_back({-values[i], values[requests.size() + i] == 0.0});
  return scores;
}

}  // namespace tessera::train

#include "tessera/generation/draw_tokens.h"

#include <bit>
#include <limits>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/device/device.h"
#include "tessera/device/device_copy.h"
#include "tessera/device/host_memory.h"
#include "tessera/device/pinned_memory.h"
#include "tessera/ops/support.h"

namespace tessera::generation {
namespace {

enum Value : int64_t { kTemperature, kTopK, kTopP, kMinP, kPenalty, kRandom };

// Returns the last column of [rows, vocabulary]: of running sums, the totals, [rows, 1].
at::Tensor last_of(const at::Tensor& sums) { return sums.narrow(1, sums.size(1) - 1, 1); }

// Sets the weights of the tokens that top_k and top_p leave out to zero. weights (int64) and logits are
// [rows, vocabulary], top_k and top_p are [rows, 1].
void cut(const at::Tensor& weights, const at::Tensor& logits, const at::Tensor& top_k,
         const at::Tensor& top_p) {
  // A stable sort leaves equal logits in the order of their ids, as sampling.h asks.
  const at::Tensor order = logits.argsort(/*stable=*/true, 1, /*descending=*/true);
  const at::Tensor falling = weights.gather(1, order);
  falling.masked_fill_(at::arange(falling.size(1), order.options()).ge(top_k), 0);
  const at::Tensor sums = falling.cumsum(1);
  const at::Tensor needed = (last_of(sums).to(at::kDouble) * top_p).ceil().to(at::kLong);
  // A token is left out if the tokens before it reach what is needed already.
  falling.masked_fill_(sums.sub_(falling).ge(needed), 0);
  weights.scatter_(1, order, falling);
}

// Returns logits in which tokens that a row may not choose are -infinity.
at::Tensor keep_allowed(const at::Tensor& logits, std::span<const TokenDraw> draws) {
  std::vector<int64_t> rows;
  for (size_t i = 0; i < draws.size(); ++i) {
    if (!draws[i].allowed.empty()) rows.push_back(static_cast<int64_t>(i));
  }
  const int64_t vocabulary = logits.size(1);
  const at::Tensor barred = empty_pinned({std::ssize(rows), vocabulary}, at::kBool, logits.device());
  bool* next = host_span<bool>(barred).data();
  for (const int64_t row : rows) {
    const std::span<const uint64_t> bits = draws[static_cast<size_t>(row)].allowed;
    for (size_t id = 0; id < static_cast<size_t>(vocabulary); ++id)
      *next++ = id / 64 >= bits.size() || (bits[id / 64] >> (id % 64) & 1) == 0;
  }
  const at::Tensor index = copy_to(at::tensor(rows, on_host(at::kLong)), logits.device());
  const at::Tensor kept = logits.index_select(0, index).masked_fill(
      barred.to(logits.device(), /*non_blocking=*/true), -std::numeric_limits<double>::infinity());
  return logits.index_copy(0, index, kept);
}

// Returns logits with one list of each draw added.
at::Tensor add_biases(const at::Tensor& logits, std::span<const TokenDraw> draws,
                      std::span<const TokenBias> TokenDraw::*list) {
  int64_t count = 0;
  for (const TokenDraw& draw : draws) count += std::ssize(draw.*list);
  if (count == 0) return logits;
  // Places in the flat logits, then the bits of what is added there.
  const at::Tensor told = empty_pinned({2, count}, at::kLong, logits.device());
  const auto numbers = host_span<int64_t>(told);
  size_t next = 0;
  for (size_t row = 0; row < draws.size(); ++row) {
    for (const TokenBias& bias : draws[row].*list) {
      numbers[next] = static_cast<int64_t>(row) * logits.size(1) + bias.id;
      numbers[static_cast<size_t>(count) + next++] = std::bit_cast<int64_t>(bias.delta);
    }
  }
  const at::Tensor there = told.to(logits.device(), /*non_blocking=*/true);
  const at::Tensor changed = logits.clone(at::MemoryFormat::Contiguous), flat = changed.view({-1}),
                   places = there.select(0, 0);
  const at::ScalarType exact = ops::compute_type(logits.scalar_type());
  const at::Tensor deltas = there.select(0, 1).view(at::kDouble).to(exact);
  const at::Tensor sums = flat.index_select(0, places).to(exact) + deltas;
  flat.index_copy_(0, places, sums.to(logits.scalar_type()));
  return changed;
}

// Returns logits with each row's repetition penalty applied to the tokens that have occurred in it.
at::Tensor penalize(const at::Tensor& logits, const at::Tensor& values, const at::Tensor& occurred) {
  const at::ScalarType exact = ops::compute_type(logits.scalar_type());
  const at::Tensor scores = logits.to(exact), factor = values.select(0, kPenalty).unsqueeze(1).to(exact);
  const at::Tensor changed = at::where(scores.lt(0), scores * factor, scores / factor);
  return at::where(occurred, changed.to(logits.scalar_type()), logits);
}

}  // namespace

std::array<double, kDrawValues> draw_values(const TokenDraw& draw) {
  const SamplingOptions& o = draw.options;
  if (o.is_greedy()) return {0.0, 1.0, 1.0, 0.0, o.repetition_penalty, 0.0};
  constexpr int64_t kAll = std::numeric_limits<int32_t>::max();
  const int64_t top_k = o.top_k > 0 && o.top_k < kAll ? o.top_k : kAll;
  // top_p = 1 cuts nothing. It becomes 2: the tokens never reach twice the sum of all, however it is rounded.
  const double top_p = o.top_p < 1.0 ? o.top_p : 2.0;
  return {o.temperature, static_cast<double>(top_k), top_p,
          o.min_p,       o.repetition_penalty,       o.random_number(draw.index)};
}

void DrawWork::add(const TokenDraw& draw) {
  const SamplingOptions& options = draw.options;
  draws = draws || !options.is_greedy();
  cuts = cuts || options.cuts();
  penalizes = penalizes || options.repetition_penalty != 1.0;
  bars = bars || !draw.allowed.empty();
  adds = adds || !draw.before_penalty.empty() || !draw.after_penalty.empty();
}

at::Tensor change_logits(const at::Tensor& logits, std::span<const TokenDraw> draws, const at::Tensor& values,
                         const at::Tensor& occurred, const DrawWork& work) {
  TESSERA_ASSERT(occurred.defined() == work.penalizes, "change_logits: the tokens that have occurred");
  at::Tensor changed = work.bars ? keep_allowed(logits, draws) : logits;
  if (work.adds) changed = add_biases(changed, draws, &TokenDraw::before_penalty);
  if (work.penalizes) changed = penalize(changed, values, occurred);
  return work.adds ? add_biases(changed, draws, &TokenDraw::after_penalty) : changed;
}

at::Tensor likeliest_tokens(const at::Tensor& logits) {
  // argmax() gives the first of equal logits, and takes a NaN for larger than any number.
  const at::Tensor ids = logits.argmax(1);
  return at::stack({ids.to(at::kDouble), logits.gather(1, ids.unsqueeze(1)).squeeze(1).to(at::kDouble)});
}

at::Tensor draw_tokens(const at::Tensor& logits, const at::Tensor& values, const DrawWork& work) {
  TESSERA_ASSERT(logits.dim() == 2 && logits.size(1) <= kMostWeights && values.dim() == 2 &&
                     values.size(0) == kDrawValues && values.size(1) == logits.size(0) &&
                     values.scalar_type() == at::kDouble,
                 "draw_tokens: shapes or types");
  // Returns one value of every row, [rows, 1].
  const auto value = [&](Value which) { return values.select(0, which).unsqueeze(1); };
  const at::Tensor likeliest = likeliest_tokens(logits);
  if (!work.draws) return likeliest;
  const at::Tensor highest = likeliest.select(0, 1).unsqueeze(1), temperature = value(kTemperature);
  const at::Tensor is_greedy = temperature.eq(0);
  at::Tensor exact = logits.to(at::kDouble) - highest;
  // Greedy rows are divided by 1 instead of 0; their result is replaced at the end.
  exact.div_(temperature.masked_fill(is_greedy, 1.0)).exp_().mul_(kWeightOfOne).round_();
  const at::Tensor weights = exact.to(at::kLong);
  exact.reset();  // frees [rows, vocabulary] of float64 before more is taken
  if (work.cuts) cut(weights, logits, value(kTopK), value(kTopP));
  weights.masked_fill_(weights.lt((value(kMinP) * kWeightOfOne).ceil().to(at::kLong)), 0);
  const at::Tensor sums = weights.cumsum(1), total = last_of(sums);
  const at::Tensor reached = at::minimum((value(kRandom) * total.to(at::kDouble)).to(at::kLong), total - 1);
  // A row with NaN has meaningless weights; the clamp keeps its id inside the vocabulary.
  const at::Tensor drawn = at::searchsorted(sums, reached, /*out_int32=*/false, /*right=*/true)
                               .clamp(0, logits.size(1) - 1)
                               .to(at::kDouble);
  const at::Tensor ids = at::where(is_greedy, likeliest.select(0, 0).unsqueeze(1), drawn);
  return at::cat({ids, highest}, 1).t().contiguous();
}

}  // namespace tessera::generation

#include "tessera/nn/random_scope.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/rng.h"
#include "tessera/device/device.h"
#include "tessera/device/device_copy.h"
#include "tessera/device/host_memory.h"
#include "tessera/ops/counter_dropout.h"

namespace tessera::nn {
namespace {

// Gives each sequence of a step a stream of its own: 64 random bits, so that no two meet.
uint64_t stream_in(uint64_t stream, uint64_t sequence) { return CounterRng(stream, sequence).bits(0); }

// A run of tokens of one sequence: `first` is its first token's place in the sequence, `token` that in the
// micro-batch.
struct SequenceRun {
  uint64_t sequence = 0;
  int64_t first = 0, token = 0, count = 0;
};

// Returns this rank's tokens as runs of the sequences. Tokens behind the last sequence, which a layout has
// added, count as its own.
std::vector<SequenceRun> runs_of(const RandomPlace& place, int64_t num_tokens) {
  const std::vector<int64_t>& starts = place.sequence_starts;
  const size_t num_sequences = starts.size() > 1 ? starts.size() - 1 : 1;
  std::vector<SequenceRun> runs;
  size_t number = 0;
  for (const TokenRun& run : place.part.value_or(std::vector<TokenRun>{{0, num_tokens}})) {
    for (int64_t token = run.first; token < run.first + run.count;) {
      while (number > 0 && starts[number] > token) --number;
      while (number + 1 < num_sequences && starts[number + 1] <= token) ++number;
      const int64_t begin = number < starts.size() ? starts[number] : 0;
      const int64_t end = number + 1 < num_sequences ? starts[number + 1] : run.first + run.count;
      const int64_t count = std::min(end, run.first + run.count) - token;
      runs.push_back({place.sequence + number, token - begin, token, count});
      token += count;
    }
  }
  return runs;
}

struct TokenPlace {
  int64_t sequence, token;
};

// Returns the places of this rank's tokens.
std::vector<TokenPlace> token_places(const RandomPlace& place, int64_t num_tokens) {
  std::vector<TokenPlace> places;
  for (const SequenceRun& run : runs_of(place, num_tokens)) {
    for (int64_t i = 0; i < run.count; ++i)
      places.push_back({static_cast<int64_t>(run.sequence), run.first + i});
  }
  TESSERA_CHECK_ARGUMENT(std::ssize(places) == num_tokens,
                         "dropout: the tokens are those of the RandomScope");
  return places;
}

// Returns the places of the rows that the RandomScope has.
std::vector<TokenPlace> row_places(const RandomPlace& place) {
  const at::Tensor dense = place.rows.contiguous();
  const auto rows = host_span<const int64_t>(dense);
  std::vector<TokenPlace> places;
  for (size_t i = 0; i < rows.size(); i += 2) places.push_back({rows[i], rows[i + 1]});
  return places;
}

at::Tensor mask_of_rows(const at::Tensor& x, double p, uint64_t stream, const RowPart& part,
                        const RandomPlace& place) {
  const int64_t width = part.width > 0 ? part.width : x.size(-1);
  TESSERA_CHECK_ARGUMENT(x.dim() == 2 && x.size(0) == place.rows.size(0),
                         "dropout: the rows are those of the RandomScope");
  const std::vector<TokenPlace> rows = row_places(place);
  std::vector<at::Tensor> masks;
  for (size_t i = 0; i < rows.size();) {
    const int64_t sequence = rows[i].sequence;
    std::vector<int64_t> first;
    for (; i < rows.size() && rows[i].sequence == sequence; ++i)
      first.push_back(rows[i].token * width + part.first);
    masks.push_back(ops::dropout_mask_of_rows(first, x.size(1), p, place.seed,
                                              stream_in(stream, static_cast<uint64_t>(sequence)), place.step,
                                              x.options().requires_grad(false)));
  }
  return masks.empty() ? at::empty_like(x) : masks.size() == 1 ? masks.front() : at::cat(masks);
}

}  // namespace

at::Tensor dropout_mask_here(const at::Tensor& x, double p, uint64_t stream, const RowPart& part) {
  const RandomPlace* place = RandomScope::current();
  TESSERA_CHECK_ARGUMENT(place != nullptr, "dropout in training needs a RandomScope around the micro-batch");
  if (place->rows.defined()) return mask_of_rows(x, p, stream, part, *place);
  // The element index that the mask is drawn from is that in the whole sequence, so a rank with a part of the
  // tokens or columns draws what one process would.
  const int64_t width = part.width > 0 ? part.width : x.size(-1);
  std::vector<at::Tensor> masks;
  for (const SequenceRun& run : runs_of(*place, x.size(0))) {
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.front() = run.count;
    masks.push_back(ops::dropout_mask(sizes, p, place->seed, stream_in(stream, run.sequence), place->step,
                                      run.first * width + part.first, x.options().requires_grad(false),
                                      part.width));
  }
  if (masks.size() == 1) return masks.front();
  const at::Tensor mask = masks.empty() ? at::empty_like(x) : at::cat(masks);
  TESSERA_CHECK_ARGUMENT(mask.sizes() == x.sizes(),
                         "dropout: the rows are those of the RandomScope's tokens");
  return mask;
}

at::Tensor draws_here(const at::Tensor& x, int64_t first_head, int64_t num_heads, uint64_t stream) {
  const RandomPlace* place = RandomScope::current();
  TESSERA_CHECK_ARGUMENT(place != nullptr, "dropout in training needs a RandomScope around the micro-batch");
  const int64_t heads = x.size(1);
  if (x.is_meta()) return at::empty({x.size(0), heads}, x.options().dtype(at::kLong));
  const std::vector<TokenPlace> places =
      place->rows.defined() ? row_places(*place) : token_places(*place, x.size(0));
  TESSERA_CHECK_ARGUMENT(std::ssize(places) == x.size(0), "dropout: the rows are those of the RandomScope");
  const at::Tensor draws = at::empty({x.size(0), heads}, on_host(at::kLong));
  auto draw = host_span<int64_t>(draws).begin();
  std::optional<CounterRng> rng;
  for (size_t i = 0; i < places.size(); ++i) {
    if (i == 0 || places[i].sequence != places[i - 1].sequence)
      rng.emplace(place->seed, stream_in(stream, static_cast<uint64_t>(places[i].sequence)), place->step);
    const auto first = static_cast<uint64_t>(places[i].token * num_heads + first_head);
    for (int64_t head = 0; head < heads; ++head)
      *draw++ = static_cast<int64_t>(rng->bits(first + static_cast<uint64_t>(head)));
  }
  return copy_to(draws, x.device());
}

RandomPlace place_of_rows(const RandomPlace& place, const at::Tensor& tokens, int64_t num_tokens) {
  const std::vector<TokenPlace> places = token_places(place, num_tokens);
  const at::Tensor here =
      tokens.is_meta() ? at::zeros(tokens.sizes(), on_host(at::kLong)) : tokens.to(kHost).contiguous();
  RandomPlace result{.seed = place.seed, .step = place.step};
  result.rows = at::empty({here.size(0), 2}, on_host(at::kLong));
  const auto rows = host_span<int64_t>(result.rows);
  size_t next = 0;
  for (const int64_t token : host_span<const int64_t>(here)) {
    rows[next++] = places[static_cast<size_t>(token)].sequence;
    rows[next++] = places[static_cast<size_t>(token)].token;
  }
  return result;
}

RandomPlace place_of_rows(const RandomPlace& place, int64_t first, int64_t count) {
  RandomPlace result{.seed = place.seed, .step = place.step};
  result.rows = place.rows.narrow(0, first, count);
  return result;
}

at::Tensor embedding_noise_here(const at::Tensor& x, double alpha) {
  const RandomPlace* place = RandomScope::current();
  TESSERA_CHECK_ARGUMENT(place != nullptr, "noise in training needs a RandomScope around the micro-batch");
  const std::vector<int64_t>& starts = place->document_starts;
  TESSERA_CHECK_ARGUMENT(!starts.empty(), "noise: the RandomScope knows no documents");
  const at::NoGradGuard no_grad;
  const uint64_t stream = stream_of("embedding.noise");
  const int64_t width = x.size(1);
  std::vector<at::Tensor> parts;
  std::vector<double> sizes;
  for (const SequenceRun& run : runs_of(*place, starts.back())) {
    parts.push_back(ops::uniform_noise({run.count, width}, place->seed, stream_in(stream, run.sequence),
                                       place->step, run.first * width, x.options().requires_grad(false)));
    for (int64_t token = run.token; token < run.token + run.count; ++token) {
      const auto end = std::upper_bound(starts.begin(), starts.end(), token);
      sizes.push_back(alpha / std::sqrt(static_cast<double>((*end - *(end - 1)) * width)));
    }
  }
  const at::Tensor noise = parts.empty() ? at::empty_like(x) : at::cat(parts);
  TESSERA_CHECK_ARGUMENT(noise.sizes() == x.sizes(), "noise: the rows are those of the RandomScope's tokens");
  return noise.mul_(at::tensor(sizes, on_host(at::kDouble)).to(x.options()).unsqueeze(1));
}

}  // namespace tessera::nn

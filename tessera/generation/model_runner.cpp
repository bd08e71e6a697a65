#include "tessera/generation/model_runner.h"

#include <algorithm>
#include <bit>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "tessera/core/error.h"
#include "tessera/device/device.h"
#include "tessera/device/device_copy.h"
#include "tessera/device/device_event.h"
#include "tessera/device/host_memory.h"
#include "tessera/device/pinned_memory.h"
#include "tessera/generation/sampling.h"

namespace tessera::generation {
namespace {

// The rows of Step::inputs: token ids, positions, the position of the first token in the cache, kDrawRows
// rows for draw(), and all remaining rows for page numbers.
enum InputRow : int64_t { kIds, kPositions, kFirsts, kDraws, kPages = kDraws + 1 + kDrawValues };

constexpr int64_t kFewestColumns = 4;  // page columns of the smallest shape

int64_t power_of_two(int64_t least) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(least)));
}

DrawWork work_of(const std::vector<models::NewTokens>& batch, const std::vector<TokenDraw>& draws) {
  TESSERA_ASSERT(draws.empty() || draws.size() == batch.size(), "a draw for each sequence, or none");
  DrawWork work;
  for (const TokenDraw& draw : draws) work.add(draw);
  return work;
}

// Returns the rows of next_logits() that are of the last token of each sequence, on `device`.
at::Tensor last_rows(const std::vector<models::NewTokens>& batch, at::Device device) {
  std::vector<int64_t> rows;
  int64_t count = 0;
  for (const models::NewTokens& part : batch) rows.push_back((count += part.num_logits) - 1);
  return copy_to(at::tensor(rows, on_host(at::kLong)), device);
}

}  // namespace

ModelRunner::ModelRunner(models::CausalLM& model, nn::KvCache& cache, bool records)
    : model_(model),
      cache_(cache),
      has_streams_(has_streams(cache.options().device)),
      is_placed_(has_streams_ && model.decodes_alone()),
      records_(records),
      occurred_(cache, model.config().vocab_size) {}

// [Note: what orders a decoding step] Everything on the device runs on its current stream, in the order in
// which the host asked for it. So Step::inputs may be overwritten while an earlier step is still under way:
// the copy runs after that step has read them. The pinned host tensor of a step is another one each time, and
// the host only drops it after asking for the copy: LibTorch gives its memory to nobody else until the copy
// has run. The host therefore waits for nothing here. It waits once, later, for the chosen tokens
// (TokenChoice), which it needs for the next step anyway.

void ModelRunner::write_draws(std::span<int64_t> to, int64_t columns,
                              const std::vector<models::NewTokens>& batch,
                              const std::vector<TokenDraw>& draws) {
  for (size_t i = 0; i < draws.size(); ++i) {
    const bool penalizes = draws[i].options.repetition_penalty != 1.0;
    to[i] = penalizes ? occurred_.row_of(batch[i].sequence) : OccurredTokens::kNobodys;
    size_t place = i;
    for (const double value : draw_values(draws[i]))
      to[place += static_cast<size_t>(columns)] = std::bit_cast<int64_t>(value);
  }
}

void ModelRunner::add_occurred(std::span<const int64_t> rows, std::span<const int64_t> ids) {
  const c10::Device device = cache_.options().device;
  const at::Tensor fed = empty_pinned({2, std::ssize(ids)}, at::kLong, device);
  std::ranges::copy(ids, std::ranges::copy(rows, host_span<int64_t>(fed).begin()).out);
  const at::Tensor there = fed.to(device, /*non_blocking=*/true);
  occurred_.add(there.select(0, 0), there.select(0, 1));
}

std::vector<int64_t> ModelRunner::text_of(const models::NewTokens& fed) const {
  const models::ModelConfig& config = model_.config();
  // The source comes first, and the start of the target behind it.
  const bool has_source = config.is_encoder_decoder && cache_.length(fed.sequence) == std::ssize(fed.ids) + 1;
  return has_source ? std::vector<int64_t>{config.decoder_start_token_id} : fed.ids;
}

void ModelRunner::set_occurred(int64_t sequence, std::span<const int64_t> ids) {
  const c10::InferenceMode inference;
  const int64_t row = occurred_.row_of(sequence);
  occurred_.clear(row);
  if (!ids.empty()) add_occurred(std::vector<int64_t>(ids.size(), row), ids);
}

NextLogits ModelRunner::draw(const at::Tensor& logits, const std::vector<TokenDraw>& draws,
                             const at::Tensor& told, const DrawWork& work) const {
  const at::Tensor values = told.narrow(0, 1, kDrawValues).view(at::kDouble);
  const at::Tensor occurred = work.penalizes ? occurred_.of(told.select(0, 0)) : at::Tensor();
  const at::Tensor changed = change_logits(logits, draws, values, occurred, work);
  if (!has_streams_) return {changed, {}};
  return {logits, draw_tokens(changed, values, work)};
}

NextLogits ModelRunner::prefill(const std::vector<models::NewTokens>& batch,
                                const std::vector<TokenDraw>& draws) {
  const at::Tensor all = model_.next_logits(cache_, batch);
  const c10::InferenceMode inference;
  const bool has_more = all.size(0) > std::ssize(batch);
  const at::Tensor logits = has_more ? all.index_select(0, last_rows(batch, all.device())) : all;
  NextLogits made = choose(batch, draws, logits);
  if (has_more) made.all = all;
  return made;
}

NextLogits ModelRunner::choose(const std::vector<models::NewTokens>& batch,
                               const std::vector<TokenDraw>& draws, const at::Tensor& logits) {
  const DrawWork work = work_of(batch, draws);
  if (!work.is_any()) return {logits, has_streams_ ? likeliest_tokens(logits) : at::Tensor()};
  if (!has_streams_ && !work.changes_logits()) return {logits, {}};
  const c10::Device device = cache_.options().device;
  const at::Tensor told = empty_pinned({kDrawRows, std::ssize(batch)}, at::kLong, device);
  const auto values = host_span<int64_t>(told);
  write_draws(values, std::ssize(batch), batch, draws);
  if (work.penalizes) {
    std::vector<int64_t> rows, ids;
    for (size_t i = 0; i < batch.size(); ++i) {
      if (values[i] == OccurredTokens::kNobodys) continue;
      const std::vector<int64_t> text = text_of(batch[i]);
      rows.insert(rows.end(), text.size(), values[i]);
      ids.insert(ids.end(), text.begin(), text.end());
    }
    add_occurred(rows, ids);
  }
  NextLogits made = draw(logits, draws, told.to(device, /*non_blocking=*/true), work);
  made.unchanged = logits;
  return made;
}

NextLogits ModelRunner::decode(const std::vector<models::NewTokens>& batch,
                               const std::vector<TokenDraw>& draws) {
  if (!is_placed_) return prefill(batch, draws);
  TESSERA_ASSERT(!batch.empty(), "decode takes at least one sequence");
  const c10::InferenceMode inference;
  const DrawWork work = work_of(batch, draws);
  model_.check_new_tokens(cache_, batch);
  std::vector<int64_t> sequences, starts = {0};
  for (const models::NewTokens& part : batch) {
    TESSERA_ASSERT(part.ids.size() == 1, "decode takes one token of every sequence");
    sequences.push_back(part.sequence);
    starts.push_back(starts.back() + 1);
  }
  // May add pages to the cache, and so move it.
  nn::CacheStep own(cache_, sequences, starts);
  // Recordings hold the addresses of the cache's tensors. When these have moved, all recordings are stale.
  if (std::exchange(num_moves_, cache_.num_moves()) != cache_.num_moves()) steps_.clear();
  size_t most = kFewestColumns;
  for (const int64_t sequence : sequences) most = std::max(most, cache_.pages_of(sequence).size());
  const int64_t rows = power_of_two(std::ssize(batch)), columns = power_of_two(static_cast<int64_t>(most));

  // See [Note: what orders a decoding step].
  const c10::Device device = cache_.options().device;
  const at::Tensor inputs = empty_pinned({kPages + columns, rows}, at::kLong, device);
  const auto input = [&, values = host_span<int64_t>(inputs)](int64_t row, size_t of) -> int64_t& {
    return values[static_cast<size_t>(row * rows) + of];
  };
  inputs.zero_();
  // Rows without a sequence, and the columns beyond a sequence's pages, name the page that no sequence owns:
  // a recorded step writes and reads all rows, and there it harms nobody.
  inputs.narrow(0, kPages, columns).fill_(cache_.allocated_pages());
  for (size_t i = 0; i < batch.size(); ++i) {
    input(kIds, i) = batch[i].ids.front();
    input(kPositions, i) = own.positions()[i];
    input(kFirsts, i) = cache_.first_held(sequences[i]);
    int64_t row = kPages;
    for (const size_t page : cache_.pages_of(sequences[i])) input(row++, i) = static_cast<int64_t>(page);
  }
  write_draws(host_span<int64_t>(inputs).subspan(static_cast<size_t>(kDraws * rows)), rows, batch, draws);
  Step& step = steps_[{rows, columns}];
  if (!step.inputs.defined())
    step.inputs = at::empty(inputs.sizes(), inputs.options().device(device).pinned_memory(false));
  step.inputs.copy_(inputs, /*non_blocking=*/true);
  NextLogits made = run_or_replay(step);
  if (work.is_any()) {
    const at::Tensor of_sequences = step.inputs.narrow(1, 0, std::ssize(batch));
    const at::Tensor told = of_sequences.narrow(0, kDraws, kDrawRows);
    if (work.penalizes) occurred_.add(told.select(0, 0), of_sequences.select(0, kIds));
    const at::Tensor logits = made.logits.narrow(0, 0, std::ssize(batch));
    made.chosen = draw(logits, draws, told, work).chosen;
  }
  own.finish();
  return made;
}

NextLogits ModelRunner::run(const Step& step) {
  const at::Tensor positions = step.inputs[kPositions];
  const nn::PlacedStep view(cache_,
                            {.positions = positions,
                             .firsts = step.inputs[kFirsts],
                             .table = step.inputs.narrow(0, kPages, step.inputs.size(0) - kPages).t()});
  const at::Tensor logits = model_.decode(step.inputs[kIds], positions, view);
  return {logits, likeliest_tokens(logits)};
}

NextLogits ModelRunner::run_or_replay(Step& step) {
  // The first step of a shape always runs as it is: libraries and ops then make their handles and workspaces,
  // which they keep, and which must not be made during a recording. The second step records, then replays.
  // All recordings share one pool of memory, so the tensors that one has made are gone with the next replay
  // of another; hence NextLogits are valid until the next call alone.
  if (std::exchange(step.has_run, true) && step.graph == nullptr && records_) {
    const auto other = std::find_if(steps_.begin(), steps_.end(),
                                    [](const auto& entry) { return entry.second.graph != nullptr; });
    step.graph = DeviceGraph::record(
        cache_.options().device, [&] { step.made = run(step); },
        other == steps_.end() ? nullptr : other->second.graph.get());
  }
  if (step.graph == nullptr) return run(step);
  step.graph->replay();
  return step.made;
}

}  // namespace tessera::generation

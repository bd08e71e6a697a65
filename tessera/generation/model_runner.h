// Generation of one token for each of several sequences at a time, by work that the device has recorded.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/device/device_graph.h"
#include "tessera/generation/draw_tokens.h"
#include "tessera/generation/occurred_tokens.h"
#include "tessera/models/common/causal_lm.h"

namespace tessera::generation {

// The result of one step, on the model's device: the logits of the next tokens, [at least as many rows as
// sequences, vocabulary], and the tokens chosen from them, in the form that draw_tokens() gives; `chosen` is
// undefined on a device without streams, where the logits are changed already as the draws ask for it
// (change_logits()). Both are valid until the next call of the ModelRunner that gave
// them.
struct NextLogits {
  at::Tensor logits, chosen;
  // The logits as the model made them; undefined if `logits` are these.
  at::Tensor unchanged = {};
  // The logits after all tokens for which models::NewTokens::num_logits asks, as the model made them;
  // undefined if each sequence asks for one.
  at::Tensor all = {};

  const at::Tensor& raw() const { return unchanged.defined() ? unchanged : logits; }
};

// On a device with streams a decoding step works with tensors that keep their addresses, so that it can be
// recorded: once a step the host copies ids, positions and page numbers into them, and does not wait for the
// copy. The number of sequences is filled up to a power of two of rows, and the pages of each to a power of
// two of columns, so that there are few shapes. The first step of a shape runs as it is, the second one is
// recorded (device/device_graph.h), and later ones are replayed, until the cache grows and its memory gets
// other addresses. If the device cannot record, or `records` is false, the same operations run one by one, to
// the same bits. On devices without streams, and for models whose decode() needs the host or other ranks
// (CausalLM::decodes_alone()), every step is CausalLM::next_logits(). Choosing the likeliest tokens is part
// of the recording; any other choice is made after it, by operations that are not recorded, from numbers that
// were copied along with the ids.
//
// The model and the cache must outlive the ModelRunner, and the model's parameters must keep their addresses.
class ModelRunner {
 public:
  ModelRunner(models::CausalLM& model, nn::KvCache& cache, bool records = true);

  // Feeds each sequence any number of tokens (CausalLM::next_logits()) and chooses its next one. `draws` has
  // one entry for each sequence, or is empty if all take the likeliest token. A repetition penalty counts the
  // tokens that a sequence was fed since it first asked for a penalty, or set_occurred() was called.
  NextLogits prefill(const std::vector<models::NewTokens>& batch, const std::vector<TokenDraw>& draws = {});
  // Does the part of prefill() that chooses, from the logits that the model gave after the last token of each
  // sequence, [sequences, vocabulary]. The tokens of `batch` are those that count as fed by it.
  NextLogits choose(const std::vector<models::NewTokens>& batch, const std::vector<TokenDraw>& draws,
                    const at::Tensor& logits);
  // Sets the tokens that a repetition penalty counts in a sequence: `ids`, and those that come from now on.
  void set_occurred(int64_t sequence, std::span<const int64_t> ids);
  // Does what prefill() does for exactly one token of each sequence, by recorded work where possible.
  NextLogits decode(const std::vector<models::NewTokens>& batch, const std::vector<TokenDraw>& draws = {});

 private:
  // The steps of one shape.
  struct Step {
    at::Tensor inputs;                   // [InputRow, rows of the step] int64, on the device
    NextLogits made;                     // tensors that every replay writes, with the likeliest tokens
    std::unique_ptr<DeviceGraph> graph;  // null until the shape is recorded
    bool has_run = false;
  };

  // Computes a step from step.inputs, by operations that the device runs one by one.
  NextLogits run(const Step& step);
  // Records or replays a step if it may, and calls run() otherwise.
  NextLogits run_or_replay(Step& step);
  // Number of int64 values that tell draw() of one sequence: its row of occurred_, then its draw_values(),
  // whose float64 bits are carried as int64.
  static constexpr int64_t kDrawRows = 1 + kDrawValues;
  // Writes these values of each sequence into its column of `to`, [kDrawRows, columns]; later columns stay.
  void write_draws(std::span<int64_t> to, int64_t columns, const std::vector<models::NewTokens>& batch,
                   const std::vector<TokenDraw>& draws);
  // Returns those of the tokens just fed that count as the text before a drawn one: all of them, but not
  // those of a source.
  std::vector<int64_t> text_of(const models::NewTokens& fed) const;
  // Notes that ids[i] has occurred in row rows[i] of occurred_.
  void add_occurred(std::span<const int64_t> rows, std::span<const int64_t> ids);
  // Chooses tokens (draw_tokens()) from logits, [sequences, vocabulary], changed as the draws ask, and
  // `told`, [kDrawRows, sequences], on the device. On a device without streams it only changes the logits.
  NextLogits draw(const at::Tensor& logits, const std::vector<TokenDraw>& draws, const at::Tensor& told,
                  const DrawWork& work) const;

  models::CausalLM& model_;
  nn::KvCache& cache_;
  const bool has_streams_, is_placed_, records_;
  OccurredTokens occurred_;
  int64_t num_moves_ = 0;                              // KvCache::num_moves() at the last step
  std::map<std::pair<int64_t, int64_t>, Step> steps_;  // by numbers of rows and of page columns
};

}  // namespace tessera::generation

// Text generation token by token, many sequences at once.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "tessera/models/common/causal_lm.h"
#include "tessera/models/common/decoder.h"
#include "tessera/models/common/sampling.h"

namespace tessera::models {

enum class FinishReason { Stop, Length, Callback };

struct GenerateOptions {
  SamplingOptions sampling;
  int64_t max_new_tokens = 256;
  // Ids that end the text; they are not part of the result. Empty = the model's eos_token_ids.
  std::vector<int64_t> stop_ids;
  // Told every new token as it comes (stop ids excepted); false ends the generation. Must not call a
  // Generator.
  std::function<bool(int64_t)> on_token;
};

struct Generation {
  std::vector<int64_t> token_ids;  // the new ones alone
  FinishReason reason = FinishReason::Length;
};

struct GenerationRequest {
  std::vector<int64_t> prompt;
  GenerateOptions options;
};

struct GeneratorOptions {
  int64_t max_batch = 8;         // sequences that are worked on at once
  int64_t max_cache_tokens = 0;  // prompts and answers of those together; 0 = no bound
  // Prompts are read together up to this many tokens, a longer one alone. 1: each alone, so that a result is
  // the same to the last bit in any batch of at most ops::kSmallLinearRows; else products of several sizes
  // round differently.
  int64_t max_prefill_tokens = 1024;
  bool records = true;  // decoding steps, where the device can (Decoder)
};

// Where the time went.
struct GenerationTimes {
  double prefill_s = 0.0, decode_s = 0.0;
  int64_t prefill_tokens = 0;  // of prompts
  int64_t decode_tokens = 0;   // new ones, without each sequence's first, which comes out of its prefill

  // Those of another Generator that runs at the same time: the tokens of both, in the longer times.
  void join(const GenerationTimes& other);
};

// Continuous batching: requests may be added at any time, wait for a place, and leave as soon as they are
// finished; one token of every running sequence is made at a time. A request's result does not depend on what
// else is asked, but for the roundings of its prompt's products (see max_prefill_tokens). One thread uses a
// Generator; the model must outlive it and should be in eval mode.
class Generator {
 public:
  explicit Generator(CausalLM& model, const GeneratorOptions& options = {});
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  // Queues a request; returns its number. Throws Error(Config) for sampling options outside their ranges, an
  // empty prompt, or a request larger than the whole cache, and Error(Model) for a prompt beyond the model's
  // longest document.
  int64_t add(GenerationRequest request);
  // Lets in waiting requests while there is room and makes one token of every running sequence. False if
  // there was nothing to do. An exception of a callback or of the model ends the request that it came from,
  // where one request can be named, and leaves the others as they were.
  bool step();
  // Ends a request wherever it stands, also from a callback; its result has the reason Callback.
  void cancel(int64_t request);
  // The result, once; nothing while the request is waiting or running.
  std::optional<Generation> take(int64_t request);

  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  const GenerationTimes& times() const { return times_; }
  const nn::KvCache& cache() const { return cache_; }

 private:
  struct Running {
    int64_t request = 0, sequence = 0;
    int64_t budget = 0;  // new tokens at most
    int64_t pages = 0;   // that it may come to need
    std::vector<int64_t> prompt;
    std::vector<int64_t> occurred;  // ids so far, where repetition is penalized
    GenerateOptions options;
    Generation result;

    TokenDraw next_draw() const { return {options.sampling, result.token_ids.size()}; }
  };

  // Whether the next waiting request may come in behind prompts of `tokens_before` tokens.
  bool has_room(int64_t tokens_before) const;
  // Reads the prompts of the next waiting requests; returns whether there were any.
  bool admit();
  // Gives each sequence of the batch its next token, and keeps those that go on running. Returns the
  // exception of a callback, if any.
  std::exception_ptr take_tokens(std::vector<Running> batch, const NextLogits& logits);
  // Chooses the next token of a sequence, a row of the choice; returns whether it goes on.
  bool accept(Running& running, const TokenChoice& choice, int64_t row) const;
  void finish(Running& running);

  CausalLM& model_;
  GeneratorOptions options_;
  nn::KvCache cache_;
  Decoder decoder_;
  int64_t next_ = 0, reserved_pages_ = 0;
  std::deque<Running> waiting_;
  std::vector<Running> running_;
  std::map<int64_t, Generation> finished_;
  bool is_taking_ = false;       // tokens are handed to callbacks now,
  std::set<int64_t> cancelled_;  // which ended these requests
  GenerationTimes times_;
};

// Continues one prompt. Stops before the model's longest document would be exceeded. Errors as
// Generator::add.
Generation generate(CausalLM& model, const std::vector<int64_t>& prompt, const GenerateOptions& options);

}  // namespace tessera::models

// Text generation token by token, many sequences at once.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "tessera/generation/continuation.h"
#include "tessera/generation/decoder.h"
#include "tessera/models/common/causal_lm.h"

namespace tessera::generation {

struct GeneratorOptions {
  int64_t max_batch = 8;         // the most sequences that are worked on at once
  int64_t max_cache_tokens = 0;  // the most tokens of their prompts and answers together; 0 = no bound
  // Prompts are read together up to this many tokens; a longer one is read alone. With 1 each is read alone,
  // and a result is the same to the last bit in any batch of at most ops::kSmallLinearRows; otherwise
  // products of several sizes round differently.
  int64_t max_prefill_tokens = 1024;
  bool records = true;  // whether decoding steps are recorded, if the device can (Decoder)
};

// The time that was spent on prompts and on new tokens, in seconds, and the number of tokens in it.
struct GenerationTimes {
  double prefill_s = 0.0, decode_s = 0.0;
  int64_t prefill_tokens = 0;  // tokens of prompts
  int64_t decode_tokens = 0;   // new tokens, without each sequence's first, which comes out of its prefill

  // Adds the times of another Generator that runs at the same time: tokens add up, and of times the longer
  // ones count.
  void join(const GenerationTimes& other);
};

// Continuous batching: requests may be added at any time, wait for a place, and leave as soon as they are
// finished; each step makes one token of every running sequence. A request's result does not depend on the
// other requests, except for the rounding of its prompt's products (see max_prefill_tokens). One thread uses
// a Generator; the model must outlive it and should be in eval mode. Collective if the model's next_logits()
// is: all ranks then make the same calls.
class Generator {
 public:
  explicit Generator(models::CausalLM& model, const GeneratorOptions& options = {});
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  // Queues a request and returns its number. Throws what Continuation's constructor throws, and Error(Config)
  // for a request larger than the whole cache.
  int64_t add(GenerationRequest request);
  // Admits waiting requests while there is room, and makes one token of every running sequence. Returns false
  // if there was nothing to do. May throw what a callback or the model throws. A callback's exception, and an
  // Error(Numerics) for a request's logits, end that request; an exception while prompts are read ends the
  // requests whose prompts these are. All other requests stay as they were.
  bool step();
  // Ends a request, whether it waits or runs, also from a callback; its result has the reason Callback.
  void cancel(int64_t request);
  // Returns the result of a finished request, once; nothing while the request is waiting or running.
  std::optional<Generation> take(int64_t request);

  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  const GenerationTimes& times() const { return times_; }
  const nn::KvCache& cache() const { return cache_; }

 private:
  struct Running : Continuation {
    using Continuation::Continuation;
    int64_t request = 0, sequence = 0;
    int64_t pages = 0;  // the most pages of the cache that it may come to need
  };

  // Tells whether the next waiting request may be admitted beside prompts of `tokens_before` tokens.
  bool has_room(int64_t tokens_before) const;
  // Reads the prompts of the next waiting requests; returns whether there were any.
  bool admit();
  // Gives each sequence of the batch its next token, moves those that go on to running_ and finishes the
  // others. Returns the last exception that ended a request, if any.
  std::exception_ptr take_tokens(std::vector<Running> batch, const NextLogits& logits);
  // Frees the sequence's part of the cache and stores its result.
  void finish(Running& running);

  models::CausalLM& model_;
  GeneratorOptions options_;
  nn::KvCache cache_;
  Decoder decoder_;
  // Number of the next request, and the sum of Running::pages over all sequences in the cache.
  int64_t next_ = 0, reserved_pages_ = 0;
  std::deque<Running> waiting_;
  std::vector<Running> running_;
  std::map<int64_t, Generation> finished_;
  bool is_taking_ = false;       // whether take_tokens() is handing tokens to callbacks
  std::set<int64_t> cancelled_;  // requests that were cancelled meanwhile
  GenerationTimes times_;
};

// Continues one prompt. Stops before the sequence would become longer than the model can generate. Throws
// what Generator::add() and Generator::step() throw.
Generation generate(models::CausalLM& model, const std::vector<int64_t>& prompt,
                    const GenerateOptions& options);

}  // namespace tessera::generation

// Answers to prompts that each begin like the one before, as those of a conversation do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/generation/continuation.h"
#include "tessera/generation/generate.h"
#include "tessera/generation/model_runner.h"
#include "tessera/parallel/device_mesh.h"

namespace tessera::generation {

struct SessionOptions {
  int64_t max_draft_tokens = 0;  // GeneratorOptions::max_draft_tokens
  CacheType cache_type = CacheType::Model;
};

// Keeps the keys and values of the last prompt and its answer. Of a new prompt it feeds the model only what
// lies behind the longest beginning that both have in common. The answer is that of generate() to the whole
// prompt but for rounding, since products of the prompt have other sizes. With drafts, the common beginning
// ends at a page of the cache. One thread uses a Session.
class Session {
 public:
  // The model must outlive the Session and should be in eval mode. `mesh` is that of the ranks which share
  // it.
  explicit Session(models::CausalLM& model,
                   const parallel::DeviceMesh& mesh = {comm::Communicator::single(), {}},
                   const SessionOptions& options = {});
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Continues a prompt as generate() does. If it throws, the session is as it was, where the prompt or the
  // options are at fault, or empty. Collective if the model's next_logits() is.
  Generation answer(const std::vector<int64_t>& prompt, const GenerateOptions& options);
  // Forgets everything.
  void reset();

  // Number of the last prompt's tokens that the model was fed; all others were in the cache.
  int64_t num_fed() const { return num_fed_; }
  const nn::KvCache& cache() const { return generator_ ? generator_->cache() : cache_; }
  // Returns the counts of drafts.
  GeneratorCounts counts() const { return generator_ ? generator_->counts() : GeneratorCounts(); }

 private:
  // Makes the generator of a session with drafts.
  void start_generator();
  Generation generate_with_drafts(const std::vector<int64_t>& prompt, const GenerateOptions& options);
  // Leaves in the cache what can be kept for a prompt: less than all of it, since the logits of its last
  // token are needed. Nothing is kept if layers with a sliding window have dropped what the next token sees.
  void keep_beginning_of(const std::vector<int64_t>& prompt);
  void make(Continuation& text);

  models::CausalLM& model_;
  const SessionOptions options_;
  std::shared_ptr<comm::Communicator> stages_;  // the ranks that hold the other layers
  nn::KvCache cache_;
  ModelRunner runner_;
  int64_t sequence_;
  std::vector<int64_t> ids_;  // the tokens that the cache holds
  int64_t num_fed_ = 0;
  std::optional<Generator> generator_;  // of a session with drafts, which does not use the other members
};

}  // namespace tessera::generation

// The engine behind a server: a Generator on a thread of its own, which requests join and leave at every
// step. Between two steps it makes embeddings of some texts. A classifier or an encoder makes those alone.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/generation/embed_texts.h"
#include "tessera/generation/generate.h"
#include "tessera/serving/engine.h"

namespace tessera::generation {

struct ServingEngineOptions {
  int64_t max_batch = 32;             // answers that are worked on at once
  int64_t max_waiting = 1024;         // answers that may wait besides
  int64_t max_cache_tokens = 0;       // tokens of all prompts and answers; 0 = default_cache_tokens()
  int64_t max_prefill_tokens = 1024;  // GeneratorOptions::max_prefill_tokens
  int64_t max_part_tokens = 512;      // GeneratorOptions::max_part_tokens
  int64_t max_context = 0;            // the most tokens of a prompt; 0 = what the model takes
  bool has_prefix_cache = true;       // GeneratorOptions::shares_pages
  EmbeddingOptions embeddings = {};   // how texts are embedded, or why not
};

// Returns how many tokens a cache of the model may hold: as many as fit into a quarter of the memory that is
// free on the model's device, but at least `context`.
int64_t default_cache_tokens(const models::CausalLM& model, int64_t context);

class ServingEngine : public serving::Engine {
 public:
  // The model must outlive the engine and be whole in this process.
  ServingEngine(models::CausalLM& model, const ServingEngineOptions& options);
  // Ends all answers, as cancelled.
  ~ServingEngine() override;

  serving::EngineFacts facts() const override;
  serving::EngineState state() const override;
  std::optional<std::vector<int64_t>> submit(std::vector<serving::EngineRequest> requests) override;
  std::optional<int64_t> embed(serving::EmbeddingRequest request) override;
  void cancel(int64_t number) override;

 private:
  class Worker;
  std::unique_ptr<Worker> worker_;
};

}  // namespace tessera::generation

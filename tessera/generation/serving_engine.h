// The engine behind a server: a Generator on a thread of its own, which requests join and leave at every
// step. Between two steps it makes embeddings of some texts. A classifier or an encoder makes those alone.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>

#include "tessera/generation/embed_texts.h"
#include "tessera/generation/generate.h"
#include "tessera/generation/rank_orders.h"
#include "tessera/serving/engine.h"

namespace tessera::generation {

struct ServingEngineOptions {
  int64_t max_batch = 32;             // answers that are worked on at once
  int64_t max_waiting = 1024;         // answers that may wait besides
  int64_t max_cache_tokens = 0;       // tokens of all prompts and answers; 0 = default_cache_tokens()
  int64_t max_prefill_tokens = 1024;  // GeneratorOptions::max_prefill_tokens
  int64_t max_part_tokens = 512;      // GeneratorOptions::max_part_tokens
  int64_t whole_parts = 1;            // GeneratorOptions::whole_parts, unless each prompt is read alone
  int64_t max_context = 0;            // the most tokens of a prompt; 0 = what the model takes
  bool has_prefix_cache = true;       // GeneratorOptions::shares_pages
  int64_t max_draft_tokens = 0;       // GeneratorOptions::max_draft_tokens
  CacheType cache_type = CacheType::Model;
  EmbeddingOptions embeddings = {};  // how texts are embedded, or why not
  // Ranks that share the model have orders: the engine of the first one tells the others what it does
  // (ServingFollower). Null for a model that is whole in this process.
  std::shared_ptr<RankOrders> orders = nullptr;
  // Called, on the engine's thread, when the model has failed and other ranks may be elsewhere in its work:
  // nothing can go on. Must be set with `orders`, and end the job.
  std::function<void(const std::exception&)> on_broken = nullptr;
};

// Returns how many tokens a cache of the model may hold: as many as fit into a quarter of the memory that is
// free on the model's device, but at least `context`. Throws what cache_options() throws.
int64_t default_cache_tokens(const models::CausalLM& model, CacheType type, int64_t context);

// Returns the facts of an engine with these options. With `orders` it is collective, and the cache is as
// small as that of any rank; throws Error(Config, "PARALLELISM") if the parts of the model on several ranks
// keep their caches in different ways.
serving::EngineFacts engine_facts(const models::CausalLM& model, const ServingEngineOptions& options);
// Returns the options of the Generator of such an engine, the same on all ranks.
GeneratorOptions generator_options(const serving::EngineFacts& facts, const ServingEngineOptions& options);

class ServingEngine : public serving::Engine {
 public:
  // The model must outlive the engine. Collective if there are orders.
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

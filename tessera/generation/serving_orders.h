// Keeps the ranks that share a served model in step: the first one, which has the server, tells each thing
// that its engine does with the model, and the others do it too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/generation/serving_engine.h"

namespace tessera::generation {

// Says what comes to the requests before a step of the Generator.
struct StepOrder {
  std::vector<serving::EngineRequest> add;
  std::vector<int64_t> cancel;  // the Generator's numbers of the requests
};

// These return the messages (RankOrders) for a step, for a pass that embeds texts with an adapter, and for
// the end.
std::string step_order(const StepOrder& step);
std::string embed_order(const std::vector<std::vector<int64_t>>& texts, int64_t adapter);
std::string end_order();
// Returns the message that carries numbers, GeneratorOptions::tell.
std::string text_of(const std::vector<int64_t>& numbers);

// Does with this rank's part of the model what the ServingEngine of the first rank does with its own, until
// that ends. `options` are those of the engine; they have orders. Throws what the model throws, after which
// the job must end. Collective.
void follow_serving_engine(models::CausalLM& model, const ServingEngineOptions& options);

}  // namespace tessera::generation

#include "tessera/generation/serving_orders.h"

#include <cstring>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"

namespace tessera::generation {
namespace {

using Json = nlohmann::json;

std::string as_message(const Json& order) {
  std::string message;
  Json::to_cbor(order, message);
  return message;
}

std::vector<int64_t> numbers_of(const std::string& text) {
  std::vector<int64_t> numbers(text.size() / sizeof(int64_t));
  std::memcpy(numbers.data(), text.data(), numbers.size() * sizeof(int64_t));
  return numbers;
}

// Makes the request of an order, with all that decides about passes of the model, and nothing else: the first
// rank chooses the tokens.
GenerationRequest heard_request(const Json& order) {
  GenerationRequest request{order.at("prompt").get<std::vector<int64_t>>(), {}};
  request.options.max_new_tokens = order.at("most");
  request.options.cache_salt = order.at("salt");
  request.options.adapter = order.at("adapter");
  if (order.at("scores")) request.options.on_prompt_log_probs = [](const auto&) {};
  return request;
}

void make_step(Generator& generator, const Json& order) {
  for (const Json& request : order.at("add")) generator.take(generator.add(heard_request(request)));
  for (const Json& number : order.at("cancel")) {
    generator.cancel(number);
    generator.take(number);
  }
  generator.step();
}

}  // namespace

std::string step_order(const StepOrder& step) {
  Json add = Json::array();
  for (const serving::EngineRequest& request : step.add) {
    add.push_back({{"prompt", request.prompt},
                   {"most", request.max_new_tokens},
                   {"salt", request.cache_salt},
                   {"adapter", request.adapter},
                   {"scores", request.scores_prompt}});
  }
  return as_message({{"add", std::move(add)}, {"cancel", step.cancel}});
}

std::string embed_order(const std::vector<std::vector<int64_t>>& texts, int64_t adapter) {
  return as_message({{"embed", texts}, {"adapter", adapter}});
}

std::string end_order() { return as_message({{"end", true}}); }

std::string text_of(const std::vector<int64_t>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int64_t)};
}

void follow_serving_engine(models::CausalLM& model, const ServingEngineOptions& options) {
  RankOrders& orders = *options.orders;
  const serving::EngineFacts facts = engine_facts(model, options);
  GeneratorOptions of_generator = generator_options(facts, options);
  of_generator.hear = [&orders] { return numbers_of(orders.hear()); };
  std::optional<Generator> generator;
  if (facts.no_answers.empty()) generator.emplace(model, of_generator);
  while (true) {
    const Json order = Json::from_cbor(orders.hear());
    if (order.contains("end")) return;
    if (order.contains("embed")) {
      embed_texts(model, order.at("embed"), options.embeddings.pooling, order.at("adapter"));
    } else {
      make_step(generator.value(), order);
    }
  }
}

}  // namespace tessera::generation

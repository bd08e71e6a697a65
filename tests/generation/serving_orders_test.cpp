// A served model on several ranks: answers are those of one process, whatever ends them.
#include "tessera/generation/serving_orders.h"

#include <gtest/gtest.h>

#include "tessera/generation/inference_ranks.h"
#include "tessera/generation/load_for_inference.h"

#include "tests/generation/kept_answer.h"
#include "tests/models/reference_models.h"
#include "tests/peft/made_adapters.h"
#include "tests/testing/mpi_world.h"
#include "tests/train/train_testing.h"

namespace tessera::generation {
namespace {

struct Layout {
  const char* family;
  int64_t tp, pp;
};

// Writes two adapters, of which one has biases.
void write_adapters(const std::string& family, const std::vector<std::string>& folders) {
  peft::LoraOptions options{.rank = 3, .alpha = 7.0, .start = "true"};
  options.target_modules = {"q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"};
  peft::write_adapter(folders[0], family, options);
  options.has_bias = true;
  peft::write_adapter(folders[1], family, options);
}

std::shared_ptr<models::CausalLM> load(const std::string& family, const parallel::DeviceMesh& mesh,
                                       const std::vector<std::string>& adapters) {
  const auto model =
      load_for_inference(models::reference_folder(family), "", at::TensorOptions(kHost).dtype(at::kDouble),
                         mesh, {.adapters = true});
  add_adapters(*model, models::reference_folder(family), adapters);
  return model;
}

// A regular expression over the tokens of a vocabulary, each of which stands for one letter.
std::shared_ptr<text::Constraint> constraint_on(int64_t vocabulary, const std::string& regex) {
  std::vector<std::string> letters;
  for (int64_t id = 0; id < vocabulary; ++id) letters.emplace_back(1, static_cast<char>('!' + id % 90));
  return std::make_shared<text::Constraint>(
      text::ConstraintSource{text::ConstraintSource::Kind::Regex, regex},
      std::make_shared<const text::TokenTrie>(letters));
}

// Asks an engine on the first rank for answers that end in all ways, more than its cache has room for.
void expect_answers(ServingEngine& engine, models::CausalLM& whole, bool makes_embeddings) {
  const int64_t vocabulary = whole.config().vocab_size;
  std::vector<std::shared_ptr<Receiver>> receivers;
  std::vector<serving::EngineRequest> requests;
  std::vector<Generation> wanted;
  for (int64_t i = 0; i < 6; ++i) {
    std::vector<int64_t> prompt;
    for (int64_t t = 0; t < 5 + 9 * (i % 5); ++t) prompt.push_back((3 * t + i) % vocabulary);
    receivers.push_back(std::make_shared<Receiver>());
    requests.push_back(request_for(receivers.back(), prompt, 80));
    serving::EngineRequest& request = requests.back();
    GenerateOptions alone = options_like(80);
    request.adapter = alone.adapter = i % 3;
    if (i == 1) receivers.back()->most = alone.max_new_tokens = 7;
    if (i == 2) request.constraint = alone.constraint = constraint_on(vocabulary, "[!-+]{3}");
    if (i == 3) request.scores_prompt = request.wants_log_probs = true;
    if (i == 4) request.stop_ids = alone.stop_ids = {2, 3, 5};
    wanted.push_back(generate(whole, prompt, alone));
  }
  const auto numbers = engine.submit(std::move(requests));
  ASSERT_TRUE(numbers.has_value());
  engine.cancel(numbers->back());
  for (size_t i = 0; i < receivers.size(); ++i) {
    receivers[i]->wait();
    const bool is_cancelled = i + 1 == receivers.size();
    EXPECT_TRUE(is_cancelled || receivers[i]->ids == wanted[i].token_ids) << "answer " << i;
  }
  EXPECT_EQ(receivers[3]->num_of_prompt, 5U + 27U - 1U);
  EXPECT_EQ(receivers.back()->reason, serving::EndReason::Cancelled);
  // Answers in a short context are too short to need each other's pages.
  EXPECT_EQ(engine.state().preemptions > 0, engine.facts().context > 100);
  EXPECT_EQ(engine.facts().no_embeddings.empty(), makes_embeddings);
}

void serve_on(const Layout& layout) {
  SCOPED_TRACE(std::string(layout.family) + ", tp " + std::to_string(layout.tp) + ", pp " +
               std::to_string(layout.pp));
  const auto world = testing::world();
  const parallel::DeviceMesh mesh(world, inference_dims({layout.tp, layout.pp, 1, false}, world->size()));
  const testing::SharedFolder folder(world);
  const std::vector<std::string> adapters = {folder / "first", folder / "second"};
  if (folder.is_owner()) write_adapters(layout.family, adapters);
  world->barrier();
  const auto model = load(layout.family, mesh, adapters);
  ServingEngineOptions options{.max_batch = 4, .max_cache_tokens = 128, .max_part_tokens = 16};
  options.orders = std::make_shared<RankOrders>(*world);
  options.on_broken = [](const std::exception& error) { FAIL() << error.what(); };
  if (layout.pp > 1) options.embeddings.refusal = "its layers lie on several ranks";
  if (world->rank() > 0) return follow_serving_engine(*model, options);
  ServingEngine engine(*model, options);
  expect_answers(engine, *load(layout.family, {comm::Communicator::single(), {}}, adapters), layout.pp == 1);
}

TEST(ServingOrders, RanksServeAsOneProcess) {
  const int64_t ranks = testing::world()->size();
  if (ranks == 2) serve_on({"llama3", 2, 1});
  if (ranks == 3) {
    serve_on({"llama2", 3, 1});
    serve_on({"llama3", 1, 3});
  }
}

}  // namespace
}  // namespace tessera::generation

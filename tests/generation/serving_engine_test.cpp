#include "tessera/generation/serving_engine.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "tessera/peft/row_adapters.h"

#include "tests/generation/kept_answer.h"
#include "tests/generation/letters_constraint.h"
#include "tests/models/reference_models.h"
#include "tests/models/small_model.h"
#include "tests/peft/made_adapters.h"
#include "tests/testing/temp_folder.h"

namespace tessera::generation {
namespace {

using serving::EndReason;

TEST(ServingEngine, AnswersAreThoseOfAGenerator) {
  const auto model = models::small_model();
  ServingEngine engine(*model, {.max_batch = 3, .max_part_tokens = 16});
  const std::vector<std::vector<int64_t>> prompts = {
      {1, 2}, std::vector<int64_t>(50, 4), {3}, {9, 9, 8}, {5}};
  std::vector<std::shared_ptr<Receiver>> receivers;
  std::vector<serving::EngineRequest> requests;
  for (const auto& prompt : prompts) {
    receivers.push_back(std::make_shared<Receiver>());
    requests.push_back(request_for(receivers.back(), prompt, 20));
    requests.back().wants_log_probs = requests.back().scores_prompt = true;
  }
  receivers[3]->most = 4;
  ASSERT_TRUE(engine.submit(std::move(requests)).has_value());
  for (size_t i = 0; i < prompts.size(); ++i) {
    receivers[i]->wait();
    const bool stops = i == 3;
    EXPECT_EQ(receivers[i]->reason, stops ? EndReason::Stop : EndReason::Length);
    EXPECT_EQ(receivers[i]->ids, generate(*model, prompts[i], options_like(stops ? 4 : 20)).token_ids);
    EXPECT_EQ(receivers[i]->num_of_prompt, prompts[i].size() - 1);
    EXPECT_EQ(receivers[i]->num_log_probs, receivers[i]->num_tokens);
  }
  // A request that cannot be added ends at once, and no other one with it.
  const auto bad = std::make_shared<Receiver>();
  ASSERT_TRUE(engine.submit({request_for(bad, {31}, 5)}).has_value());
  bad->wait();
  EXPECT_EQ(bad->reason, EndReason::Failed);
  EXPECT_NE(bad->problem.find("vocabulary"), std::string::npos) << bad->problem;
  // So does one whose constraint cannot be followed to its end, for which the request is at fault.
  const auto refused = std::make_shared<Receiver>();
  serving::EngineRequest request = request_for(refused, {1}, 5);
  request.constraint = letters_constraint("A!");
  ASSERT_TRUE(engine.submit({request}).has_value());
  refused->wait();
  EXPECT_EQ(refused->reason, EndReason::Refused);
  EXPECT_EQ(refused->ids.size(), 1u);
  EXPECT_NE(refused->problem.find("CONSTRAINT"), std::string::npos) << refused->problem;
}

TEST(ServingEngine, PenaltiesAndBiasesReachTheGenerator) {
  const auto model = models::small_model();
  ServingEngine engine(*model, {});
  const auto biased = std::make_shared<Receiver>();
  serving::EngineRequest request = request_for(biased, {1, 2}, 20);
  GenerateOptions like = options_like(20);
  request.stop_ids = like.stop_ids = {3, 4, 5, 6, 7};
  request.sampling.presence_penalty = like.sampling.presence_penalty = 0.5;
  request.sampling.frequency_penalty = like.sampling.frequency_penalty = 1.5;
  request.sampling.logit_bias = {{11, 5.0}};
  request.sampling.min_new_tokens = 9;
  request.sampling.bad_words = {{12}};
  like.biases = {{{11, 5.0}}, 9, {{12}}};
  ASSERT_TRUE(engine.submit({request}).has_value());
  biased->wait();
  EXPECT_EQ(biased->ids, generate(*model, {1, 2}, like).token_ids);
  EXPECT_GE(biased->ids.size(), 9U);
  like.biases = {};
  EXPECT_NE(biased->ids, generate(*model, {1, 2}, like).token_ids);
}

// Makes two adapters of other layers, with random values.
std::shared_ptr<nn::AdapterRows> two_adapters(models::CausalLM& model, const std::string& folder) {
  std::vector<std::string> folders;
  for (const double alpha : {6.0, -9.0}) {
    folders.push_back(folder + "/" + std::to_string(folders.size()));
    peft::LoraOptions options{.rank = 2, .alpha = std::abs(alpha), .start = "false"};
    options.target_modules = {alpha > 0 ? "q_proj" : "down_proj"};
    const auto adapted = models::small_model();
    const auto targets = peft::apply_lora(*adapted, options);
    checkpoint::materialize(*adapted, *models::random_source(*adapted, 5));
    peft::save_adapter(folders.back(), *adapted, options, targets);
  }
  return peft::apply_row_adapters(model, model, folders, model.tied_modules(), kHost);
}

TEST(ServingEngine, RequestsChooseTheirAdapters) {
  const testing::TempFolder folder;
  const auto model = models::small_model();
  model->set_adapter_rows(two_adapters(*model, folder.path()));
  model->eval();
  ServingEngine engine(*model, {.max_batch = 4, .max_part_tokens = 32});
  const std::vector<int64_t> prompt(70, 4);
  std::vector<std::vector<int64_t>> answers;
  // In the second turn pages of the prompt are known, of each adapter its own.
  for (const int64_t known : {0, 64}) {
    std::vector<std::shared_ptr<Receiver>> receivers;
    std::vector<serving::EngineRequest> requests;
    for (const int64_t adapter : {0, 1, 2}) {
      receivers.push_back(std::make_shared<Receiver>());
      requests.push_back(request_for(receivers.back(), prompt, 20));
      requests.back().adapter = adapter;
    }
    ASSERT_TRUE(engine.submit(std::move(requests)).has_value());
    // The engine's thread uses the model until the last answer has ended.
    for (const auto& receiver : receivers) receiver->wait();
    for (size_t i = 0; i < receivers.size(); ++i) {
      EXPECT_EQ(receivers[i]->num_cached, known);
      GenerateOptions options = options_like(20);
      options.adapter = static_cast<int64_t>(i);
      EXPECT_EQ(receivers[i]->ids, generate(*model, prompt, options).token_ids) << "adapter " << i;
      answers.push_back(receivers[i]->ids);
    }
  }
  EXPECT_NE(answers[0], answers[1]);
  EXPECT_NE(answers[0], answers[2]);
  EXPECT_NE(answers[1], answers[2]);
}

TEST(ServingEngine, TellsWhatItsCacheHadAndWhatItPutBack) {
  const auto model = models::small_model();
  for (const bool has_prefix_cache : {true, false}) {
    ServingEngine engine(*model,
                         {.max_batch = 2, .max_cache_tokens = 192, .has_prefix_cache = has_prefix_cache});
    const std::vector<int64_t> prompt(70, 4);
    for (int i = 0; i < 2; ++i) {
      const auto receiver = std::make_shared<Receiver>();
      ASSERT_TRUE(engine.submit({request_for(receiver, prompt, 20)}).has_value());
      receiver->wait();
      EXPECT_EQ(receiver->num_cached, has_prefix_cache && i == 1 ? 64 : 0);
      EXPECT_EQ(receiver->ids, generate(*model, prompt, options_like(20)).token_ids);
    }
    // Both together need more than the cache has.
    const auto first = std::make_shared<Receiver>(), second = std::make_shared<Receiver>();
    ASSERT_TRUE(engine.submit({request_for(first, {1}, 120), request_for(second, {2}, 120)}).has_value());
    for (const auto& each : {first, second}) each->wait();
    EXPECT_EQ(second->ids, generate(*model, {2}, options_like(120)).token_ids);
    // The state is told behind the step that ends an answer.
    while (engine.state().running + engine.state().waiting > 0) std::this_thread::yield();
    const serving::EngineState state = engine.state();
    EXPECT_EQ(state.preemptions, 1);
    EXPECT_EQ(state.prompt_tokens, 142);
    EXPECT_EQ(state.new_tokens, 280);
    EXPECT_EQ(state.looked_up_tokens, has_prefix_cache ? 142 : 0);
    EXPECT_EQ(state.found_tokens, has_prefix_cache ? 64 : 0);
    EXPECT_EQ(state.cache_usage, 0.0);
  }
}

TEST(ServingEngine, TellsWhatBecameOfDrafts) {
  const auto model = models::small_model();
  ServingEngine engine(*model, {.max_draft_tokens = 4});
  const std::vector<int64_t> prompt(20, 4);
  const auto receiver = std::make_shared<Receiver>();
  serving::EngineRequest request = request_for(receiver, prompt, 60);
  request.sampling.temperature = 0.0;
  ASSERT_TRUE(engine.submit({request}).has_value());
  receiver->wait();
  GenerateOptions like = options_like(60);
  like.sampling = {};
  EXPECT_EQ(receiver->ids, generate(*model, prompt, like).token_ids);
  while (engine.state().running > 0) std::this_thread::yield();
  const serving::EngineState state = engine.state();
  EXPECT_GT(state.accepted_tokens, 10);
  EXPECT_GE(state.drafted_tokens, state.accepted_tokens);
  EXPECT_GE(4 * state.drafts, state.drafted_tokens);
}

class Vectors : public serving::EmbeddingReceiver {
 public:
  void embedding(std::vector<float> values) override { all.push_back(std::move(values)); }
  void end(EndReason why, const std::string& what) override {
    reason = why;
    problem = what;
    has_ended = true;
  }
  void wait() const {
    for (int i = 0; i < 6000 && !has_ended; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_TRUE(has_ended);
  }

  std::vector<std::vector<float>> all;
  std::atomic<bool> has_ended = false;
  EndReason reason = EndReason::Failed;
  std::string problem;
};

TEST(ServingEngine, MakesEmbeddingsBesideAnswers) {
  const auto model = models::small_model();
  ServingEngine engine(*model, {.max_prefill_tokens = 8, .embeddings = {.pooling = Pooling::Mean}});
  EXPECT_EQ(engine.facts().embedding_size, 12);
  const auto answer = std::make_shared<Receiver>();
  ASSERT_TRUE(engine.submit({request_for(answer, {1}, 400)}).has_value());
  // Passes take some of one request, and of two.
  const std::vector<std::vector<int64_t>> texts = {
      {1, 2, 3}, {4, 5, 6, 7, 8, 9}, {2}, std::vector<int64_t>(20, 3)};
  const auto plain = std::make_shared<Vectors>(), normed = std::make_shared<Vectors>(),
             bad = std::make_shared<Vectors>();
  ASSERT_TRUE(engine.embed({texts, false, plain}).has_value());
  ASSERT_TRUE(engine.embed({texts, true, normed}).has_value());
  ASSERT_TRUE(engine.embed({{{3}, {31}}, true, bad}).has_value());
  for (const auto& each : {plain, normed, bad}) each->wait();
  EXPECT_EQ(bad->reason, EndReason::Failed);
  EXPECT_NE(bad->problem.find("vocabulary"), std::string::npos) << bad->problem;
  for (size_t i = 0; i < texts.size(); ++i) {
    const at::Tensor want = embed_texts(*model, {texts[i]}, Pooling::Mean)[0];
    const at::Tensor unit = want / want.norm();
    ASSERT_EQ(plain->all.size(), texts.size());
    ASSERT_EQ(normed->all.size(), texts.size());
    for (size_t k = 0; k < 12; ++k) {
      EXPECT_NEAR(plain->all[i][k], want[static_cast<int64_t>(k)].item<double>(), 1e-6);
      EXPECT_NEAR(normed->all[i][k], unit[static_cast<int64_t>(k)].item<double>(), 1e-7);
    }
  }
  answer->wait();
  EXPECT_EQ(answer->ids, generate(*model, {1}, options_like(400)).token_ids);
}

TEST(ServingEngine, AnEncoderMakesEmbeddingsAlone) {
  const models::BaseModel base = models::BaseModel::open(models::reference_folder("../classifiers/bert"));
  const auto model = models::build_model(base.config(), at::kDouble);
  models::load_weights(*model, base.tensors());
  const auto vectors = std::make_shared<Vectors>(), late = std::make_shared<Vectors>();
  {
    ServingEngine engine(*model, {.max_batch = 1, .max_waiting = 0});
    EXPECT_NE(engine.facts().no_answers, "");
    EXPECT_EQ(engine.facts().context, 16);
    ASSERT_TRUE(engine.embed({{{3, 4}}, true, vectors}).has_value());
    vectors->wait();
    EXPECT_EQ(vectors->all.size(), 1U);
    // The place is free a moment later. A cancelled request ends all the same.
    std::optional<int64_t> number;
    while (!number) number = engine.embed({std::vector<std::vector<int64_t>>(2000, {5, 6}), true, late});
    engine.cancel(*number);
  }
  EXPECT_TRUE(late->has_ended);
}

TEST(ServingEngine, ACancelledAnswerFreesItsPlaceAndTheQueueIsBounded) {
  const auto model = models::small_model();
  const auto running = std::make_shared<Receiver>(), waiting = std::make_shared<Receiver>(),
             last = std::make_shared<Receiver>();
  {
    ServingEngine engine(*model, {.max_batch = 1, .max_waiting = 1});
    const auto number = engine.submit({request_for(running, {1}, 2000)}).value()[0];
    while (running->num_tokens == 0) std::this_thread::yield();
    ASSERT_TRUE(engine.submit({request_for(waiting, {2}, 3)}).has_value());
    EXPECT_FALSE(engine.submit({request_for(last, {3}, 3)}).has_value());
    // The state is told behind each step.
    while (engine.state().cache_usage == 0.0) std::this_thread::yield();
    engine.cancel(number);
    engine.cancel(number);
    waiting->wait();
    EXPECT_EQ(running->reason, EndReason::Cancelled);
    EXPECT_EQ(waiting->reason, EndReason::Length);
    ASSERT_TRUE(engine.submit({request_for(last, {3}, 2000)}).has_value());
    while (last->num_tokens == 0) std::this_thread::yield();
  }
  // The engine ends what it is still working on.
  EXPECT_TRUE(last->has_ended);
  EXPECT_EQ(last->reason, EndReason::Cancelled);
}

}  // namespace
}  // namespace tessera::generation

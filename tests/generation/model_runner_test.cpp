// Tests of decoding on a device whose streams run late: recorded and replayed steps give the tokens of the
// host.
#include "tessera/generation/model_runner.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/core/rng.h"
#include "tessera/generation/generate.h"
#include "tessera/generation/session.h"
#include "tessera/nn/call_hook.h"
#include "tessera/nn/layer.h"
#include "tessera/ops/leaf.h"

#include "tests/models/reference_models.h"
#include "tests/models/small_model.h"
#include "tests/testing/fake_device.h"

namespace tessera::generation {
namespace {

using namespace models;
namespace fake = testing::fake_device;

at::Device there() { return fake::device(0); }

// Makes streams run late by random delays of a seed, to which TESSERA_TEST_SEED is added.
class ModelRunnerTest : public ::testing::Test {
 protected:
  void SetUp() override { configure(); }
  void TearDown() override {
    EXPECT_EQ(fake::fault(), "");
    fake::configure({});
  }
  static void configure(bool shares_graph_memory = false) {
    uint64_t seed = 5;
    if (const char* more = std::getenv("TESSERA_TEST_SEED"); more != nullptr)
      seed += std::strtoull(more, nullptr, 10);
    std::printf("delays of seed %llu\n", static_cast<unsigned long long>(seed));
    fake::configure({.seed = seed, .longest_delay_us = 60, .shares_graph_memory = shares_graph_memory});
  }
};

// Loads a Llama of two layers, or a family with Transformers' reference files. It is in float64, so that the
// host and the device choose the same tokens although they add up in different orders.
std::shared_ptr<CausalLM> load(const std::string& family, at::Device device) {
  if (family == "small") return small_model(false, at::kDouble, device);
  const auto model = build_model(reference_folder(family), at::kDouble);
  const auto files = std::make_shared<const io::ModelFiles>(io::ModelFiles::open(reference_folder(family)));
  load_weights(*model, checkpoint::stored_tensors(files), /*keeps_bf16=*/false, device);
  model->eval();
  return model;
}

std::vector<int64_t> prompt_of(int64_t length, uint64_t seed, int64_t vocabulary) {
  const CounterRng rng(seed, stream_of("prompt"));
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < length; ++i)
    ids.push_back(
        3 + static_cast<int64_t>(rng.below(static_cast<uint64_t>(i), static_cast<uint64_t>(vocabulary - 3))));
  return ids;
}

struct Wanted {
  std::vector<int64_t> prompts, new_tokens;  // for each request, the number of its tokens
  SamplingOptions sampling;
  bool differs = false;  // whether every request has other sampling options
};

// Returns the sampling options of request i. If wanted.differs, requests side by side are greedy, draw in
// all ways, and have penalties.
SamplingOptions sampling_of(const Wanted& wanted, size_t i) {
  SamplingOptions options = wanted.sampling;
  if (wanted.differs) {
    const std::vector<SamplingOptions> kinds = {
        {.temperature = 0.9, .top_k = 7, .repetition_penalty = 1.2},
        {},
        {.temperature = 1.1, .min_p = 0.05, .presence_penalty = 0.3, .frequency_penalty = 0.5},
        {.repetition_penalty = 1.5},
        {.temperature = 1.5, .top_p = 0.8, .top_k = 12, .min_p = 0.01}};
    options = kinds[i % kinds.size()];
  }
  options.seed = 7;
  options.sequence = i;
  return options;
}

std::vector<GenerationRequest> requests_of(const Wanted& wanted, int64_t vocabulary) {
  std::vector<GenerationRequest> requests;
  for (size_t i = 0; i < wanted.prompts.size(); ++i) {
    GenerateOptions options;
    options.stop_ids = {-1};
    options.max_new_tokens = wanted.new_tokens[i];
    options.sampling = sampling_of(wanted, i);
    if (wanted.differs && i % 2 == 0) options.biases = {{{7, 1.5}, {9, -100.0}}, 0, {{7}, {8, 11}}};
    requests.push_back({prompt_of(wanted.prompts[i], i, vocabulary), options});
  }
  return requests;
}

using Texts = std::vector<std::vector<int64_t>>;

Texts generate_all(CausalLM& model, const Wanted& wanted, const GeneratorOptions& options) {
  Generator generator(model, options);
  std::vector<int64_t> numbers;
  for (GenerationRequest& request : requests_of(wanted, model.config().vocab_size))
    numbers.push_back(generator.add(std::move(request)));
  while (generator.step()) {
  }
  EXPECT_EQ(generator.cache().used_pages(), 0);
  Texts texts;
  for (const int64_t number : numbers) texts.push_back(generator.take(number).value().token_ids);
  return texts;
}

// Prompts have several lengths, and tokens are chosen greedily and by draws. Sequences leave one after the
// other, others take their places, and some need more pages than a recording was made for.
TEST_F(ModelRunnerTest, RecordedStepsGiveTheTokensOfTheHost) {
  for (const char* family : {"small", "mistral_sliding", "qwen2_sliding", "qwen3", "gpt2"}) {
    const auto here = load(family, at::kCPU), model = load(family, there());
    ASSERT_TRUE(model->decodes_alone());
    const auto& bound = here->config().generation_bound;
    std::vector<int64_t> prompts = {5, 120, 1, 40, 62};
    for (int64_t& length : prompts) length = std::min(length, (bound ? bound->tokens : 1000) / 2);
    const std::vector<SamplingOptions> kinds = {{}, {.temperature = 1.3, .top_p = 0.95}};
    for (size_t kind = 0; kind <= kinds.size(); ++kind) {
      SCOPED_TRACE(::testing::Message() << family << ", options " << kind);
      const bool differs = kind == kinds.size();
      const Wanted wanted{prompts, {24, 16, 9, 30, 5}, differs ? SamplingOptions() : kinds[kind], differs};
      const Texts want = generate_all(*here, wanted, {.max_batch = 3});
      for (const bool records : {false, true}) {
        const int64_t before = fake::replays();
        EXPECT_EQ(generate_all(*model, wanted, {.max_batch = 3, .records = records}), want) << records;
        EXPECT_EQ(fake::replays() > before + 10, records);
      }
    }
  }
}

TEST_F(ModelRunnerTest, RecordedStepsCheckNoDrafts) {
  EXPECT_NE(why_no_drafts(*load("small", there())).find("recorded"), std::string::npos);
}

// Two runners side by side, one of which records.
struct Pair {
  std::shared_ptr<CausalLM> model = load("llama3", there());
  nn::KvCache caches[2] = {nn::KvCache(model->cache_options()), nn::KvCache(model->cache_options())};
  ModelRunner plain{*model, caches[0], false}, recording{*model, caches[1], true};
  std::vector<int64_t> sequences;

  explicit Pair(const std::vector<int64_t>& prompts) {
    for (const int64_t length : prompts) {
      sequences.push_back(caches[0].add());
      EXPECT_EQ(caches[1].add(), sequences.back());
      const auto ids = prompt_of(length, static_cast<uint64_t>(length), model->config().vocab_size);
      for (ModelRunner* runner : {&plain, &recording}) runner->prefill({{sequences.back(), ids}});
    }
  }
  // Feeds both runners one more token of each sequence and returns their logits.
  std::pair<at::Tensor, at::Tensor> step(int64_t token) {
    std::vector<NewTokens> batch;
    for (const int64_t sequence : sequences) batch.push_back({sequence, {3 + (token + 5 * sequence) % 20}});
    const at::Tensor one = plain.decode(batch).logits.to(kHost);
    return {one, recording.decode(batch).logits.to(kHost)};
  }
};

TEST_F(ModelRunnerTest, AReplayGivesTheSameBits) {
  Pair pair({5, 30, 3});
  for (int64_t token = 0; token < 40; ++token) {
    const int64_t before = fake::replays();
    const auto [want, got] = pair.step(token);
    ASSERT_TRUE(at::equal(got, want)) << token;
    EXPECT_TRUE(at::isfinite(got).all().item<bool>());
    // The first step of each shape is not replayed: that of four rows, and later that of two.
    EXPECT_EQ(fake::replays() - before, token == 0 || token == 12 ? 0 : 1) << token;
    if (token != 11) continue;
    for (nn::KvCache& cache : pair.caches) cache.free(pair.sequences[1]);
    pair.sequences.erase(pair.sequences.begin() + 1);
  }
}

// The first 64 pages are full, so the next token makes the cache grow and move.
TEST_F(ModelRunnerTest, ACacheThatGrowsIsRecordedAnew) {
  const auto model = load("llama3", there());
  nn::KvCacheOptions options = model->cache_options();
  nn::KvCache caches[2] = {nn::KvCache(options), nn::KvCache(options)};
  ModelRunner plain(*model, caches[0], false), recording(*model, caches[1], true);
  std::vector<NewTokens> batch;
  const int64_t longest = model->config().generation_bound ? model->config().generation_bound->tokens : 100;
  const int64_t page = nn::KvCache::kPageTokens, length = std::min<int64_t>(longest - 12, 2 * page - 4);
  const int64_t pages_each = nn::KvCache::pages_for(length);
  for (int64_t i = 0; i < 64 / pages_each; ++i) {
    const int64_t sequence = caches[0].add();
    ASSERT_EQ(caches[1].add(), sequence);
    for (ModelRunner* runner : {&plain, &recording})
      runner->prefill({{sequence, prompt_of(length, static_cast<uint64_t>(i), model->config().vocab_size)}});
    batch.push_back({sequence, {3 + i}});
  }
  ASSERT_EQ(caches[0].allocated_pages(), 64);
  const int64_t before = caches[1].num_moves();
  int64_t moved = -1;
  for (int64_t token = 0; token < 10; ++token) {
    const int64_t replays = fake::replays();
    const at::Tensor want = plain.decode(batch).logits.to(kHost);
    ASSERT_TRUE(at::equal(recording.decode(batch).logits.to(kHost), want)) << token;
    if (moved < 0 && caches[1].num_moves() > before) {
      moved = token;
      EXPECT_EQ(fake::replays(), replays) << "once as it is, at the new place";
    } else {
      EXPECT_EQ(fake::replays() - replays, token == 0 ? 0 : 1);
    }
  }
  EXPECT_EQ(moved, nn::KvCache::pages_for(length) * page - length);
  EXPECT_EQ(caches[1].allocated_pages(), 64 + 64 / pages_each);
}

// For a token the host puts four tasks on the stream: the copy of the inputs, the replay, the copy of the
// chosen tokens, and an event after it. A draw adds its operations, which nobody waits for; half of these
// tasks free memory.
TEST_F(ModelRunnerTest, AStepIsFewTasksAndOneWait) {
  const auto model = load("qwen2", there());
  const std::vector<std::pair<SamplingOptions, int64_t>> kinds = {
      {{}, 0},
      {{.temperature = 1.0}, 54},
      {{.temperature = 1.0, .top_p = 0.9, .repetition_penalty = 1.2}, 96}};
  for (const auto& [sampling, draws] : kinds) {
    const Wanted wanted{{5, 9}, {30, 30}, sampling};
    Generator generator(*model, {.max_batch = 2});
    for (GenerationRequest& request : requests_of(wanted, model->config().vocab_size))
      generator.add(std::move(request));
    for (int i = 0; i < 3; ++i) generator.step();
    for (int i = 0; i < 10; ++i) {
      const int64_t tasks = fake::tasks(), waits = fake::waits(), replays = fake::replays();
      ASSERT_TRUE(generator.step());
      EXPECT_LE(fake::tasks() - tasks, 4 + draws);
      EXPECT_EQ(fake::replays() - replays, 1);
      EXPECT_EQ(fake::waits() - waits, 1) << "for the event behind the tokens";
    }
  }
}

// The host gets the chosen tokens, and not the logits.
TEST_F(ModelRunnerTest, WhatIsDrawnIsATokenForEachSequence) {
  const auto model = load("small", there());
  nn::KvCache cache(model->cache_options());
  ModelRunner runner(*model, cache);
  const int64_t first = cache.add(), second = cache.add();
  const std::vector<TokenDraw> draws = {{{.temperature = 1.0, .top_k = 3}, 0}, {{}, 0}};
  for (const NextLogits& next : {runner.prefill({{first, {3, 4}}, {second, {5}}}, draws),
                                 runner.decode({{first, {6}}, {second, {7}}}, draws)})
    EXPECT_EQ(next.chosen.sizes(), (std::vector<int64_t>{2, 2}));
  EXPECT_THROW(runner.decode({{first, {6}}}, draws), Error) << "a draw for each sequence";
}

// Tells whether tensors that are made after a recording, of all sizes that it uses, keep their values in
// replays.
bool others_are_kept() {
  const auto model = load("small", there());
  nn::KvCache cache(model->cache_options());
  ModelRunner runner(*model, cache);
  const int64_t sequence = cache.add();
  runner.prefill({{sequence, {3, 4, 5}}});
  const auto step = [&](int64_t token) { runner.decode({{sequence, {token}}}); };
  for (int64_t token = 0; token < 2; ++token) step(token);
  std::vector<at::Tensor> others;
  for (int64_t bytes = 64; bytes <= 4096; bytes += 64) {
    for (int i = 0; i < 4; ++i)
      others.push_back(at::full({bytes}, 7, at::TensorOptions(there()).dtype(at::kByte)));
  }
  for (int64_t token = 2; token < 5; ++token) step(token);
  return std::all_of(others.begin(), others.end(),
                     [](const at::Tensor& other) { return other.to(kHost).eq(7).all().item<bool>(); });
}

TEST_F(ModelRunnerTest, NobodyElseGetsTheMemoryOfARecording) {
  EXPECT_TRUE(others_are_kept());
  configure(/*shares_graph_memory=*/true);
  EXPECT_FALSE(others_are_kept()) << "the test would notice";
}

TEST_F(ModelRunnerTest, LogitsThatAreNotFiniteEndARequest) {
  const auto model = load("llama3", there());
  model->head().weight().detach().fill_(NAN);
  for (const SamplingOptions& sampling : {SamplingOptions(), SamplingOptions{.temperature = 1.0, .top_k = 5}})
    EXPECT_THROW(generate_all(*model, {{3}, {4}, sampling}, {}), Error);
}

TEST_F(ModelRunnerTest, AnErrorLeavesTheCacheAsItWas) {
  const auto model = load("llama3", there());
  nn::KvCacheOptions options = model->cache_options();
  options.max_pages = 1;
  nn::KvCache cache(options);
  ModelRunner runner(*model, cache);
  const int64_t sequence = cache.add();
  runner.prefill({{sequence, prompt_of(nn::KvCache::kPageTokens - 1, 1, 20)}});
  EXPECT_THROW(runner.decode({{sequence, {model->config().vocab_size}}}), Error);
  EXPECT_THROW(runner.decode({{sequence, {3, 4}}}), Error);
  runner.decode({{sequence, {3}}});
  EXPECT_THROW(runner.decode({{sequence, {3}}}), Error) << "no page is left";
  EXPECT_EQ(cache.length(sequence), nn::KvCache::kPageTokens);
}

// Multiplies groups of rows as a GPU does: the host does not know where groups end.
at::Tensor multiply_groups(const at::Tensor& rows, const at::Tensor& matrices, const at::Tensor& ends) {
  const at::Tensor groups =
      at::searchsorted(ends, at::arange(rows.size(0), ends.options()), /*out_int32=*/false, /*right=*/true);
  return rows.unsqueeze(1).bmm(matrices.index_select(0, groups)).squeeze(1);
}

// Models with experts can be recorded on a device that multiplies groups of rows whose sizes it alone knows.
TEST_F(ModelRunnerTest, ModelsWithExpertsAreRecordedToo) {
  const auto model = sparse_model(there());
  EXPECT_FALSE(model->decodes_alone()) << "the host counts rows";
  ops::Leaves table = ops::plain_leaves();
  table.grouped_product = multiply_groups;
  nn::KvCache caches[2] = {nn::KvCache(model->cache_options()), nn::KvCache(model->cache_options())};
  const int64_t sequence = caches[0].add();
  ASSERT_EQ(caches[1].add(), sequence);
  const std::vector<NewTokens> prompt = {{sequence, {3, 4, 5}}};
  // The logits are compared with those of the way in which the host counts rows. Now and then two experts
  // are equally probable, and another one is chosen.
  std::vector<at::Tensor> counted = {model->next_logits(caches[0], prompt)};
  for (int64_t token = 0; token < 10; ++token)
    counted.push_back(model->next_logits(caches[0], {{sequence, {6 + token}}}));
  const ops::LeavesScope scope(&table);
  ASSERT_TRUE(model->decodes_alone());
  ModelRunner runner(*model, caches[1]);
  std::vector<at::Tensor> logits = {runner.prefill(prompt).logits};
  fake::synchronize();
  const int64_t waits = fake::waits(), replays = fake::replays();
  for (int64_t token = 0; token < 10; ++token)
    logits.push_back(runner.decode({{sequence, {6 + token}}}).logits.clone());
  EXPECT_EQ(fake::waits(), waits);
  EXPECT_EQ(fake::replays(), replays + 9);
  int64_t close = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const at::Tensor want = counted[i].to(kHost).to(at::kDouble), got = logits[i].to(kHost).to(at::kDouble);
    close += (got - want).norm().item<double>() < 0.05 * want.norm().item<double>() ? 1 : 0;
  }
  EXPECT_GE(close, 8) << "of 11";
  const Wanted wanted{{5, 30, 2}, {20, 12, 25}, {}, /*differs=*/true};
  EXPECT_EQ(generate_all(*model, wanted, {.max_batch = 3}),
            generate_all(*model, wanted, {.max_batch = 3, .records = false}));
}

// Answers of a Session, whose steps are recorded once for all answers, are those of the host to whole
// prompts.
TEST_F(ModelRunnerTest, ASessionReplaysThroughAllAnswers) {
  const auto here = load("small", kHost), model = load("small", there());
  Session session(*model);
  std::vector<int64_t> prompt = {3, 4, 5};
  int64_t replays = 0;
  for (uint64_t turn = 0; turn < 4; ++turn) {
    GenerateOptions options;
    options.stop_ids = {-1};
    options.max_new_tokens = 20;
    options.sampling = {.temperature = turn % 2 == 0 ? 0.0 : 1.0,
                        .repetition_penalty = turn < 2 ? 1.0 : 1.2,
                        .seed = 3,
                        .sequence = turn};
    const auto before = fake::replays();
    const std::vector<int64_t> answer = session.answer(prompt, options).token_ids;
    replays = fake::replays() - before;
    EXPECT_EQ(answer, generate(*here, prompt, options).token_ids) << "turn " << turn;
    // The next prompt goes on behind a part of the answer.
    prompt.insert(prompt.end(), answer.begin(), answer.end() - 3);
    prompt.push_back(static_cast<int64_t>(turn));
  }
  EXPECT_EQ(replays, 19) << "no step of the last answer had to be recorded anew";
}

struct SameInput : nn::LayerParallel {};
struct PlainHook : nn::CallHook {
  at::Tensor run(const at::Tensor& input, const Forward& next) override { return next(input); }
};

// A model that works with other ranks is not recorded.
TEST_F(ModelRunnerTest, OnlyWhatTheDeviceDoesAloneIsRecorded) {
  const auto model = load("llama3", there());
  EXPECT_TRUE(model->decodes_alone());
  const auto layers = nn::named_layers(*model);
  layers.begin()->second->set_parallel(std::make_shared<SameInput>());
  EXPECT_FALSE(model->decodes_alone());
  layers.begin()->second->set_parallel(nullptr);
  EXPECT_TRUE(model->decodes_alone());
  nn::add_call_hook(*model->blocks().back(), std::make_shared<PlainHook>());
  EXPECT_FALSE(model->decodes_alone());
}

// A layer throws once, while it is recorded, which gives one warning. This must be the last test: nothing is
// recorded in this process afterwards.
TEST_F(ModelRunnerTest, WhatCannotBeRecordedRunsAsItIs) {
  struct Refusing : nn::LayerParallel {
    at::Tensor output(const at::Tensor& y) const override {
      // The third call comes after those of the prompt and of the first token.
      if (++calls == 3) throw std::runtime_error("not while you record");
      return y;
    }
    mutable int64_t calls = 0;
  };
  const auto here = load("llama3", at::kCPU), model = load("llama3", there());
  const Wanted wanted{{5, 30}, {12, 9}};
  const Texts want = generate_all(*here, wanted, {});
  nn::KvCache cache(model->cache_options());
  ModelRunner runner(*model, cache);
  // The layer is put in after the runner has looked at the model.
  nn::find_layer(*model, "model.norm")->set_parallel(std::make_shared<Refusing>());
  const int64_t sequence = cache.add();
  runner.prefill({{sequence, {3, 4, 5}}});
  ::testing::internal::CaptureStderr();
  for (int64_t token = 0; token < 5; ++token) {
    const int64_t replays = fake::replays();
    EXPECT_TRUE(at::isfinite(runner.decode({{sequence, {3 + token}}}).logits).all().item<bool>());
    EXPECT_EQ(fake::replays(), replays);
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("not while you record. hint: TESSERA_GRAPHS=0"), std::string::npos) << said;
  nn::find_layer(*model, "model.norm")->set_parallel(nullptr);
  EXPECT_EQ(generate_all(*model, wanted, {}), want);
}

}  // namespace
}  // namespace tessera::generation

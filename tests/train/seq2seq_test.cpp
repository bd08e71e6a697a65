// Compares the training of encoder-decoders with Transformers, and under parallel layouts with one process.
#include <cmath>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/config/load_recipe.h"
#include "tessera/core/rng.h"
#include "tessera/data/loader_options.h"
#include "tessera/generation/generate.h"
#include "tessera/generation/load_for_inference.h"
#include "tessera/models/common/base_model.h"
#include "tessera/train/run/estimate.h"
#include "tessera/train/run/trainer.h"
#include "tessera/train/setup/recipe_values.h"
#include "tessera/train/step/step.h"
#include "tessera/train/step/training.h"

#include "tests/testing/mpi_world.h"
#include "tests/train/training_testing.h"

namespace tessera::train {
namespace {

constexpr const char* kLora =
    "adapter: lora\nlora_r: 2\nlora_alpha: 4\nlora_target_modules: [q, k, v, o, wi_0, wi_1, wo]\n";

// Returns rows of sources of 1 to 9 tokens and targets of 1 to 7. An odd number of rows leaves some ranks an
// empty micro-batch at the end.
data::RowSet target_rows() {
  const auto store = std::make_shared<data::RowStore>();
  data::RowSet rows{store, {}};
  for (int64_t number = 0; number < 11; ++number) {
    const CounterRng rng(4, stream_of("rows"), static_cast<uint64_t>(number));
    data::Row row;
    const uint64_t source = 1 + rng.below(0, 9), target = 1 + rng.below(1, 7);
    for (uint64_t i = 0; i < source + 1 + target; ++i) {
      const bool is_start = i == source;
      const auto id = is_start ? 0 : static_cast<int32_t>(2 + rng.below(2 + i, 35));
      row.input_ids.push_back(id);
      row.labels.push_back(i > source ? id : static_cast<int32_t>(kIgnoreLabel));
      row.type_ids.push_back(i < source ? 0 : 1);
    }
    rows.rows.push_back(store->size());
    store->append(row);
  }
  return rows;
}

struct Curve {
  std::vector<double> losses, norms;
  double evaluated = 0.0;
};

Curve follow(const config::Recipe& recipe, const std::shared_ptr<comm::Communicator>& world) {
  const parallel::DeviceMesh mesh(world, parallel_dims(recipe, world->size()));
  TrainedModel model = set_up_model(recipe, mesh);
  const data::RowSet rows = target_rows();
  const int64_t rank = mesh.coordinate(parallel::kAxisDp), size = mesh.size(parallel::kAxisDp);
  Training training(recipe, mesh,
                    std::make_unique<data::Loader>(rows, data::train_loader_options(recipe, rank, size)),
                    std::move(model));
  Curve curve;
  for (int step = 0; step < 3; ++step) {
    const StepMetrics metrics = training.step();
    curve.losses.push_back(metrics.loss);
    curve.norms.push_back(metrics.grad_norm);
  }
  data::Loader loader(rows, data::eval_loader_options(recipe, rank, size));
  curve.evaluated =
      evaluate(training.trained(), mesh, loader, [](int64_t) { return true; }).value().loss.value();
  return curve;
}

struct SidesLayout {
  const char* what;
  const char* model;
  const char* more = "";
};

class Seq2SeqLayouts : public ::testing::TestWithParam<SidesLayout> {};

TEST_P(Seq2SeqLayouts, EqualOneProcess) {
  const auto world = testing::world();
  const SidesLayout& layout = GetParam();
  const auto recipe_with = [&](int64_t accumulation) {
    return config::parse_recipe(
        "base_model: " + testing::reference_data("seq2seq/") + layout.model +
            "\ntask: seq2seq\ndatasets:\n  - path: none.jsonl\nlearning_rate: 0.01\nmax_steps: 3\n"
            "dtype: float64\nsequence_len: 24\nmicro_batch_size: 2\ngradient_accumulation_steps: " +
            std::to_string(accumulation) + "\n" + layout.more,
        "recipe.yaml");
  };
  const Curve want = follow(recipe_with(world->size()), comm::Communicator::single());
  const Curve got = follow(recipe_with(1), world);
  for (size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], want.losses[i], 1e-10 * want.losses[i]) << i;
    EXPECT_NEAR(got.norms[i], want.norms[i], 1e-9 * want.norms[i]) << i;
    EXPECT_GT(want.norms[i], 1e-3);
  }
  EXPECT_NE(want.losses[0], want.losses[2]);
  EXPECT_NEAR(got.evaluated, want.evaluated, 1e-9 * want.evaluated);
}

std::string lora_with_dropout() { return std::string(kLora) + "lora_dropout: 0.2\n"; }
const std::string kDropped = lora_with_dropout();

INSTANTIATE_TEST_SUITE_P(
    Layouts, Seq2SeqLayouts,
    ::testing::Values(SidesLayout{"shard", "t5"}, SidesLayout{"ddp", "flan", "zero_stage: 0\n"},
                      SidesLayout{"zero2", "saved", "zero_stage: 2\n"},
                      SidesLayout{"packed", "mt5", "sample_packing: true\n"},
                      SidesLayout{"recomputed", "flan", "gradient_checkpointing: true\n"},
                      SidesLayout{"recomputed_mlps", "flan", "gradient_checkpointing: mlp\n"},
                      SidesLayout{"own_biases", "umt5", "gradient_checkpointing: true\n"},
                      SidesLayout{"lora", "flan", kDropped.c_str()}),
    [](const auto& info) { return info.param.what; });

// Activations that the backward makes again draw the masks of the forward, whose rows are those of one side.
TEST(Seq2SeqDropout, IsTheSameWhatIsRecomputed) {
  const auto losses = [](const std::string& more) {
    const config::Recipe recipe =
        config::parse_recipe("base_model: " + testing::reference_data("seq2seq/flan") +
                                 "\ntask: seq2seq\ndatasets:\n  - path: none.jsonl\nlearning_rate: "
                                 "0.01\nmax_steps: 3\ndtype: float64\n"
                                 "sequence_len: 24\nmicro_batch_size: 3\n" +
                                 kDropped + more,
                             "recipe.yaml");
    return follow(recipe, comm::Communicator::single());
  };
  const Curve kept = losses("");
  for (const char* more : {"gradient_checkpointing: true\n", "gradient_checkpointing: mlp\n"}) {
    const Curve again = losses(more);
    for (size_t i = 0; i < kept.losses.size(); ++i) {
      EXPECT_NEAR(again.losses[i], kept.losses[i], 1e-12 * kept.losses[i]) << more << i;
      EXPECT_NEAR(again.norms[i], kept.norms[i], 1e-10 * kept.norms[i]) << more << i;
    }
  }
}

TEST(Seq2SeqDropout, IsThatOfTheConfig) {
  const auto curve = [](const char* rate) {
    const config::Recipe recipe =
        config::parse_recipe("base_model: " + testing::reference_data("seq2seq/flan") +
                                 "\ntask: seq2seq\ndatasets:\n  - path: none.jsonl\nlearning_rate: "
                                 "0.01\nmax_steps: 3\ndtype: float64\n"
                                 "sequence_len: 24\nmicro_batch_size: 3\nmodel_config: {dropout_rate: " +
                                 rate + "}\n",
                             "recipe.yaml");
    return follow(recipe, comm::Communicator::single());
  };
  const Curve none = curve("0"), some = curve("0.3"), again = curve("0.3");
  EXPECT_GT(std::abs(none.losses[0] - some.losses[0]), 1e-4);
  EXPECT_EQ(again.losses, some.losses);
}

// A run from texts to the saved folder, against a plain loop of Transformers in float64
// (tests/reference/make_seq2seq_training_reference.py).
class Seq2SeqRun : public ::testing::Test {
 protected:
  config::Recipe recipe_with(const std::string& more) {
    return config::parse_recipe(
        "base_model: " + data_ + "\ntask: seq2seq\ndatasets:\n  - path: " + data_ +
            "train.jsonl\ntest_datasets:\n  - path: " + data_ + "eval.jsonl\nlearning_rate: " +
            expected_["rate"].dump() + "\nmax_steps: " + std::to_string(expected_["losses"].size()) +
            "\nsequence_len: " + expected_["max_length"].dump() +
            "\nexcess_length_strategy: truncate\nshuffle_merged_datasets: false\nlr_scheduler: "
            "constant\nwarmup_steps: 0\ndtype: float64\nweight_decay: 0\nmax_grad_norm: 1.0\n"
            "eval_strategy: steps\neval_steps: " +
            std::to_string(expected_["losses"].size()) + "\noutput_dir: " + folder_ / "out" + "\n" + more,
        "recipe.yaml");
  }

  const std::shared_ptr<comm::Communicator> world_ = testing::world();
  const testing::SharedFolder folder_{world_};
  const std::string data_ = testing::reference_data("seq2seq/training/");
  const nlohmann::json expected_ = nlohmann::json::parse(std::ifstream(data_ + "expected.json"));
};

TEST_F(Seq2SeqRun, EqualsTransformers) {
  const int64_t ranks = world_->size(), batch = expected_["batch"];
  train(recipe_with("micro_batch_size: " + std::to_string(batch / ranks) + "\n"), world_);
  if (!folder_.is_owner()) return;
  const auto steps = testing::metrics_with(folder_ / "out/metrics.jsonl", "loss");
  ASSERT_EQ(steps.size(), expected_["losses"].size());
  for (size_t i = 0; i < steps.size(); ++i) {
    const double want = expected_["losses"][i];
    EXPECT_NEAR(steps[i]["loss"].get<double>(), want, 1e-8 * want) << i;
  }
  const auto evaluations = testing::metrics_with(folder_ / "out/metrics.jsonl", "eval_loss");
  ASSERT_EQ(evaluations.size(), 1U);
  const double want_loss = expected_["eval_loss"];
  EXPECT_NEAR(evaluations[0]["eval_loss"].get<double>(), want_loss, 1e-7 * want_loss);

  // The saved folder makes the same targets.
  const generation::ModelSource source(folder_ / "out", "");
  const auto model =
      source.load(at::TensorOptions(at::kDouble), parallel::DeviceMesh(comm::Communicator::single(), {}));
  std::ifstream lines(data_ + "eval.jsonl");
  generation::Generator generator(*model);
  std::vector<int64_t> requests;
  for (std::string line; requests.size() < expected_["greedy"].size() && std::getline(lines, line);) {
    const auto ids = source.tokenizer().encode(nlohmann::json::parse(line)["input"].get<std::string>(),
                                               {.parse_special = true, .add_special_tokens = true});
    generation::GenerateOptions options;
    options.sampling.temperature = 0.0;
    options.max_new_tokens = expected_["max_new_tokens"];
    requests.push_back(generator.add({{ids.begin(), ids.end()}, options}));
  }
  while (generator.step()) {
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto made = generator.take(requests[i]).value().token_ids;
    const std::vector<int32_t> ids(made.begin(), made.end());
    EXPECT_EQ(source.tokenizer().decode(ids, /*skip_special_tokens=*/true),
              expected_["greedy"][i].get<std::string>());
  }
}

TEST_F(Seq2SeqRun, AnAdapterIsContinuedAndSaysWhatItIsFor) {
  config::Recipe recipe = recipe_with(
      "micro_batch_size: 2\nadapter: lora\nlora_r: 2\nlora_alpha: 4\nlora_target_modules: [q, v, wi, wo]\n");
  recipe.max_steps = 2;
  train(recipe, world_);
  world_->barrier();
  config::Recipe again = recipe;
  again.lora_model_dir = folder_ / "out";
  again.output_dir = folder_ / "again";
  again.key_places.clear();
  train(again, world_);
  if (!folder_.is_owner()) return;
  for (const char* name : {"out", "again"}) {
    const auto adapter =
        nlohmann::json::parse(std::ifstream(folder_ / name + std::string("/adapter_config.json")));
    EXPECT_EQ(adapter["task_type"], "SEQ_2_SEQ_LM");
  }
  EXPECT_NO_THROW(generation::load_for_inference(data_, folder_ / "again", at::TensorOptions(at::kDouble)));
}

TEST_F(Seq2SeqRun, ItsMemoryIsEstimated) {
  const RankMemory memory = estimate_memory(recipe_with("micro_batch_size: 2\n"), 1, 0);
  EXPECT_GT(memory.peak.total(), 4 * 8 * 3000)
      << "weights, gradients and two states of some thousand parameters";
}

TEST_F(Seq2SeqRun, TasksModelsAndLayoutsThatDoNotFitAreRefused) {
  const auto expect_error = [&](const std::string& more, const std::string& code) {
    try {
      train(recipe_with(more), world_);
      ADD_FAILURE() << more;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
    }
  };
  for (const char* more : {"streaming: true\n", "train_on_inputs: true\n", "neftune_noise_alpha: 5\n",
                           "rl: dpo\n", "adapter: prompt_tuning\n", "num_labels: 2\n"})
    EXPECT_THROW(recipe_with(more), Error) << more;
  config::Recipe wrong = recipe_with("");
  wrong.task = config::Task::CausalLm;
  EXPECT_THROW(train(wrong, world_), Error) << "an encoder-decoder that continues texts";
  config::Recipe decoder = recipe_with("");
  decoder.base_model = testing::reference_data("models/llama3");
  EXPECT_THROW(train(decoder, world_), Error) << "a decoder that makes targets";
  if (world_->size() != 2) return;
  expect_error("tensor_parallel_size: 2\n", "E-CONFIG-TENSOR-PARALLEL");
  expect_error("context_parallel_size: 2\n", "E-CONFIG-CONTEXT-PARALLEL");
  expect_error("pipeline_parallel_size: 2\n", "E-CONFIG-PIPELINE");
}

}  // namespace
}  // namespace tessera::train

#include "tessera/train/step/step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/train/setup/recipe_values.h"

#include "tests/io/expect_error.h"
#include "tests/models/reference_models.h"
#include "tests/testing/mpi_world.h"

namespace tessera::train {
namespace {

using testing::expect_error;

config::Recipe recipe_of(const std::string& family, config::ZeroStage stage = config::ZeroStage::Zero3) {
  config::Recipe recipe;
  recipe.base_model = models::reference_folder(family);
  recipe.dtype = config::ComputeType::Float64;
  recipe.zero_stage = stage;
  return recipe;
}

data::MicroBatch to_micro_batch(const nn::TokenBatch& batch) {
  data::MicroBatch result;
  const auto values = [](const at::Tensor& tensor) {
    return std::vector<int64_t>(tensor.const_data_ptr<int64_t>(),
                                tensor.const_data_ptr<int64_t>() + tensor.numel());
  };
  result.input_ids = values(batch.input_ids);
  result.labels = values(batch.labels);
  result.position_ids = values(batch.position_ids);
  result.document_starts = batch.document_starts;
  for (const int64_t label : result.labels) result.label_tokens += label == kIgnoreLabel ? 0 : 1;
  return result;
}

class StepTest : public ::testing::Test {
 protected:
  std::shared_ptr<comm::Communicator> world_ = testing::world();

  void set_up(const config::Recipe& recipe) {
    mesh_ = std::make_unique<parallel::DeviceMesh>(world_, parallel_dims(recipe, world_->size()));
    trained_ = set_up_model(recipe, *mesh_);
    trained_.model->train();
    optimizer_ = optim::make_adamw(optimized_tiles(*trained_.sharded, 0.1, false), {});
  }
  // Returns the reference's documents on one rank; the others run empty micro-batches.
  std::vector<data::MicroBatch> documents(const std::string& family, int64_t rank) const {
    if (world_->rank() != rank) return {data::MicroBatch{}};
    const models::TensorFile file(models::reference_folder(family) + "/reference.safetensors");
    return {to_micro_batch(models::pack(models::reference_documents(file)))};
  }
  // Returns the same documents, each as a micro-batch of its own.
  std::vector<data::MicroBatch> one_by_one(const std::string& family, int64_t rank) const {
    if (world_->rank() != rank) return {data::MicroBatch{}, data::MicroBatch{}};
    const models::TensorFile file(models::reference_folder(family) + "/reference.safetensors");
    std::vector<data::MicroBatch> batches;
    for (const models::Document& document : models::reference_documents(file)) {
      batches.push_back(to_micro_batch(models::pack({document})));
    }
    return batches;
  }
  double eval_loss(const std::string& family) {
    const models::TensorFile file(models::reference_folder(family) + "/reference.safetensors");
    const auto store = std::make_shared<data::RowStore>();
    data::RowSet rows{store, {}};
    for (const models::Document& document : models::reference_documents(file)) {
      const data::MicroBatch batch = to_micro_batch(models::pack({document}));
      std::vector<int32_t> ids(batch.input_ids.begin(), batch.input_ids.end());
      std::vector<int32_t> labels = {static_cast<int32_t>(kIgnoreLabel)};
      labels.insert(labels.end(), batch.labels.begin(), batch.labels.end() - 1);
      rows.rows.push_back(store->size());
      store->append(ids, labels);
    }
    data::Loader loader(rows, {.dp_rank = world_->rank(), .dp_size = world_->size(), .shuffle = false});
    EXPECT_FALSE(evaluate(trained_, *mesh_, loader, [](int64_t) { return false; }).has_value());
    EXPECT_TRUE(trained_.model->is_training()) << "an evaluation that is ended puts the model back, too";
    int64_t told = 0;
    const auto on_step = [&](int64_t done) {
      EXPECT_EQ(done, ++told);
      return true;
    };
    const double loss = evaluate(trained_, *mesh_, loader, on_step).value().loss.value();
    EXPECT_EQ(told, loader.steps_per_epoch());
    return loss;
  }
  std::vector<at::Tensor> tiles() const {
    std::vector<at::Tensor> values;
    for (const auto& parameter : trained_.sharded->parameters())
      values.push_back(parameter.tile.detach().clone());
    return values;
  }
  StepResult step(const std::vector<data::MicroBatch>& batches, int64_t label_tokens) {
    return run_step(trained_, *optimizer_, *mesh_, {&batches, label_tokens, 3, 0.1, 1.0, 0});
  }

  std::unique_ptr<parallel::DeviceMesh> mesh_;
  TrainedModel trained_;
  std::unique_ptr<optim::Optimizer> optimizer_;
};

TEST_F(StepTest, LossAndGradientNormAreTransformers) {
  const models::TensorFile file(models::reference_folder("qwen2") + "/reference.safetensors");
  const auto labels = static_cast<int64_t>(file.get("num_label_tokens").item<double>());
  const double loss_sum = file.get("loss_sum_f64").item<double>();
  double squares = 0.0;
  for (const auto& entry :
       models::build_model(models::reference_folder("qwen2"), at::kDouble)->named_parameters()) {
    const double norm = file.get("grad_f64." + entry.key()).norm().item<double>();
    squares += norm * norm;
  }
  for (const auto stage : {config::ZeroStage::Ddp, config::ZeroStage::Zero3}) {
    set_up(recipe_of("qwen2", stage));
    const auto batches = documents("qwen2", world_->size() - 1);
    EXPECT_NEAR(eval_loss("qwen2"), loss_sum / labels, 1e-9);
    EXPECT_TRUE(trained_.model->is_training()) << "evaluate() puts the model back";
    const StepResult result = step(batches, labels);
    EXPECT_NEAR(result.loss, loss_sum / labels, 1e-9);
    EXPECT_NEAR(result.grad_norm, std::sqrt(squares) / labels, 1e-9);
    EXPECT_LT(eval_loss("qwen2"), result.loss) << "the update went downhill";
  }
}

// Tests the configuration of a bf16 finetuning: narrow gradients if one process has one backward a step, and
// float32 sums otherwise; cast parameters and the root's tables are freed. Recompute changes no bit.
TEST_F(StepTest, Bfloat16FollowsFloat64HoweverMuchIsRecomputed) {
  const models::TensorFile file(models::reference_folder("qwen2") + "/reference.safetensors");
  const auto labels = static_cast<int64_t>(file.get("num_label_tokens").item<double>());
  struct Run {
    StepResult result;
    std::vector<at::Tensor> gradients, values;
  };
  const auto run = [&](config::ComputeType type, int64_t accumulation, config::Checkpointing checkpointing) {
    config::Recipe recipe = recipe_of("qwen2");
    recipe.dtype = type;
    recipe.gradient_accumulation_steps = accumulation;
    recipe.gradient_checkpointing = checkpointing;
    set_up(recipe);
    const auto batches = accumulation == 1 ? documents("qwen2", 0) : one_by_one("qwen2", 0);
    Run made;
    made.result = step(batches, labels);
    for (const auto& parameter : trained_.sharded->parameters()) {
      made.gradients.push_back(parameter.tile.grad().clone());
      const bool is_narrow = type == config::ComputeType::BFloat16 && world_->size() == 1 &&
                             accumulation == 1 && parameter.name.find("layers.") != std::string::npos;
      EXPECT_EQ(parameter.tile.grad().scalar_type(), is_narrow ? at::kBFloat16 : parameter.tile.scalar_type())
          << parameter.name;
    }
    made.values = tiles();
    return made;
  };
  const Run want = run(config::ComputeType::Float64, 1, config::Checkpointing::Off);
  for (const int64_t accumulation : {1, 2}) {
    SCOPED_TRACE(accumulation);
    const Run got = run(config::ComputeType::BFloat16, accumulation, config::Checkpointing::Off);
    EXPECT_NEAR(got.result.loss, want.result.loss, 5e-3 * want.result.loss);
    EXPECT_NEAR(got.result.grad_norm, want.result.grad_norm, 2e-2 * want.result.grad_norm);
    double errors = 0.0, squares = 0.0;
    for (size_t i = 0; i < want.gradients.size(); ++i) {
      errors += (got.gradients[i].to(at::kDouble) - want.gradients[i]).square().sum().item<double>();
      squares += want.gradients[i].square().sum().item<double>();
    }
    EXPECT_LE(std::sqrt(errors), 5e-2 * std::sqrt(squares));
    for (const auto checkpointing : {config::Checkpointing::Mlp, config::Checkpointing::Block}) {
      const Run other = run(config::ComputeType::BFloat16, accumulation, checkpointing);
      EXPECT_EQ(other.result.loss, got.result.loss);
      EXPECT_EQ(other.result.grad_norm, got.result.grad_norm);
      for (size_t i = 0; i < got.values.size(); ++i) {
        EXPECT_TRUE(at::equal(other.gradients[i], got.gradients[i])) << i;
        EXPECT_TRUE(at::equal(other.values[i], got.values[i])) << i;
      }
    }
  }
}

// Counts how often a value is read back.
class ReadCounter {
 public:
  ReadCounter() {
    count_ = 0;
    handle_ = at::addGlobalCallback(at::RecordFunctionCallback(&count).scopes({at::RecordScope::FUNCTION}));
  }
  ~ReadCounter() { at::removeCallback(handle_); }
  static int64_t reads() { return count_; }

 private:
  static std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& function) {
    if (std::string_view(function.name()) == "aten::_local_scalar_dense") ++count_;
    return nullptr;
  }
  static inline std::atomic<int64_t> count_ = 0;
  at::CallbackHandle handle_;
};

TEST_F(StepTest, ReadsLossAndNormTogetherOnceAStep) {
  config::Recipe recipe = recipe_of("qwen2");
  recipe.gradient_accumulation_steps = 2;
  set_up(recipe);
  optimizer_ = optim::make_sgd(optimized_tiles(*trained_.sharded, 0.1, false));
  const models::TensorFile file(models::reference_folder("qwen2") + "/reference.safetensors");
  int64_t of_ids = 0;  // reads that the check of a micro-batch's ids takes; the ids lie on the host
  {
    const at::NoGradGuard no_grad;
    const ReadCounter counter;
    trained_.model->logits(models::pack(models::reference_documents(file)));
    of_ids = counter.reads();
  }
  const auto one = documents("qwen2", 0), several = one_by_one("qwen2", 0);
  ASSERT_GT(several.size(), one.size());
  for (const auto& batches : {one, several}) {
    const ReadCounter counter;
    step(batches, 10);
    // The losses and the norm come as one tensor, which is read in place on the host; no value is read by
    // itself.
    EXPECT_EQ(counter.reads() - of_ids * static_cast<int64_t>(batches.size()), 0);
  }
}

// Puts a NaN into the last row of a parameter.
void spoil(const parallel::ShardedModel& sharded, const std::string& name) {
  for (const auto& parameter : sharded.parameters()) {
    const int64_t last = parameter.layout.shape()[0] - 1 - parameter.box.offset[0];
    if (parameter.name == name && last >= 0 && last < parameter.box.size[0]) {
      parameter.tile.detach()[last].fill_(std::nan(""));
    }
  }
}

TEST_F(StepTest, ALossThatIsNotFiniteStopsBeforeTheUpdate) {
  set_up(recipe_of("llama2"));
  spoil(*trained_.sharded, "model.norm.weight");
  const auto before = tiles();
  const int64_t rank = world_->size() - 1;
  expect_error(
      ErrorKind::Numerics,
      {"E-NUMERICS-LOSS", "step 4", "on rank " + std::to_string(rank), "the weights were not updated"},
      [&] { step(documents("llama2", rank), 10); });
  const auto after = tiles();
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(at::allclose(before[i], after[i], 0.0, 0.0, /*equal_nan=*/true));
  }
}

TEST_F(StepTest, AnInfiniteGradientStopsBeforeTheUpdateAndNamesItsTensor) {
  for (const auto stage : {config::ZeroStage::Ddp, config::ZeroStage::Zero2, config::ZeroStage::Zero3}) {
    set_up(recipe_of("llama2", stage));
    const auto before = tiles();
    for (const auto& parameter : trained_.sharded->parameters()) {
      if (parameter.name != "model.layers.1.mlp.up_proj.weight") continue;
      // The hook goes on the module's own tensor: the backward knows that one, and not the tile.
      for (const auto& entry : trained_.model->named_parameters()) {
        if (entry.key() != parameter.name) continue;
        entry.value().register_hook([](const at::Tensor& grad) { return at::full_like(grad, INFINITY); });
      }
    }
    expect_error(ErrorKind::Numerics,
                 {"E-NUMERICS-GRADIENT", "model.layers.1.mlp.up_proj.weight", "step 4", "rank 0"},
                 [&] { step(documents("llama2", 0), 10); });
    const auto after = tiles();
    for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(before[i], after[i]));
  }
}

TEST_F(StepTest, WhoMayRefuseIsAskedBeforeTheUpdate) {
  std::vector<std::vector<at::Tensor>> made;
  for (const int answer : {-1, 0, 1}) {
    set_up(recipe_of("qwen2"));
    const auto before = tiles();
    const auto batches = documents("qwen2", 0);
    StepInput input{&batches, 10, 3, 0.1, 1.0, 0};
    int asked = 0;
    if (answer >= 0) {
      input.accepts = [&](double, double) {
        const auto now = tiles();
        for (size_t i = 0; i < now.size(); ++i) EXPECT_TRUE(at::equal(now[i], before[i]));
        ++asked;
        return answer == 1;
      };
    }
    const StepResult result = run_step(trained_, *optimizer_, *mesh_, input);
    EXPECT_EQ(asked, answer >= 0 ? 1 : 0);
    EXPECT_EQ(result.is_updated, answer != 0);
    made.push_back(tiles());
    size_t unchanged = 0;
    for (size_t i = 0; i < before.size(); ++i) unchanged += at::equal(made.back()[i], before[i]) ? 1 : 0;
    EXPECT_EQ(unchanged == before.size(), answer == 0);
  }
  for (size_t i = 0; i < made[0].size(); ++i) EXPECT_TRUE(at::equal(made[0][i], made[2][i]));
}

TEST_F(StepTest, DecaySparesNormsAndBiases) {
  set_up(recipe_of("qwen2"));
  int64_t num_spared = 0;
  for (const auto& tile : optimized_tiles(*trained_.sharded, 0.1, false)) {
    const bool is_spared =
        tile.name.find("norm") != std::string::npos || tile.name.find(".bias") != std::string::npos;
    EXPECT_EQ(tile.weight_decay, is_spared ? 0.0 : 0.1) << tile.name;
    num_spared += is_spared ? 1 : 0;
  }
  EXPECT_EQ(num_spared, 3 * (2 + 3) + 1);
  for (const auto& tile : optimized_tiles(*trained_.sharded, 0.1, true)) EXPECT_EQ(tile.weight_decay, 0.1);
}

TEST_F(StepTest, FrozenTilesAreNotOptimized) {
  config::Recipe recipe = recipe_of("llama3");
  recipe.adapter = config::AdapterKind::Lora;
  recipe.lora_target_modules = {"q_proj"};
  set_up(recipe);
  const auto optimized = optimized_tiles(*trained_.sharded, 0.1, false);
  EXPECT_EQ(optimized.size(), 2U * 3U);
  for (const auto& tile : optimized) EXPECT_THAT(tile.name, ::testing::HasSubstr("q_proj.lora_"));
}

}  // namespace
}  // namespace tessera::train

// The folder of a run, from any number of ranks.
#include "tessera/train/save.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/models/common/load.h"
#include "tessera/peft/adapter_files.h"

#include "tests/models/reference_models.h"
#include "tests/testing/mpi_world.h"
#include "tests/train/train_testing.h"

namespace tessera::train {
namespace {

class SaveTest : public ::testing::Test {
 protected:
  std::shared_ptr<comm::Communicator> world_ = testing::world();
  testing::SharedFolder folder_{world_};
  std::unique_ptr<parallel::DeviceMesh> mesh_;
  TrainedModel trained_;

  config::Recipe recipe_of(const std::string& family) const {
    config::Recipe recipe;
    recipe.base_model = models::reference_folder(family);
    return recipe;
  }
  // A model whose every value differs from the base's.
  void set_up(const config::Recipe& recipe) {
    mesh_ = std::make_unique<parallel::DeviceMesh>(world_, parallel_dims(recipe, world_->size()));
    trained_ = set_up_model(recipe, *mesh_);
    for (const auto& parameter : trained_.sharded->parameters()) {
      if (parameter.requires_grad) parameter.tile.detach().mul_(1.5).add_(0.01);
    }
  }
  void save(const config::Recipe& recipe, const text::Tokenizer* tokenizer = nullptr) {
    save_result(trained_, recipe, read_base_files(recipe.base_model), tokenizer, *world_, folder_ / "out");
  }
  static at::Tensor logits_of(models::CausalLM& model) {
    const at::NoGradGuard no_grad;
    model.eval();
    return model.logits(models::pack_ids(at::arange(3, 25, at::kLong)));
  }
};

TEST_F(SaveTest, AFullModelReloadsWithTheSameLogits) {
  for (const char* family : {"llama2", "qwen2", "mistral", "qwen3"}) {
    SCOPED_TRACE(family);
    const config::Recipe recipe = recipe_of(family);
    set_up(recipe);
    const at::Tensor want = logits_of(*trained_.model);
    save(recipe);
    const auto model = models::build_model(folder_ / "out", at::kFloat);
    models::load_weights(*model, io::ModelFiles::open(folder_ / "out"));
    EXPECT_EQ(models::max_difference(logits_of(*model), want), 0.0);

    // A tied matrix is stored once, under the names of the base's files.
    const auto base = io::ModelFiles::open(recipe.base_model), saved = io::ModelFiles::open(folder_ / "out");
    EXPECT_EQ(saved.tensors().size(), base.tensors().size());
    for (const io::TensorInfo* tensor : base.tensors()) {
      ASSERT_TRUE(saved.find(tensor->name)) << tensor->name;
      EXPECT_EQ(saved.find(tensor->name).tensor->dtype, DType::F32);
    }
    world_->barrier();
  }
}

TEST_F(SaveTest, TheConfigSaysTheStoredTypeAndKeepsTheRest) {
  config::Recipe recipe = recipe_of("mistral");
  recipe.dtype = config::ComputeType::Float64;
  set_up(recipe);
  save(recipe);
  if (!folder_.is_owner()) return;
  std::ifstream base_file(recipe.base_model + "/config.json"), file(folder_ / "out/config.json");
  auto base = nlohmann::json::parse(base_file), config = nlohmann::json::parse(file);
  EXPECT_EQ(config.at("torch_dtype"), "float64");
  EXPECT_EQ(config.at("dtype"), "float64");
  for (auto* each : {&base, &config}) {
    each->erase("torch_dtype");
    each->erase("dtype");
  }
  EXPECT_EQ(config, base);
}

TEST_F(SaveTest, AnAdapterReloads) {
  config::Recipe recipe = recipe_of("llama3");
  recipe.adapter = config::AdapterKind::Lora;
  recipe.lora_r = 5;
  recipe.lora_target_linear = true;
  recipe.lora_modules_to_save = {"norm"};
  set_up(recipe);
  trained_.model->eval();
  const at::Tensor want = logits_of(*trained_.model);
  save(recipe);
  if (folder_.is_owner()) {
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out/model.safetensors"));
    const auto model = models::load_reference_model("llama3", at::kFloat);
    const at::Tensor base = logits_of(*model);
    peft::load_adapter(*model, folder_ / "out");
    const at::Tensor got = logits_of(*model);
    EXPECT_EQ(models::max_difference(got, want), 0.0);
    EXPECT_GT(models::max_difference(base, want), 0.01);
    EXPECT_EQ(peft::read_adapter_config(folder_ / "out").base_model, recipe.base_model);
  }
  world_->barrier();
}

TEST_F(SaveTest, TheTokenizerIsSavedWithTheModel) {
  const config::Recipe recipe = recipe_of("llama3");
  set_up(recipe);
  const auto tokenizer = text::Tokenizer::from_folder(testing::reference_data("tokenizer/llama3"));
  save(recipe, &tokenizer);
  EXPECT_EQ(text::Tokenizer::from_folder(folder_ / "out").encode("Hello there"),
            tokenizer.encode("Hello there"));
}

TEST_F(SaveTest, AWeightThatIsNotFiniteIsNotSaved) {
  config::Recipe recipe = recipe_of("qwen2");
  for (const auto adapter : {config::AdapterKind::None, config::AdapterKind::Lora}) {
    recipe.adapter = adapter;
    recipe.lora_target_linear = adapter == config::AdapterKind::Lora;
    set_up(recipe);
    for (const auto& parameter : trained_.sharded->parameters()) {
      if (parameter.requires_grad && parameter.tile.numel() > 0) {
        parameter.tile.detach().view(-1)[0] = std::numeric_limits<double>::infinity();
        break;
      }
    }
    try {
      save(recipe);
      FAIL() << "no error on rank " << world_->rank();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Numerics) << error.what();
    }
    if (folder_.is_owner()) std::filesystem::remove_all(folder_ / "out");
    world_->barrier();
  }
}

TEST_F(SaveTest, TheSizeIsKnownBefore) {
  config::Recipe recipe = recipe_of("qwen2");
  for (const auto adapter : {config::AdapterKind::None, config::AdapterKind::Lora}) {
    recipe.adapter = adapter;
    recipe.lora_target_linear = adapter == config::AdapterKind::Lora;
    set_up(recipe);
    save(recipe);
    const std::string file = recipe.lora_target_linear ? "adapter_model.safetensors" : "model.safetensors";
    EXPECT_EQ(io::ModelFiles::open(folder_ / "out", file).total_bytes(), result_bytes(trained_, nullptr));
    world_->barrier();
  }
}

TEST_F(SaveTest, AFolderThatCannotBeWrittenIsAStorageError) {
  const config::Recipe recipe = recipe_of("qwen2");
  set_up(recipe);
  if (folder_.is_owner()) io::write_file_atomic(folder_ / "out", "a file in the way");
  world_->barrier();
  try {
    save(recipe);
    FAIL() << "no error on rank " << world_->rank();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Storage) << error.what();
  }
}

}  // namespace
}  // namespace tessera::train

// Tests of the folder that a run writes, from any number of ranks.
#include "tessera/checkpoint/save_folder.h"

#include <filesystem>
#include <fstream>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/checkpoint/parameter_source.h"
#include "tessera/models/common/load.h"
#include "tessera/peft/adapter_files.h"
#include "tessera/train/setup/recipe_values.h"
#include "tessera/train/setup/result_plan.h"
#include "tessera/train/setup/setup.h"

#include "tests/models/reference_models.h"
#include "tests/testing/mpi_world.h"
#include "tests/train/train_testing.h"

namespace tessera::checkpoint {
namespace {

using train::TrainedModel;

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
  // Sets up a model whose every value differs from the base model's.
  void set_up(const config::Recipe& recipe) {
    mesh_ = std::make_unique<parallel::DeviceMesh>(world_, train::parallel_dims(recipe, world_->size()));
    trained_ = train::set_up_model(recipe, *mesh_);
    for (const auto& parameter : trained_.sharded->parameters()) {
      if (parameter.requires_grad) parameter.tile.detach().mul_(1.5).add_(0.01);
    }
  }
  void save(const config::Recipe& recipe) {
    comm::AgreedWork work({world_.get()}, "save the result");
    const FolderPlan plan = train::result_folder(trained_, recipe, read_base_files(recipe.base_model), {});
    save_folder(*trained_.sharded, plan, folder_ / "out", work);
    work.finish();
  }
  static at::Tensor logits_of(models::CausalLM& model) {
    const at::NoGradGuard no_grad;
    model.eval();
    return model.logits(models::pack_ids(at::arange(3, 25, at::kLong)));
  }
};

TEST_F(SaveTest, AFullModelReloadsWithTheSameLogits) {
  for (const char* family :
       {"llama2", "qwen2", "mistral", "qwen3", "gemma3_multimodal", "gemma4_moe", "gemma4_multimodal",
        "gemma4_shared_multimodal", "mistral3_multimodal", "qwen3_next", "qwen3_5_multimodal", "apertus",
        "bloom", "lfm2_moe", "llama4", "mpt", "opt", "phi", "stablelm_norms"}) {
    SCOPED_TRACE(family);
    config::Recipe recipe = recipe_of(family);
    recipe.save_dtype = config::SaveType::Float32;  // mistral's files are in bfloat16
    set_up(recipe);
    const at::Tensor want = logits_of(*trained_.model);
    save(recipe);
    const auto model = models::build_model(folder_ / "out", at::kFloat);
    models::load_weights(*model, models::BaseModel::open(folder_ / "out").tensors());
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

// Other tensors than those of the text part stay as they are, in whatever type that is saved.
TEST_F(SaveTest, TheRestOfAMultimodalModelIsCopied) {
  config::Recipe recipe = recipe_of("gemma3_multimodal");
  recipe.save_dtype = config::SaveType::BFloat16;
  set_up(recipe);
  save(recipe);
  const models::TensorFile base(recipe.base_model + "/model.safetensors"),
      saved(folder_ / "out" + "/model.safetensors");
  const WholeModel whole(
      stored_tensors(std::make_shared<const io::ModelFiles>(io::ModelFiles::open(recipe.base_model))));
  EXPECT_GT(whole.others().size(), 10U);
  for (const io::TensorSpec& tensor : whole.others()) {
    EXPECT_EQ(saved.get(tensor.name).scalar_type(), at::kFloat) << tensor.name;
    EXPECT_TRUE(at::equal(saved.get(tensor.name), base.get(tensor.name))) << tensor.name;
  }
  EXPECT_EQ(saved.get("language_model.model.norm.weight").scalar_type(), at::kBFloat16);
  world_->barrier();
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

TEST_F(SaveTest, TheWeightsAreOfTheBasesTypeUnlessAKeySaysOtherwise) {
  using config::SaveType;
  struct Case {
    const char* family;
    config::ComputeType computed;
    SaveType key;
    DType want;
    bool is_adapter = false;
  };
  const Case cases[] = {
      {"mistral", config::ComputeType::BFloat16, SaveType::OfBase, DType::BF16},
      {"mistral", config::ComputeType::Float32, SaveType::OfBase, DType::BF16},
      {"mistral", config::ComputeType::Float64, SaveType::OfBase, DType::F64},
      {"mistral", config::ComputeType::BFloat16, SaveType::Float32, DType::F32},
      {"mistral", config::ComputeType::BFloat16, SaveType::OfBase, DType::F32, true},
      {"mistral", config::ComputeType::BFloat16, SaveType::BFloat16, DType::BF16, true},
      {"qwen2", config::ComputeType::BFloat16, SaveType::OfBase, DType::F32},
      {"qwen2", config::ComputeType::Float32, SaveType::Float16, DType::F16},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(std::string(each.family) + ", " + std::string(dtype_name(each.want)));
    config::Recipe recipe = recipe_of(each.family);
    recipe.dtype = each.computed;
    recipe.save_dtype = each.key;
    recipe.adapter = each.is_adapter ? config::AdapterKind::Lora : config::AdapterKind::None;
    recipe.lora_target_linear = each.is_adapter;
    set_up(recipe);
    save(recipe);
    const auto saved = io::ModelFiles::open(
        folder_ / "out", each.is_adapter ? "adapter_model.safetensors" : "model.safetensors");
    for (const io::TensorInfo* tensor : saved.tensors()) EXPECT_EQ(tensor->dtype, each.want) << tensor->name;
    EXPECT_EQ(saved.total_bytes(),
              weight_bytes(*trained_.sharded, trained_.saved, train::saved_dtype(trained_, recipe)));
    if (!each.is_adapter) {
      EXPECT_EQ(models::read_model_config(folder_ / "out")->stored_dtype, each.want);
    }
    // The trained weights stay as they are.
    for (const auto& parameter : trained_.sharded->parameters()) {
      if (!parameter.requires_grad) continue;
      EXPECT_EQ(parameter.tile.scalar_type(),
                each.computed == config::ComputeType::Float64 ? at::kDouble : at::kFloat);
    }
    world_->barrier();
  }
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

// Returns a table in which every matrix is stored transposed, and the three of an attention as one.
StateDictAdapter other_table(const parallel::ShardedModel& model) {
  std::vector<StoredParameter> table;
  std::map<std::string, int64_t> rows;  // number of rows of each fused tensor so far
  const auto fused_name = [](const std::string& name) {
    for (const char* part : {"q_proj.weight", "k_proj.weight", "v_proj.weight"}) {
      const size_t at = name.find(part);
      if (at != std::string::npos) return name.substr(0, at) + "qkv";
    }
    return std::string();
  };
  for (const auto& parameter : model.parameters()) {
    const std::string fused = fused_name(parameter.name);
    if (!fused.empty()) rows[fused] += parameter.layout.shape()[0];
  }
  std::map<std::string, int64_t> done;
  for (const auto& parameter : model.parameters()) {
    const std::vector<int64_t>& shape = parameter.layout.shape();
    const std::string fused = fused_name(parameter.name);
    StoredPart part = stored_as_is("files." + parameter.name, shape);
    if (!fused.empty()) {
      part = {fused, {shape[1], rows[fused]}, {{0, done[fused]}, {shape[1], shape[0]}}, {0, 0}, true, {}};
      done[fused] += shape[0];
    } else if (shape.size() == 2) {
      part = stored_transposed("files." + parameter.name, shape);
    }
    table.push_back({parameter.name, shape, {part}});
  }
  return StateDictAdapter(std::move(table));
}

TEST_F(SaveTest, AnyTableIsWrittenAndReadBack) {
  set_up(recipe_of("llama2"));
  const StateDictAdapter table = other_table(*trained_.sharded);
  comm::AgreedWork work({world_.get()}, "save the result");
  save_folder(*trained_.sharded, {table, {}, {{"note", "text"}}}, folder_ / "out", work);
  work.finish();
  const auto files = std::make_shared<const io::ModelFiles>(io::ModelFiles::open(folder_ / "out"));
  EXPECT_TRUE(files->find("files.model.layers.0.mlp.up_proj.weight"));
  EXPECT_TRUE(files->find("model.layers.1.self_attn.qkv"));
  const auto source = stored_source(stored_tensors(files), table);
  for (const auto& parameter : trained_.sharded->parameters()) {
    const at::Tensor whole = trained_.sharded->full_tensor(parameter), got = at::empty_like(whole);
    source->read(parameter.name, whole_box(parameter.layout.shape()), got);
    EXPECT_TRUE(at::equal(got, whole)) << parameter.name;
    const at::Tensor tile = at::empty(parameter.box.size);
    source->read(parameter.name, parameter.box, tile);
    EXPECT_TRUE(at::equal(tile, parameter.tile)) << parameter.name;
  }
  EXPECT_EQ(files->total_bytes(), weight_bytes(*trained_.sharded, table));
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
    EXPECT_EQ(io::ModelFiles::open(folder_ / "out", file).total_bytes(),
              weight_bytes(*trained_.sharded, trained_.saved));
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
}  // namespace tessera::checkpoint

// Tests of mistakes of fully_shard's users: each ends in one Error that says what to do, on any number of
// ranks.
#include <filesystem>

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include "tessera/comm/fake/fake_backend.h"
#include "tessera/core/error.h"
#include "tessera/nn/linear.h"
#include "tessera/nn/materialize.h"
#include "tessera/nn/rms_norm.h"
#include "tessera/parallel/activation_checkpoint.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/parallel/fully_shard.h"

#include "tests/parallel/interruption.h"
#include "tests/parallel/toy_model.h"
#include "tests/testing/temp_folder.h"

namespace tessera::parallel {
namespace {

using testing::code_of;

// Returns the message of the error that `body` throws, without the trace of LibTorch's errors; "nothing" if
// it does not throw.
std::string told_by(const std::function<void()>& body) {
  try {
    body();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

// Runs `body` on 2 ranks, and on a single one whose compute type makes the parameters hollow too.
void on_hollow_ranks(
    const std::function<void(const std::shared_ptr<comm::Communicator>&, const ShardOptions&)>& body) {
  ShardOptions cast;
  cast.mixed_precision.param_dtype = at::kFloat;
  comm::run_fake_ranks(2, [&](const auto& world) { body(world, {}); });
  comm::run_fake_ranks(
      2, [&](const auto& world) { body(world, {}); }, 1);
  body(comm::Communicator::single(), cast);
}

constexpr const char* kUsedOutside = "E-CONFIG-SHARDED-PARAMETER";

TEST(MisuseTest, AParameterIsReadBetweenItsUses) {
  on_hollow_ranks([](const auto& world, const ShardOptions& options) {
    testing::ToyModel model;
    const auto sharded = fully_shard(model, {world}, model.units(), options);
    const at::Tensor up = model.blocks[1]->up, x = at::ones({2, 5}, up.options().requires_grad(false));
    const auto expect_refused = [&] {
      EXPECT_EQ(code_of([&] { up.sum(); }), kUsedOutside);
      EXPECT_EQ(code_of([&] { up.detach(); }), kUsedOutside);
      EXPECT_EQ(code_of([&] { up.clone(); }), kUsedOutside);
      EXPECT_EQ(code_of([&] { at::linear(x, up); }), kUsedOutside);
      EXPECT_EQ(code_of([&] { at::cat({x, up}); }), kUsedOutside);
      EXPECT_EQ(code_of([&] { ops::linear(x, up); }), kUsedOutside);
      EXPECT_EQ(code_of([&] { up.variable_data().item<double>(); }), kUsedOutside);
      EXPECT_EQ(code_of([&] {
                  const at::NoGradGuard no_grad;
                  up.add_(1.0);
                }),
                kUsedOutside);
      for (const auto& read : std::vector<std::function<void()>>{
               [&] { up.const_data_ptr(); }, [&] { up.mutable_data_ptr(); }, [&] { up.storage().data(); }}) {
        const std::string told = told_by(read);
        EXPECT_NE(told.find("parameter 'block1.up' of a sharded module"), std::string::npos) << told;
        EXPECT_NE(told.find("unit 'block1'"), std::string::npos) << told;
      }
    };
    expect_refused();
    try {
      up.const_data_ptr();
    } catch (const c10::Error& error) {
      EXPECT_EQ(std::string(error.what()).find("frame #"), std::string::npos) << error.what();
    }
    const auto batch = testing::toy_batch(0);
    model.loss(batch.words, batch.labels).backward();
    expect_refused();
    sharded->unshard();
    EXPECT_TRUE(up.sum().defined());
    sharded->reshard();
    expect_refused();
    // Calls that need no values work.
    EXPECT_EQ(up.sizes(), (std::vector<int64_t>{3, 5}));
    EXPECT_TRUE(up.requires_grad());
    EXPECT_EQ(told_by([&] { up.sum(); }).find("defect"), std::string::npos);
  });
}

TEST(MisuseTest, ABlockIsRunWithoutNnCall) {
  on_hollow_ranks([](const auto& world, const ShardOptions& options) {
    testing::ToyModel model;
    const auto sharded = fully_shard(model, {world}, model.units(), options);
    const auto type = options.mixed_precision.param_dtype.value_or(at::kDouble);
    EXPECT_EQ(code_of([&] { model.blocks[0]->forward(at::ones({2, 5}, type)); }), kUsedOutside);
    // The block is called inside the root's forward, where only the root's own parameters are gathered.
    const auto batch = testing::toy_batch(0);
    EXPECT_EQ(code_of([&] {
                nn::call_hooked(model, batch.words, [&](const at::Tensor& ids) {
                  return model.blocks[0]->forward(at::embedding(model.embedding, ids));
                });
              }),
              kUsedOutside);
    sharded->zero_grad();
    model.loss(batch.words, batch.labels).backward();
  });
}

struct OwnModules : torch::nn::Module {
  OwnModules() {
    norm = register_module("norm", std::make_shared<nn::RMSNorm>(8, 1e-5, at::kFloat));
    linear = register_module("linear", std::make_shared<nn::Linear>(8, 4, true, at::kFloat));
    for (auto& parameter : parameters()) {
      nn::materialize(parameter, at::ones(parameter.sizes(), at::kFloat));
    }
  }
  at::Tensor forward(const at::Tensor& x) { return linear->forward(norm->forward(x)); }
  std::shared_ptr<nn::RMSNorm> norm;
  std::shared_ptr<nn::Linear> linear;
};

TEST(MisuseTest, OurOwnModulesAreRunWithoutNnCall) {
  comm::run_fake_ranks(2, [](const auto& world) {
    OwnModules model;
    const auto sharded = fully_shard(model, {world}, {});
    const at::Tensor x = at::ones({2, 8});
    EXPECT_EQ(code_of([&] { model.forward(x); }), kUsedOutside);
    EXPECT_EQ(code_of([&] { model.linear->forward(x); }), kUsedOutside);
    const at::NoGradGuard no_grad;
    EXPECT_EQ(code_of([&] { model.forward(x); }), kUsedOutside);
    EXPECT_NEAR(nn::call(model, x).mean().template item<double>(), 9.0, 1e-3);
  });
}

TEST(MisuseTest, ShardedTwice) {
  for (const int64_t ranks : {1, 2}) {
    comm::run_fake_ranks(ranks, [](const auto& world) {
      testing::ToyModel model;
      const auto batch = testing::toy_batch(0);
      const auto sharded = fully_shard(model, {world}, model.units());
      const at::Tensor before = model.loss(batch.words, batch.labels);
      EXPECT_EQ(code_of([&] { fully_shard(model, {world}, model.units()); }), "E-CONFIG-SHARDED-TWICE");
      EXPECT_EQ(code_of([&] { fully_shard(model, {world}, {}); }), "E-CONFIG-SHARDED-TWICE");
      EXPECT_EQ(code_of([&] { fully_shard(*model.blocks[0], {world}, {}); }), "E-CONFIG-SHARDED-TWICE");
      EXPECT_TRUE(at::equal(model.loss(batch.words, batch.labels), before));
    });
  }
  // A part of the model was sharded before, and then got activation checkpointing.
  testing::ToyModel model;
  const auto part = fully_shard(*model.blocks[1], {comm::Communicator::single()}, {});
  checkpoint_activations(*model.blocks[1]);
  EXPECT_EQ(code_of([&] { fully_shard(model, {comm::Communicator::single()}, {}); }),
            "E-CONFIG-SHARDED-TWICE");
}

TEST(MisuseTest, UnitsThatDoNotFit) {
  for (const int64_t ranks : {1, 2}) {
    comm::run_fake_ranks(ranks, [](const auto& world) {
      testing::ToyModel model;
      const auto other = std::make_shared<testing::ToyBlock>(5, 3, 0.0);
      const auto code_with = [&](const std::vector<std::shared_ptr<torch::nn::Module>>& units) {
        return code_of([&] { fully_shard(model, {world}, units); });
      };
      EXPECT_EQ(code_with({other}), "E-CONFIG-SHARD-UNITS");
      EXPECT_EQ(code_with({nullptr}), "E-CONFIG-SHARD-UNITS");
      EXPECT_EQ(code_with({model.blocks[0], model.blocks[0]}), "E-CONFIG-SHARD-UNITS");
      EXPECT_EQ(code_of([&] { fully_shard(model, {nullptr}, model.units()); }), "E-CONFIG-SHARD-GROUPS");
      // Nothing was touched.
      EXPECT_TRUE(at::equal(model.embedding, testing::ToyModel().embedding));
      fully_shard(model, {world}, model.units());
    });
  }
}

TEST(MisuseTest, AScalarParameter) {
  comm::run_fake_ranks(2, [](const auto& world) {
    testing::ToyModel model;
    model.register_parameter("scale", at::ones({}, at::kDouble));
    EXPECT_EQ(code_of([&] { fully_shard(model, {world}, model.units()); }), "E-CONFIG-SHARD-SCALAR");
    // Replication over ranks works: each holds the whole scalar, and nothing is cut.
    fully_shard(model, {comm::Communicator::single(), world}, model.units());
  });
}

// Runs `body` on a single rank, on ranks that cut the parameters, and on ranks that replicate them.
void on_all_groups(const std::function<void(const ShardGroups&)>& body) {
  body({comm::Communicator::single()});
  comm::run_fake_ranks(2, [&](const auto& world) { body({world}); });
  comm::run_fake_ranks(2, [&](const auto& world) { body({comm::Communicator::single(), world}); });
}

constexpr const char* kNoValues = "E-CONFIG-NO-VALUES";

TEST(MisuseTest, ValuesAreMissing) {
  on_all_groups([](const ShardGroups& groups) {
    OwnModules model;
    testing::move_to_meta(model);
    const auto sharded = fully_shard(model, groups, {});
    EXPECT_EQ(code_of([&] { nn::call(model, at::ones({2, 8})); }), kNoValues);
    EXPECT_EQ(code_of([&] { sharded->full_tensor(sharded->parameters()[0]); }), kNoValues);
    EXPECT_EQ(code_of([&] { sharded->unshard(); }), kNoValues);
    EXPECT_EQ(code_of([&] { sharded->trained_tiles(); }), kNoValues);
    sharded->zero_grad();
    sharded->materialize([](const auto& parameter) { parameter.tile.fill_(1.0); });
    EXPECT_NEAR(nn::call(model, at::ones({2, 8})).mean().item<double>(), 9.0, 1e-3);
  });
}

TEST(MisuseTest, AFillThatThrows) {
  on_all_groups([](const ShardGroups& groups) {
    testing::ToyModel plain;
    const auto batch = testing::toy_batch(0);
    plain.loss(batch.words, batch.labels).backward();
    for (const bool is_last : {false, true}) {
      testing::ToyModel model;
      testing::move_to_meta(model);
      const auto sharded = fully_shard(model, groups, model.units());
      const auto& parameters = sharded->parameters();
      const std::string failing = is_last ? parameters.back().name : parameters.front().name;
      const auto fill = [&](bool fails) {
        sharded->materialize([&](const ShardedParameter& parameter) {
          if (fails && parameter.name == failing)
            throw Error(ErrorKind::Data, "ON-PURPOSE", "a test wants this");
          const at::Tensor whole = plain.named_parameters().find(parameter.name)->detach();
          parameter.tile.copy_(whole.narrow(0, parameter.box.offset[0], parameter.box.size[0]));
        });
      };
      EXPECT_EQ(code_of([&] { fill(true); }), "E-DATA-ON-PURPOSE");
      EXPECT_EQ(code_of([&] { model.loss(batch.words, batch.labels); }), kNoValues);
      EXPECT_EQ(code_of([&] { sharded->trained_tiles(); }), kNoValues);
      fill(false);
      model.loss(batch.words, batch.labels).backward();  // gradients are the same on all ranks, and averaged
      for (const ShardedParameter& parameter : parameters) {
        const at::Tensor whole = plain.named_parameters().find(parameter.name)->grad();
        if (!whole.defined()) continue;
        const at::Tensor want = whole.narrow(0, parameter.box.offset[0], parameter.box.size[0]);
        EXPECT_TRUE(at::allclose(parameter.tile.grad(), want, 1e-12)) << parameter.name;
      }
    }
  });
}

// Parameters that have values keep them.
TEST(MisuseTest, OnlyAPartIsOfTheMetaDevice) {
  on_all_groups([](const ShardGroups& groups) {
    OwnModules model;
    testing::move_to_meta(*model.linear);
    const auto sharded = fully_shard(model, groups, {});
    EXPECT_EQ(code_of([&] { nn::call(model, at::ones({2, 8})); }), kNoValues);
    sharded->materialize([](const auto& parameter) {
      EXPECT_TRUE(parameter.name.starts_with("linear.")) << parameter.name;
      parameter.tile.fill_(1.0);
    });
    EXPECT_NEAR(nn::call(model, at::ones({2, 8})).mean().item<double>(), 9.0, 1e-3);
  });
}

TEST(MisuseTest, AComplexParameter) {
  on_all_groups([](const ShardGroups& groups) {
    testing::ToyModel model;
    model.blocks[2]->register_parameter("phases", at::zeros({2, 3}, at::kComplexFloat));
    EXPECT_EQ(code_of([&] { fully_shard(model, groups, model.units()); }), "E-CONFIG-SHARD-DTYPE");
    // Nothing was touched.
    EXPECT_TRUE(at::equal(model.embedding, testing::ToyModel().embedding));
  });
}

TEST(MisuseTest, TorchSave) {
  const testing::TempFolder here;
  on_hollow_ranks([&](const auto& world, const ShardOptions& options) {
    const auto model = std::make_shared<testing::ToyModel>();
    const auto sharded = fully_shard(*model, {world}, model->units(), options);
    const std::string file = here / ("model" + std::to_string(world->rank()));
    const std::shared_ptr<torch::nn::Module> module = model, block = model->blocks[0];
    EXPECT_EQ(code_of([&] { torch::save(module, file); }), "E-CONFIG-SHARDED-SAVE");
    EXPECT_EQ(code_of([&] { torch::save(block, file); }), "E-CONFIG-SHARDED-SAVE");
    EXPECT_FALSE(std::filesystem::exists(file));
    // A tensor that is saved alone is read by LibTorch itself.
    EXPECT_NE(told_by([&] { torch::save(model->blocks[0]->up, file); }).find("parameter 'block0.up' of a"),
              std::string::npos);
    std::filesystem::remove(file);
    EXPECT_EQ(code_of([&] { model->to(at::kBFloat16); }), kUsedOutside);
  });
}

// On a single rank that computes in the stored type, the module is a plain one and can be saved.
TEST(MisuseTest, TorchSaveOfWhatOneRankHoldsWhole) {
  const testing::TempFolder here;
  const auto model = std::make_shared<testing::ToyModel>();
  const auto sharded = fully_shard(*model, {comm::Communicator::single()}, model->units());
  const std::shared_ptr<torch::nn::Module> module = model;
  torch::save(module, here / "model");
  std::shared_ptr<torch::nn::Module> read = std::make_shared<testing::ToyModel>();
  {
    const at::NoGradGuard no_grad;
    for (auto& parameter : read->parameters()) parameter.zero_();
  }
  torch::load(read, here / "model");
  for (const auto& entry : read->named_parameters()) {
    EXPECT_TRUE(at::equal(entry.value(), *model->named_parameters().find(entry.key()))) << entry.key();
  }
  // The file can also be loaded into the sharded model.
  std::shared_ptr<torch::nn::Module> target = model;
  torch::load(target, here / "model");
}

TEST(MisuseTest, TheShardedModelIsGone) {
  on_hollow_ranks([](const auto& world, const ShardOptions& options) {
    testing::ToyModel model;
    auto sharded = fully_shard(model, {world}, model.units(), options);
    const auto batch = testing::toy_batch(0);
    const at::Tensor loss = model.loss(batch.words, batch.labels);
    sharded.reset();
    EXPECT_EQ(code_of([&] { loss.backward(); }), "E-CONFIG-SHARDED-MODEL-GONE");
    EXPECT_EQ(code_of([&] { model.loss(batch.words, batch.labels); }), "E-CONFIG-SHARDED-MODEL-GONE");
  });
}

// Parameters that DDP replicates are plain tensors if nothing is trained, so the model outlives the sharded
// one.
TEST(MisuseTest, AWholeModelOutlivesItsShardedModelInEvaluation) {
  comm::run_fake_ranks(2, [](const auto& world) {
    testing::ToyModel model;
    auto sharded = fully_shard(model, {comm::Communicator::single(), world}, model.units());
    const auto batch = testing::toy_batch(0);
    const at::Tensor before = model.loss(batch.words, batch.labels);
    sharded.reset();
    {
      const at::NoGradGuard no_grad;
      EXPECT_TRUE(at::equal(model.loss(batch.words, batch.labels), before));
    }
    EXPECT_EQ(code_of([&] { model.loss(batch.words, batch.labels); }), "E-CONFIG-SHARDED-MODEL-GONE");
    EXPECT_EQ(code_of([&] { before.backward(); }), "E-CONFIG-SHARDED-MODEL-GONE");
  });
}

TEST(MisuseTest, AParameterIsFrozenAfterwards) {
  on_hollow_ranks([](const auto& world, const ShardOptions& options) {
    testing::ToyModel model;
    model.blocks[2]->up.set_requires_grad(false);
    const auto sharded = fully_shard(model, {world}, model.units(), options);
    const auto batch = testing::toy_batch(0);
    for (const at::Tensor& parameter : {model.blocks[0]->up, model.blocks[2]->up}) {
      const bool was_trained = parameter.requires_grad();
      parameter.set_requires_grad(!was_trained);
      EXPECT_EQ(code_of([&] { model.loss(batch.words, batch.labels); }), "E-CONFIG-SHARDED-REQUIRES-GRAD");
      {
        const at::NoGradGuard no_grad;
        model.loss(batch.words, batch.labels);
      }
      parameter.set_requires_grad(was_trained);
      model.loss(batch.words, batch.labels).backward();
    }
  });
}

// A caller's mistake is not reported as a defect of the library.
TEST(MisuseTest, ArgumentsThatDoNotFit) {
  const auto single = comm::Communicator::single();
  const at::Tensor x = at::ones({2, 3}), weight = at::ones({4, 5});
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { ops::linear(x, weight); },
           [&] { ops::linear(at::Tensor(), weight); },
           [&] { ops::linear_cross_entropy(x, weight, at::zeros({2}, at::kLong)); },
           [&] { nn::RMSNorm(8, 1e-5, at::kFloat).forward(at::Tensor()); },
           [&] { single->all_reduce(weight.t()); },
           [&] { single->all_gather_single(x, weight); },
           [&] { DeviceMesh(single, {}).group("no axis"); },
       }) {
    EXPECT_EQ(code_of(call), "E-CONFIG-ARGUMENT");
    EXPECT_EQ(told_by(call).find("defect"), std::string::npos) << told_by(call);
  }
}

// LibTorch's optimizers pass over parameters without a gradient, and would train nothing without a word.
TEST(MisuseTest, AnOptimizerOfTheModulesParameters) {
  on_hollow_ranks([](const auto& world, const ShardOptions& options) {
    testing::ToyModel model;
    const auto sharded = fully_shard(model, {world}, model.units(), options);
    torch::optim::SGD sgd(model.parameters(), torch::optim::SGDOptions(0.1));
    torch::optim::AdamW adamw(model.parameters(), torch::optim::AdamWOptions(0.1));
    torch::optim::SGD right(sharded->trained_tiles(), torch::optim::SGDOptions(0.1));
    const auto batch = testing::toy_batch(0);
    for (int step = 0; step < 3; ++step) {
      // The last step adds to the gradients of the one before.
      if (step == 1) sharded->zero_grad();
      model.loss(batch.words, batch.labels).backward();
      EXPECT_EQ(code_of([&] { sgd.step(); }), kUsedOutside);
      EXPECT_EQ(code_of([&] { adamw.step(); }), kUsedOutside);
      EXPECT_EQ(code_of([&] { torch::nn::utils::clip_grad_norm_(model.parameters(), 1.0); }), kUsedOutside);
      EXPECT_NE(told_by([&] { sgd.step(); }).find("trained_tiles()"), std::string::npos);
      const at::Tensor tile = sharded->trained_tiles()[0], before = tile.detach().clone();
      right.step();
      EXPECT_FALSE(at::equal(tile, before));
    }
  });
}

// Module::zero_grad() does the same as ShardedModel::zero_grad().
TEST(MisuseTest, TheModulesOwnZeroGrad) {
  for (const int64_t ranks : {1, 2}) {
    comm::run_fake_ranks(ranks, [](const auto& world) {
      testing::ToyModel model;
      const auto sharded = fully_shard(model, {world}, model.units());
      const auto batch = testing::toy_batch(0);
      model.loss(batch.words, batch.labels).backward();
      EXPECT_TRUE(sharded->trained_tiles()[0].grad().defined());
      model.zero_grad();
      EXPECT_FALSE(sharded->trained_tiles()[0].grad().defined());
      model.loss(batch.words, batch.labels).backward();
      model.zero_grad(/*set_to_none=*/false);
      // A single rank's tiles are the module's own parameters.
      EXPECT_EQ(sharded->trained_tiles()[0].grad().defined(), world->size() == 1);
      model.loss(batch.words, batch.labels).backward();
    });
  }
}

}  // namespace
}  // namespace tessera::parallel

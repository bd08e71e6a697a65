#include "tessera/parallel/state_dict.h"

#include <gtest/gtest.h>

#include "tessera/comm/fake/fake_backend.h"
#include "tessera/core/error.h"
#include "tessera/io/safetensors.h"
#include "tessera/nn/materialize.h"
#include "tessera/parallel/device_mesh.h"

#include "tests/parallel/interruption.h"
#include "tests/parallel/toy_model.h"
#include "tests/testing/temp_folder.h"

namespace tessera::parallel {
namespace {

using testing::code_of;

class BufferedModel : public testing::ToyModel {
 public:
  explicit BufferedModel(double factor = 1.0) {
    counts = register_buffer("counts", at::arange(3, at::kLong));
    mean = register_buffer("mean", at::full({2, 2}, 0.5, at::kFloat));
    const at::NoGradGuard no_grad;
    for (auto& parameter : parameters()) parameter.mul_(factor);  // the tied one twice
    counts.mul_(static_cast<int64_t>(factor));
    mean.mul_(factor);
  }
  at::Tensor counts, mean;
};

ShardGroups groups_of(const std::shared_ptr<comm::Communicator>& world, int64_t replicate) {
  ParallelDims dims;
  dims.dp_replicate = replicate;
  const DeviceMesh mesh(world, dims);
  return {mesh.group(kAxisFsdp), mesh.group(kAxisDpReplicate)};
}

struct Case {
  int64_t ranks, replicate;
};
const std::vector<Case> kCases = {{1, 1}, {2, 1}, {3, 1}, {2, 2}, {4, 2}};

void for_all(const std::function<void(const std::shared_ptr<comm::Communicator>&, int64_t)>& body) {
  for (const auto& [ranks, replicate] : kCases) {
    comm::run_fake_ranks(ranks, [&, replicate = replicate](const auto& world) { body(world, replicate); });
  }
}

void expect_holds(const ShardedModel& sharded, const torch::nn::Module& plain) {
  for (const auto& parameter : sharded.parameters()) {
    const at::Tensor want = *plain.named_parameters().find(parameter.name);
    const at::Tensor rows = want.narrow(0, parameter.box.offset[0], parameter.box.size[0]);
    EXPECT_TRUE(at::equal(parameter.tile, rows.to(parameter.tile.scalar_type()))) << parameter.name;
  }
  for (const auto& [name, buffer] : sharded.buffers()) {
    EXPECT_TRUE(at::equal(buffer, *plain.named_buffers().find(name))) << name;
  }
}

TEST(StateDictTest, TheFirstRankGetsAllAndGivesAll) {
  for_all([](const auto& world, int64_t replicate) {
    const BufferedModel plain(3.0);
    BufferedModel model(3.0), other;
    const auto sharded = fully_shard(model, groups_of(world, replicate), model.units());
    const StateDict state = full_state_dict(*sharded);
    if (world->rank() > 0) {
      EXPECT_TRUE(state.empty());
    } else {
      // One name of the shared parameter.
      EXPECT_EQ(state.size(), plain.named_parameters().size() - 1 + 2);
      EXPECT_EQ(state.back().first, "mean");
      for (const auto& [name, tensor] : state) {
        const at::Tensor* parameter = plain.named_parameters().find(name);
        EXPECT_TRUE(at::equal(tensor, parameter != nullptr ? *parameter : *plain.named_buffers().find(name)));
      }
    }
    const auto loaded = fully_shard(other, groups_of(world, replicate), other.units());
    load_full_state_dict(*loaded, state);
    expect_holds(*loaded, plain);
    const auto batch = testing::toy_batch(0);
    EXPECT_TRUE(at::equal(other.loss(batch.words, batch.labels), model.loss(batch.words, batch.labels)));
  });
}

TEST(StateDictTest, AFileOfAnyNumberOfRanksIsReadByAnyOther) {
  const testing::TempFolder here;
  const BufferedModel plain(3.0);
  for (const auto& [ranks, replicate] : kCases) {
    const std::string path =
        here / (std::to_string(ranks) + "x" + std::to_string(replicate) + ".safetensors");
    comm::run_fake_ranks(ranks, [&, replicate = replicate](const auto& world) {
      BufferedModel model(3.0);
      const auto sharded = fully_shard(model, groups_of(world, replicate), model.units());
      save_state_dict(*sharded, path);
    });
    const auto file = io::SafetensorsFile::open(path);
    EXPECT_EQ(file.tensors().size(), plain.named_parameters().size() - 1 + 2);
    EXPECT_EQ(file.find("counts")->dtype, DType::I64);
    for_all([&](const auto& world, int64_t other_replicate) {
      BufferedModel model;
      ShardOptions options;
      options.mixed_precision.param_dtype = at::kFloat;
      const auto sharded = fully_shard(model, groups_of(world, other_replicate), model.units(), options);
      sharded->unshard();  // what is gathered does not go stale
      load_state_dict(*sharded, path);
      expect_holds(*sharded, plain);
    });
  }
}

TEST(StateDictTest, AModuleOfTheMetaDeviceIsFilled) {
  const testing::TempFolder here;
  for_all([&](const auto& world, int64_t replicate) {
    const std::string path = here / "model.safetensors";
    BufferedModel model(3.0);
    const auto sharded = fully_shard(model, groups_of(world, replicate), model.units());
    const StateDict state = full_state_dict(*sharded);
    save_state_dict(*sharded, path);
    for (const bool is_file : {false, true}) {
      BufferedModel empty;
      for (auto& parameter : empty.parameters()) {
        nn::materialize(parameter,
                        at::empty(parameter.sizes(), at::TensorOptions(at::kMeta).dtype(at::kDouble)));
      }
      const auto filled = fully_shard(empty, groups_of(world, replicate), empty.units());
      EXPECT_EQ(code_of([&] { full_state_dict(*filled); }),
                filled->groups().replicate->rank() == 0 ? "E-CONFIG-NO-VALUES" : "none");
      if (is_file) {
        load_state_dict(*filled, path);
      } else {
        load_full_state_dict(*filled, state);
      }
      expect_holds(*filled, BufferedModel(3.0));
      const auto batch = testing::toy_batch(0);
      empty.loss(batch.words, batch.labels).backward();
      EXPECT_TRUE(filled->trained_tiles()[0].grad().defined());
    }
    world->barrier();  // the file is written again
  });
}

TEST(StateDictTest, ADictOfAPlainModuleFits) {
  for_all([](const auto& world, int64_t replicate) {
    const BufferedModel plain(3.0);
    StateDict state;
    for (const auto& entry : plain.named_parameters()) state.emplace_back(entry.key(), entry.value());
    for (const auto& entry : plain.named_buffers()) state.emplace_back(entry.key(), entry.value());
    // Only the shared parameter's second name, and another floating type.
    std::erase_if(state, [](const auto& item) { return item.first == "embedding"; });
    for (auto& [name, tensor] : state) {
      if (tensor.is_floating_point()) tensor = tensor.detach().to(at::kDouble);
    }
    BufferedModel model;
    const auto sharded = fully_shard(model, groups_of(world, replicate), model.units());
    load_full_state_dict(*sharded, world->rank() == 0 ? state : StateDict());
    expect_holds(*sharded, plain);
  });
}

TEST(StateDictTest, WhatDoesNotFitChangesNothingOnAnyRank) {
  for_all([](const auto& world, int64_t replicate) {
    BufferedModel model;
    const auto sharded = fully_shard(model, groups_of(world, replicate), model.units());
    StateDict state = full_state_dict(*sharded);
    if (world->rank() == 0) {
      state[0].second = at::zeros({12, 5});
      std::erase_if(state,
                    [](const auto& item) { return item.first == "block1.up" || item.first == "mean"; });
      state.emplace_back("mean", at::zeros({2, 2}, at::kLong));
      state.emplace_back("stranger", at::zeros({1}));
    }
    std::string told;
    try {
      load_full_state_dict(*sharded, state);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), "E-CKPT-STATE-DICT");
      told = error.what();
    }
    for (const char* part : {"1 missing: block1.up", "embedding (got [12, 5], need [11, 5])",
                             "mean (got integers)", "1 that the module does not have: stranger"}) {
      EXPECT_NE(told.find(part), std::string::npos) << told;
    }
    EXPECT_EQ(told.find("defect"), std::string::npos) << told;
    expect_holds(*sharded, BufferedModel());
  });
}

TEST(StateDictTest, FilesThatCannotBeWrittenOrRead) {
  const testing::TempFolder here;
  here.write("a_file", "text");
  for_all([&](const auto& world, int64_t replicate) {
    BufferedModel model;
    const auto sharded = fully_shard(model, groups_of(world, replicate), model.units());
    const std::string first = world->rank() == 0 ? "" : "E-STORAGE-STATE-DICT";
    const std::string code = code_of([&] { save_state_dict(*sharded, here / "a_file/x.safetensors"); });
    EXPECT_TRUE(world->rank() == 0 ? code.starts_with("E-STORAGE-") : code == first) << code;
    EXPECT_TRUE(code_of([&] { load_state_dict(*sharded, here / "none.safetensors"); }).starts_with("E-"));
    EXPECT_TRUE(code_of([&] { load_state_dict(*sharded, here / "a_file"); }).starts_with("E-MODEL-"));
  });
}

}  // namespace
}  // namespace tessera::parallel

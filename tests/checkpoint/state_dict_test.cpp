#include "tessera/checkpoint/state_dict.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "tessera/comm/fake/fake_backend.h"
#include "tessera/core/error.h"
#include "tessera/device/torch_dtype.h"
#include "tessera/io/safetensors.h"
#include "tessera/parallel/device_mesh.h"

#include "tests/parallel/interruption.h"
#include "tests/parallel/toy_model.h"
#include "tests/testing/temp_folder.h"

namespace tessera::checkpoint {
namespace {

using namespace parallel;
using testing::code_of;

class BufferedModel : public testing::ToyModel {
 public:
  explicit BufferedModel(double factor = 1.0) {
    counts = register_buffer("counts", at::arange(3, at::kLong));
    mean = register_buffer("mean", at::full({2, 2}, 0.5, at::kFloat));
    const at::NoGradGuard no_grad;
    for (auto& parameter : parameters()) parameter.mul_(factor);  // multiplies the tied parameter twice
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
      // The shared parameter has one name only, and there are two buffers.
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
      sharded->unshard();  // loading must not leave old gathered values
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
      testing::move_to_meta(empty);
      const auto filled = fully_shard(empty, groups_of(world, replicate), empty.units());
      EXPECT_EQ(code_of([&] { full_state_dict(*filled); }), "E-CONFIG-NO-VALUES");
      EXPECT_EQ(code_of([&] { save_state_dict(*filled, here / "none"); }), "E-CONFIG-NO-VALUES");
      EXPECT_FALSE(std::filesystem::exists(here / "none"));
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

// Only loading gives buffers values.
TEST(StateDictTest, BuffersOfTheMetaDevice) {
  for_all([](const auto& world, int64_t replicate) {
    BufferedModel source(3.0), model;
    const auto state = full_state_dict(*fully_shard(source, groups_of(world, replicate), source.units()));
    testing::move_to_meta(model.mean);
    const auto sharded = fully_shard(model, groups_of(world, replicate), model.units());
    sharded->materialize([](const auto&) { FAIL() << "the parameters have values"; });
    const auto batch = testing::toy_batch(0);
    for (const auto& use : std::vector<std::function<void()>>{[&] { model.loss(batch.words, batch.labels); },
                                                              [&] { full_state_dict(*sharded); }}) {
      try {
        use();
        FAIL() << "a buffer without values was used";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), "E-CONFIG-NO-VALUES");
        EXPECT_NE(std::string(error.what()).find("buffer 'mean'"), std::string::npos) << error.what();
      }
    }
    load_full_state_dict(*sharded, state);
    expect_holds(*sharded, BufferedModel(3.0));
    model.loss(batch.words, batch.labels).backward();
  });
}

TEST(StateDictTest, TensorsWithoutValuesAreRefusedOnEveryRank) {
  comm::run_fake_ranks(2, [](const auto& world) {
    BufferedModel source(3.0), model;
    const auto hollow = fully_shard(source, {world}, source.units());
    const auto sharded = fully_shard(model, {world}, model.units());
    const StateDict whole = full_state_dict(*hollow);
    for (const at::Tensor& bad : std::vector<at::Tensor>{
             source.embedding, at::empty({11, 5}, at::TensorOptions(at::kMeta).dtype(at::kDouble)),
             at::Tensor(), at::zeros({11, 5}).to_sparse(), at::zeros({11, 5}, at::kComplexFloat)}) {
      StateDict state = whole;
      if (world->rank() == 0) state[0].second = bad;
      const std::string code = code_of([&] { load_full_state_dict(*sharded, state); });
      const std::string want = world->rank() == 0 ? "E-CKPT-STATE-DICT" : "E-CKPT-OTHER-RANK";
      EXPECT_TRUE(code == want || code.starts_with("E-CONFIG-")) << code;
      expect_holds(*sharded, BufferedModel());
    }
    load_full_state_dict(*sharded, whole);
    expect_holds(*sharded, BufferedModel(3.0));
  });
}

class IntegerModel : public BufferedModel {
 public:
  explicit IntegerModel(int64_t first, at::ScalarType type = at::kLong) {
    register_parameter("codes", (at::arange(10, at::kLong) + first).to(type).view({5, 2}), false);
    register_parameter("bytes", at::full({3}, first % 200, at::kByte), false);
  }
};

TEST(StateDictTest, ParametersOfIntegers) {
  const testing::TempFolder here;
  for_all([&](const auto& world, int64_t replicate) {
    const std::string path = here / "integers.safetensors";
    const int64_t first = (int64_t{1} << 53) + 1;  // a number that no floating type holds
    const IntegerModel plain(first);
    IntegerModel model(first), from_file(7), from_dict(7);
    const auto sharded = fully_shard(model, groups_of(world, replicate), model.units());
    const auto batch = testing::toy_batch(0);
    model.loss(batch.words, batch.labels).backward();
    save_state_dict(*sharded, path);
    const auto loaded = fully_shard(from_file, groups_of(world, replicate), from_file.units());
    load_state_dict(*loaded, path);
    expect_holds(*loaded, plain);
    const auto given = fully_shard(from_dict, groups_of(world, replicate), from_dict.units());
    load_full_state_dict(*given, full_state_dict(*sharded));
    expect_holds(*given, plain);
    world->barrier();  // the file is written again
  });
}

TEST(StateDictTest, IntegersOfAnotherSize) {
  const testing::TempFolder here;
  comm::run_fake_ranks(2, [&](const auto& world) {
    IntegerModel model(3), narrow(9, at::kInt);
    save_state_dict(*fully_shard(model, {world}, model.units()), here / "integers.safetensors");
    const auto loaded = fully_shard(narrow, {world}, narrow.units());
    load_state_dict(*loaded, here / "integers.safetensors");
    expect_holds(*loaded, IntegerModel(3));
  });
}

TEST(StateDictTest, ABufferOfATypeThatNoFileStores) {
  const testing::TempFolder here;
  for_all([&](const auto& world, int64_t replicate) {
    BufferedModel model;
    model.register_buffer("phases", at::zeros({2}, at::kComplexFloat));
    const auto sharded = fully_shard(model, groups_of(world, replicate), model.units());
    EXPECT_EQ(code_of([&] { save_state_dict(*sharded, here / "none"); }), "E-CONFIG-SHARD-DTYPE");
    EXPECT_TRUE(here.entries().empty());
  });
}

TEST(StateDictTest, ADictOfAPlainModuleFits) {
  for_all([](const auto& world, int64_t replicate) {
    const BufferedModel plain(3.0);
    StateDict state;
    for (const auto& entry : plain.named_parameters()) state.emplace_back(entry.key(), entry.value());
    for (const auto& entry : plain.named_buffers()) state.emplace_back(entry.key(), entry.value());
    // The dict has only the shared parameter's second name, and another floating type.
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
      EXPECT_EQ(error.code(), world->rank() == 0 ? "E-CKPT-STATE-DICT" : "E-CKPT-OTHER-RANK");
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
    const std::string first = world->rank() == 0 ? "" : "E-STORAGE-OTHER-RANK";
    const std::string code = code_of([&] { save_state_dict(*sharded, here / "a_file/x.safetensors"); });
    EXPECT_TRUE(world->rank() == 0 ? code.starts_with("E-STORAGE-") : code == first) << code;
    const std::string none = code_of([&] { load_state_dict(*sharded, here / "none.safetensors"); });
    EXPECT_TRUE(none.starts_with("E-STORAGE-") || none.starts_with("E-MODEL-")) << none;
    EXPECT_TRUE(code_of([&] { load_state_dict(*sharded, here / "a_file"); }).starts_with("E-MODEL-"));
  });
}

// The second rank's file holds a late parameter in a type that is not read. This is found after others have
// been read.
TEST(StateDictTest, AFileThatCannotBeReadToItsEndOnOneRank) {
  const testing::TempFolder here;
  const std::string good = here / "good.safetensors", bad = here / "bad.safetensors";
  {
    BufferedModel model(3.0);
    const auto alone = fully_shard(model, {comm::Communicator::single()}, model.units());
    save_state_dict(*alone, good);
    const std::string late = "block2.down";
    std::vector<io::TensorSpec> specs;
    const StateDict state = full_state_dict(*alone);
    for (const auto& [name, tensor] : state) {
      const DType type = name == late ? DType::F8E4M3 : to_dtype(tensor.scalar_type());
      specs.push_back({name, type, tensor.sizes().vec()});
    }
    io::SafetensorsWriter writer(bad, specs, {});
    for (const auto& [name, tensor] : state) {
      const int64_t size = name == late ? tensor.numel() : static_cast<int64_t>(tensor.nbytes());
      writer.write(name, 0, tensor.const_data_ptr(), size);
    }
    writer.commit();
  }
  comm::run_fake_ranks(4, [&](const auto& world) {
    BufferedModel model;
    const auto sharded = fully_shard(model, groups_of(world, 2), model.units());
    const bool is_bad = world->rank() == 1;
    EXPECT_EQ(code_of([&] { load_state_dict(*sharded, is_bad ? bad : good); }),
              is_bad ? "E-MODEL-DTYPE" : "E-MODEL-OTHER-RANK");
    // A module that is half loaded cannot be used.
    const auto batch = testing::toy_batch(0);
    EXPECT_EQ(code_of([&] { model.loss(batch.words, batch.labels); }), "E-CONFIG-NO-VALUES");
    EXPECT_EQ(code_of([&] { full_state_dict(*sharded); }), "E-CONFIG-NO-VALUES");
    load_state_dict(*sharded, good);
    expect_holds(*sharded, BufferedModel(3.0));
    model.loss(batch.words, batch.labels).backward();
    EXPECT_TRUE(sharded->trained_tiles()[0].grad().defined());
  });
}

}  // namespace
}  // namespace tessera::checkpoint

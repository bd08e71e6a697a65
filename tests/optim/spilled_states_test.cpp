// Tests that optimizer states on a drive have the bits of states in memory, for every optimizer, and that
// faults of the drive are told.
#include "tessera/optim/spilled_states.h"

#include <atomic>
#include <cerrno>
#include <filesystem>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/comm/fake/fake_backend.h"
#include "tessera/core/log.h"
#include "tessera/io/disk_calls.h"
#include "tessera/optim/optimizers.h"
#include "tessera/parallel/box_part.h"

#include "tests/io/expect_error.h"
#include "tests/testing/temp_folder.h"

namespace tessera::optim {
namespace {

using parallel::Placement;
using testing::expect_error;
using testing::TempFolder;

// A place whose blocks are small, so that tiles have several of them, and several tiles share one.
SpillPlace place_in(const TempFolder& folder, int64_t block_bytes, int64_t buffer_count) {
  SpillPlace place{.folder = folder / "states", .block_bytes = block_bytes, .buffer_count = buffer_count};
  place.file.request_bytes = 8192;
  place.file.depth = 3;
  return place;
}

// Parameters of a model: one larger than a block, several that share one, and one that some ranks hold
// nothing of.
const std::vector<std::vector<int64_t>> kShapes = {{130, 96}, {96}, {2, 3}, {64, 70}, {96}, {70, 64}};

struct Model {
  std::vector<at::Tensor> tiles;
  std::vector<parallel::Box> boxes;
  std::unique_ptr<Optimizer> optimizer;
};

// A way to make an optimizer.
struct Way {
  std::string name;
  OptimizerKind kind = OptimizerKind::AdamW;
  at::ScalarType type = at::kFloat;
  bool has_bf16_states = false;
};

std::vector<Way> all_ways() {
  std::vector<Way> ways = {{"adamw in float64", OptimizerKind::AdamW, at::kDouble},
                           {"adamw in bfloat16", OptimizerKind::AdamW, at::kFloat, true}};
  for (const OptimizerFacts& facts : optimizer_table()) ways.push_back({std::string(facts.name), facts.kind});
  return ways;
}

Model make(const Way& way, const std::shared_ptr<comm::Communicator>& world,
           const std::optional<SpillPlace>& spill) {
  Model model;
  std::vector<OptimizedTile> tiles;
  for (size_t i = 0; i < kShapes.size(); ++i) {
    const parallel::Layout layout =
        parallel::Layout(kShapes[i], DType::F32, {}).with({"fsdp", world->size(), Placement::shard(0)});
    const std::vector<int64_t> coordinates = {world->rank()};
    model.boxes.push_back(layout.local_box(coordinates));
    const at::Tensor whole = at::arange(layout.numel(), at::kDouble).mul(0.9).add(0.2).sin().view(kShapes[i]);
    model.tiles.push_back(
        parallel::box_part(whole, model.boxes[i]).to(way.type).contiguous().clone().set_requires_grad(true));
    OptimizedTile tile{.name = "w" + std::to_string(i),
                       .tile = model.tiles[i],
                       .weight_decay = 0.1,
                       .layout = layout,
                       .coordinates = coordinates};
    tile.axes = {{"fsdp", world}};
    if (i == 5) tile.role = nn::ParameterRole::Embedding;
    tiles.push_back(std::move(tile));
  }
  if (way.kind == OptimizerKind::AdamW) {
    AdamWOptions options{.has_bf16_states = way.has_bf16_states, .seed = 7};
    options.spill = spill;
    model.optimizer = make_adamw(std::move(tiles), options);
    return model;
  }
  OptimizerOptions options = default_options(way.kind);
  if (way.kind == OptimizerKind::Sgd) options.momentum = 0.9;
  model.optimizer = make_optimizer(way.kind, std::move(tiles), options, 1, spill);
  return model;
}

void step(const Model& model, int64_t t) {
  for (size_t i = 0; i < model.tiles.size(); ++i) {
    at::Tensor tile = model.tiles[i];
    // One parameter has no gradient in one of the updates.
    if (t == 2 && i == 3) {
      tile.mutable_grad() = at::Tensor();
      continue;
    }
    const int64_t count = parallel::Layout(kShapes[i], DType::F32, {}).numel();
    const at::Tensor whole =
        at::arange(count, at::kDouble).mul(1.3).add(0.7 * static_cast<double>(t)).sin().view(kShapes[i]);
    tile.mutable_grad() = parallel::box_part(whole, model.boxes[i]).to(tile.scalar_type()).contiguous();
  }
  model.optimizer->step(0.01, 0.5);
}

void expect_same(const Model& got, const Model& want) {
  for (size_t i = 0; i < want.tiles.size(); ++i)
    EXPECT_TRUE(at::equal(got.tiles[i].detach(), want.tiles[i].detach())) << "values of tile " << i;
  const auto got_states = got.optimizer->states(), want_states = want.optimizer->states();
  ASSERT_EQ(got_states.size(), want_states.size());
  for (size_t s = 0; s < want_states.size(); ++s) {
    EXPECT_EQ(got_states[s].name, want_states[s].name);
    EXPECT_EQ(got_states[s].layout, want_states[s].layout) << want_states[s].name;
    const at::Tensor got_values = got_states[s].get(), want_values = want_states[s].get();
    EXPECT_EQ(got_values.scalar_type(), want_values.scalar_type()) << want_states[s].name;
    EXPECT_TRUE(at::equal(got_values, want_values)) << want_states[s].name;
  }
}

// Keeps the lines about the drive off the log of the tests.
class SpilledStatesTest : public ::testing::Test {
 protected:
  void SetUp() override { log::set_quiet(true); }
  void TearDown() override { log::set_quiet(false); }
};

TEST_F(SpilledStatesTest, EveryOptimizerHasTheBitsOfStatesInMemory) {
  const TempFolder folder;
  for (const int64_t ranks : {1, 2, 3}) {
    comm::run_fake_ranks(ranks, [&](const auto& world) {
      for (const Way& way : all_ways()) {
        // Blocks of a page, where the largest tile has dozens, and blocks that hold several tiles.
        for (const auto& [block_bytes, buffer_count] : {std::pair{4096, 2}, {20000, 5}, {1 << 20, 4}}) {
          SCOPED_TRACE(way.name + " on " + std::to_string(ranks) + " ranks, blocks of " +
                       std::to_string(block_bytes));
          const Model want = make(way, world, std::nullopt);
          const Model got = make(way, world, place_in(folder, block_bytes, buffer_count));
          expect_same(got, want);
          for (int64_t t = 1; t <= 3; ++t) {
            step(want, t);
            step(got, t);
          }
          expect_same(got, want);
          want.optimizer->move_to_average(true);
          got.optimizer->move_to_average(true);
          expect_same(got, want);
          want.optimizer->move_to_average(false);
          got.optimizer->move_to_average(false);
          // States go from memory to a drive as a checkpoint is loaded.
          const Model other = make(way, world, place_in(folder, block_bytes, buffer_count));
          const auto from = want.optimizer->states(), to = other.optimizer->states();
          for (size_t s = 0; s < from.size(); ++s) to[s].set(from[s].get());
          for (size_t i = 0; i < want.tiles.size(); ++i) other.tiles[i].detach().copy_(want.tiles[i]);
          step(want, 4);
          step(other, 4);
          expect_same(other, want);
        }
      }
    });
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder / "states"));
}

TEST_F(SpilledStatesTest, TrafficIsCountedAndNothingElseIs) {
  const TempFolder folder;
  comm::run_fake_ranks(1, [&](const auto& world) {
    const Way way{"adamw"};
    EXPECT_FALSE(make(way, world, std::nullopt).optimizer->traffic().has_value());
    const Model model = make(way, world, place_in(folder, 65536, 4));
    EXPECT_EQ(model.optimizer->traffic()->bytes_read, 0);
    step(model, 1);
    const StateTraffic traffic = *model.optimizer->traffic();
    int64_t bytes = 0;
    for (const at::Tensor& tile : model.tiles) bytes += 8 * tile.numel();
    EXPECT_GE(traffic.bytes_read, bytes);
    EXPECT_LE(traffic.bytes_read, bytes + 65536);
    EXPECT_EQ(traffic.bytes_written, traffic.bytes_read);
    EXPECT_GE(traffic.update_s, traffic.wait_s);
    // A checkpoint is no part of the updates.
    for (const auto& state : model.optimizer->states()) (void)state.get();
    EXPECT_EQ(model.optimizer->traffic()->bytes_read, traffic.bytes_read);
    // A rule that measures its states first reads them twice, and changes them once.
    for (const OptimizerKind kind : {OptimizerKind::StableAdamW, OptimizerKind::Lamb}) {
      const Model other = make({"", kind}, world, place_in(folder, 65536, 4));
      step(other, 1);
      EXPECT_EQ(other.optimizer->traffic()->bytes_read, 2 * other.optimizer->traffic()->bytes_written);
    }
  });
}

TEST_F(SpilledStatesTest, FaultsOfTheDriveEndTheUpdateWithTheirReason) {
  const TempFolder folder;
  comm::run_fake_ranks(1, [&](const auto& world) {
    for (const OptimizerKind kind : {OptimizerKind::AdamW, OptimizerKind::Muon, OptimizerKind::StableAdamW}) {
      for (const std::string call : {"read", "write"}) {
        for (const int64_t first : {0, 5}) {
          const Model model = make({"", kind}, world, place_in(folder, 4096, 3));
          std::atomic<int64_t> number = 0;
          io::disk::set_transfer_hook([&](std::string_view name, const std::string&, int64_t num_bytes) {
            return name == call && number++ >= first ? -int64_t{EIO} : num_bytes;
          });
          expect_error(ErrorKind::Storage, {"E-STORAGE-IO", "offloaded states", folder / "states"},
                       [&] { step(model, 1); });
          io::disk::set_transfer_hook({});
        }
      }
    }
    io::disk::set_hook(
        [](std::string_view call, const std::string&) { return call == "allocate" ? ENOSPC : 0; });
    expect_error(ErrorKind::Storage, {"E-STORAGE-NO-SPACE", "cannot reserve", "need"},
                 [&] { make({"adamw"}, world, place_in(folder, 4096, 3)); });
    io::disk::set_hook({});
  });
}

}  // namespace
}  // namespace tessera::optim

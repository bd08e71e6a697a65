// Tests of optimizer states on the host, for tiles on devices whose streams run late: results have the bits
// of states on the device, and every order that they need comes from an event.
#include "tessera/optim/offloaded_states.h"

#include <map>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/core/log.h"
#include "tessera/core/memory_ledger.h"
#include "tessera/device/device.h"
#include "tessera/device/device_ledger.h"
#include "tessera/device/pinned_memory.h"
#include "tessera/device/torch_dtype.h"
#include "tessera/optim/optimizer.h"

#include "tests/comm/nccl/nccl_ranks.h"
#include "tests/testing/extent.h"
#include "tests/testing/temp_folder.h"

namespace tessera::optim {
namespace {

namespace fake = testing::fake_device;
using Result = std::map<std::string, at::Tensor>;

constexpr int64_t kSteps = 5;

// Returns values of which no two are equal.
at::Tensor values(at::IntArrayRef shape, double phase) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return at::sin(at::arange(count, on_host(at::kDouble)) * 0.7 + phase).view(shape).to(at::kFloat);
}

struct Tile {
  std::vector<int64_t> shape;
  at::ScalarType type = at::kFloat;
  int64_t columns = 0;  // of the whole parameter, if the tile is a part of each row; 0 = the tile is whole
};

// The tiles have awkward sizes: without elements, in one chunk with others, in several chunks; one has
// another type.
const std::vector<Tile> kTiles = {
    {{3, 5}}, {{0, 4}}, {{257}}, {{1}}, {{40, 35}, at::kFloat, 105}, {{64}}, {{100, 3}, at::kDouble}};

// Returns the layout of a tile, which is that of the second of three ranks.
parallel::Layout layout_of(const Tile& tile) {
  if (tile.columns == 0) return {};
  return {{tile.shape[0], tile.columns}, to_dtype(tile.type), {{"tp", 3, parallel::Placement::shard(1)}}};
}

// The place of the tiles that a device updates.
enum class Lying { OnDevice, OnHost };

std::vector<OptimizedTile> make_tiles(c10::Device device, Lying lying = Lying::OnDevice) {
  std::vector<OptimizedTile> tiles;
  for (size_t i = 0; i < kTiles.size(); ++i) {
    const at::Tensor start = values(kTiles[i].shape, static_cast<double>(i)).to(kTiles[i].type);
    const at::Tensor tile = lying == Lying::OnHost
                                ? empty_pinned(start.sizes(), start.scalar_type(), device).copy_(start)
                                : start.to(device);
    tiles.push_back({.name = "w" + std::to_string(i),
                     .tile = tile.set_requires_grad(true),
                     .weight_decay = 0.1 * static_cast<double>(i),
                     .layout = layout_of(kTiles[i]),
                     .coordinates = std::vector<int64_t>(kTiles[i].columns > 0 ? 1 : 0, 1),
                     .lr_scale = 1.0 + static_cast<double>(i),
                     .updated_on = device});
  }
  return tiles;
}

// Each step leaves other tiles, and so other chunks, without a gradient; the fourth step leaves all without
// one.
bool has_gradient(int64_t step, size_t tile) {
  return step != 3 && (step == 0 || (static_cast<int64_t>(tile) + step) % 3 != 0);
}

void step(const std::vector<OptimizedTile>& tiles, Optimizer& optimizer, int64_t number) {
  for (size_t i = 0; i < tiles.size(); ++i) {
    const auto phase = static_cast<double>(10 * number) + static_cast<double>(i);
    at::Tensor gradient;
    if (has_gradient(number, i))
      gradient = values(kTiles[i].shape, phase).to(kTiles[i].type).to(*tiles[i].updated_on);
    tiles[i].tile.mutable_grad() = gradient.defined() ? gradient.detach() : gradient;
  }
  optimizer.step(1e-2, 0.5);
}

void collect(Result& result, const std::vector<OptimizedTile>& tiles, Optimizer& optimizer) {
  // Tiles are read in the order of the current stream, also those that lie on the host.
  for (const OptimizedTile& tile : tiles) {
    const at::Tensor own = tile.tile.detach();
    const at::Tensor here = at::empty(own.sizes(), own.options().device(*tile.updated_on));
    result[tile.name] = here.copy_(own, /*non_blocking=*/true).to(kHost);
  }
  for (const auto& state : optimizer.states()) result[state.name] = state.get().to(kHost).clone();
}

// Runs several steps without reading anything in between. With chunk_elements 0 all states lie on the device.
Result train(int64_t chunk_elements, Lying lying = Lying::OnDevice, bool has_bf16_states = false,
             const std::optional<SpillPlace>& spill = {}) {
  const auto tiles = make_tiles(fake::device(0), lying);
  const auto optimizer = make_adamw(tiles, {.offload_chunk_elements = chunk_elements,
                                            .spill = spill,
                                            .has_bf16_states = has_bf16_states,
                                            .seed = 4});
  for (int64_t number = 0; number < kSteps; ++number) step(tiles, *optimizer, number);
  Result result;
  collect(result, tiles, *optimizer);
  return result;
}

// Describes the first difference; "" if there is none.
std::string difference(const Result& expected, const Result& got) {
  EXPECT_EQ(expected.size(), got.size());
  for (const auto& [name, tensor] : expected) {
    if (!at::equal(tensor, got.at(name))) return name;
  }
  return "";
}

TEST(OffloadedStatesTest, EveryDelayGivesTheBitsOfStatesOnTheDevice) {
  testing::Random random;
  for (const bool has_bf16_states : {false, true}) {
    testing::use_delays(1);
    const Result expected = train(0, Lying::OnDevice, has_bf16_states);
    EXPECT_EQ(expected.at("w0/exp_avg").scalar_type(), has_bf16_states ? at::kBFloat16 : at::kFloat);
    for (const int64_t chunk_elements : {64, 200, 1000, 1 << 20}) {
      // Rounded states take many operations, so one seed has to do.
      std::vector<uint64_t> seeds = {1};
      if (!has_bf16_states) seeds = testing::some_of<uint64_t>({1, 2, 3, 4, 5}, 1, random);
      for (const uint64_t seed : seeds) {
        SCOPED_TRACE(std::to_string(chunk_elements) + " at once, seed " + std::to_string(seed) +
                     (has_bf16_states ? ", in bfloat16" : ""));
        testing::use_delays(seed);
        EXPECT_EQ(difference(expected, train(chunk_elements, Lying::OnDevice, has_bf16_states)), "");
        EXPECT_EQ(difference(expected, train(chunk_elements, Lying::OnHost, has_bf16_states)), "")
            << "tiles on the host";
      }
    }
  }
  fake::synchronize();
  EXPECT_EQ(fake::fault(), "");
}

TEST(OffloadedStatesTest, StatesOnADriveHaveTheBitsOfStatesOnTheDevice) {
  const testing::TempFolder folder;
  log::set_quiet(true);
  for (const bool has_bf16_states : {false, true}) {
    testing::use_delays(1);
    const Result expected = train(0, Lying::OnDevice, has_bf16_states);
    for (const int64_t block_bytes : {4096, 1 << 20}) {
      testing::use_delays(static_cast<uint64_t>(block_bytes));
      const SpillPlace place{.folder = folder.path(), .block_bytes = block_bytes, .buffer_count = 3};
      EXPECT_EQ(difference(expected, train(0, Lying::OnDevice, has_bf16_states, place)), "") << block_bytes;
    }
  }
  EXPECT_THROW(train(0, Lying::OnHost, false, SpillPlace{.folder = folder.path()}), Error);
  log::set_quiet(false);
  fake::synchronize();
  EXPECT_EQ(fake::fault(), "");
}

// Both the update and the copies must wait for each other.
TEST(OffloadedStatesTest, ALostEventIsNoticed) {
  testing::use_delays(1);
  const Result expected = train(0);
  for (const auto lost : {fake::Lost::OfDefaultStreams, fake::Lost::OfOtherStreams}) {
    for (const Lying lying : {Lying::OnDevice, Lying::OnHost}) {
      bool is_noticed = false;
      for (uint64_t seed = 1; seed <= 20 && !is_noticed; ++seed) {
        testing::use_delays(seed, lost);
        is_noticed = !difference(expected, train(200, lying)).empty();
      }
      EXPECT_TRUE(is_noticed);
    }
  }
  testing::use_delays(1);
}

void add_one(const std::vector<StatePiece>& pieces) {
  for (const StatePiece& piece : pieces) piece.states[0].add_(1);
}

// The chunk that begins a step was the last one of the step before, in the other buffer: it must be back on
// the host before it is sent again.
TEST(OffloadedStatesTest, AChunkIsHomeBeforeItLeavesAgain) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    testing::use_delays(seed);
    const at::Tensor tile = at::zeros({64}, at::TensorOptions(fake::device(0)));
    OffloadedStates states({tile, tile}, tile.device(), 1, 64);
    for (int round = 0; round < 10; ++round) {
      states.update({true, true}, add_one);
      states.update({false, true}, add_one);
    }
    EXPECT_TRUE(states.get(0, 0).eq(10).all().item<bool>()) << "seed " << seed;
    EXPECT_TRUE(states.get(1, 0).eq(20).all().item<bool>()) << "seed " << seed;
  }
}

// Work that the current stream runs after an update finds the tiles of the host updated.
TEST(OffloadedStatesTest, TilesOfTheHostAreReadBehindTheirUpdate) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    testing::use_delays(seed);
    const c10::Device device = fake::device(0);
    const std::vector<at::Tensor> tiles = {empty_pinned({64}, at::kFloat, device).zero_(),
                                           empty_pinned({64}, at::kFloat, device).zero_()};
    OffloadedStates states(tiles, device, 1, 64);
    std::vector<at::Tensor> seen;
    for (int round = 0; round < 10; ++round) {
      states.update({true, true}, [](const std::vector<StatePiece>& pieces) {
        for (const StatePiece& piece : pieces) piece.values.add_(1);
      });
      seen.push_back(at::empty({64}, at::TensorOptions(device)));
      seen.back().copy_(tiles[1], /*non_blocking=*/true);
    }
    for (int round = 0; round < 10; ++round)
      EXPECT_TRUE(seen[static_cast<size_t>(round)].to(kHost).eq(round + 1).all().item<bool>())
          << "seed " << seed;
  }
}

// Work of the buffers' former owners, and copies that are under way, end before the buffers are used.
TEST(OffloadedStatesTest, WhatCameBeforeIsOver) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    testing::use_delays(seed);
    const at::Tensor tile = at::zeros({64}, at::TensorOptions(fake::device(0)));
    OffloadedStates fresh({tile, tile}, tile.device(), 1, 64), states({tile, tile}, tile.device(), 1, 64);
    {
      const at::Tensor one = tile.clone(), other = tile.clone();
      for (int i = 0; i < 20; ++i) one.add_(other.add_(1));
    }
    fresh.update({true, true}, add_one);
    for (const size_t i : {0, 1}) EXPECT_TRUE(fresh.get(i, 0).eq(1).all().item<bool>()) << "seed " << seed;
    states.update({true, true}, add_one);
    for (const size_t i : {0, 1}) states.set(i, 0, at::full({64}, 5.0, on_host(at::kFloat)));
    states.update({true, true}, add_one);
    for (const size_t i : {0, 1}) EXPECT_TRUE(states.get(i, 0).eq(6).all().item<bool>()) << "seed " << seed;
  }
}

// A run goes on with its states moved from the device to the host, or back.
TEST(OffloadedStatesTest, StatesGoFromTheDeviceToTheHostAndBack) {
  testing::use_delays(3);
  const Result expected = train(0);
  for (const auto& [first, second] : {std::pair{0, 200}, std::pair{200, 0}, std::pair{64, 1000}}) {
    const auto before = make_tiles(fake::device(0)), after = make_tiles(fake::device(0));
    const auto one = make_adamw(before, {.offload_chunk_elements = first});
    const auto other = make_adamw(after, {.offload_chunk_elements = second});
    for (int64_t number = 0; number < 2; ++number) step(before, *one, number);
    auto from = one->states(), to = other->states();
    ASSERT_EQ(from.size(), to.size());
    for (size_t i = 0; i < from.size(); ++i) {
      EXPECT_EQ(from[i].name, to[i].name);
      EXPECT_EQ(from[i].layout, to[i].layout);
      // States are read as from a checkpoint: into the tensor that get() returns.
      const at::Tensor taken = to[i].get();
      taken.copy_(from[i].get());
      to[i].set(taken);
    }
    for (size_t i = 0; i < before.size(); ++i) after[i].tile.detach().copy_(before[i].tile.detach());
    for (int64_t number = 2; number < kSteps; ++number) step(after, *other, number);
    Result result;
    collect(result, after, *other);
    EXPECT_EQ(difference(expected, result), "") << first << " to " << second;
  }
}

TEST(OffloadedStatesTest, TheDeviceHoldsTwoBuffers) {
  testing::use_delays(1);
  for (const bool has_bf16_states : {false, true}) {
    const DeviceLedger ledger(fake::device(0));
    const at::Tensor tile = at::zeros({10'000}, at::TensorOptions(fake::device(0))).set_requires_grad(true);
    const auto optimizer =
        make_adamw({{"w", tile}}, {.offload_chunk_elements = 1024, .has_bf16_states = has_bf16_states});
    for (int number = 0; number < 2; ++number) {
      tile.mutable_grad() = at::ones_like(tile);
      optimizer->step(1e-2, 1.0);
    }
    const int64_t bytes = 2 * 2 * 1024 * (has_bf16_states ? 2 : 4);
    EXPECT_EQ(memory_ledger::live().of(MemoryCategory::OptimizerState), bytes);
    EXPECT_EQ(memory_ledger::most().of(MemoryCategory::OptimizerState), bytes);
  }
}

// States of tiles that are updated on the host stay as they are.
TEST(OffloadedStatesTest, NothingIsOffloadedFromTheHost) {
  const auto run = [](int64_t chunk_elements) {
    const auto tiles = make_tiles(kHost);
    const auto optimizer = make_adamw(tiles, {.offload_chunk_elements = chunk_elements});
    for (int64_t number = 0; number < kSteps; ++number) step(tiles, *optimizer, number);
    Result result;
    collect(result, tiles, *optimizer);
    return result;
  };
  EXPECT_EQ(difference(run(0), run(64)), "");
}

}  // namespace
}  // namespace tessera::optim

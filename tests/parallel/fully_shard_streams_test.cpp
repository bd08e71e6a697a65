// Tests of fully_shard on devices whose streams run late: gathers and reductions in flight give the host's
// bits, and every order that the result needs comes from an event.
#include <atomic>
#include <map>
#include <optional>

#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include "tessera/comm/fake/fake_backend.h"
#include "tessera/core/memory_ledger.h"
#include "tessera/device/device_ledger.h"
#include "tessera/parallel/device_mesh.h"
#include "tessera/parallel/fsdp/gather_slots.h"
#include "tessera/parallel/fully_shard.h"

#include "tests/comm/nccl/nccl_ranks.h"
#include "tests/parallel/toy_model.h"
#include "tests/testing/extent.h"

namespace tessera::parallel {
namespace {

namespace fake = testing::fake_device;
using World = std::shared_ptr<comm::Communicator>;
// The tensors that a rank has at the end, by name.
using Result = std::map<std::string, at::Tensor>;

struct Way {
  std::string name;
  ShardOptions options;
  int64_t dp_replicate = 1, hpz = 1, accumulation = 1;
};

std::vector<Way> ways() {
  std::vector<Way> ways(6);
  ways[0].name = "zero3";
  ways[1] = {.name = "zero2, two micro-batches", .accumulation = 2};
  ways[1].options.reshard_after_forward = false;
  ways[2].name = "zero3 in bf16";
  ways[2].options.mixed_precision = {.param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat};
  ways[3] = {.name = "hybrid", .dp_replicate = 2};
  ways[4] = {.name = "secondary shards", .hpz = 2};
  ways[5] = {.name = "zero2 in bf16", .accumulation = 2};
  ways[5].options.reshard_after_forward = false;
  ways[5].options.mixed_precision = ways[2].options.mixed_precision;
  return ways;
}

// Returns the same way with tiles in pinned memory, if the device has any.
Way offloaded(Way way) {
  way.name += ", offloaded";
  way.options.offload_parameters = true;
  return way;
}

// Updates a tile by gradient descent, wherever it lies; returns a copy of the new values.
at::Tensor update(const ShardedParameter& owned) {
  const at::Tensor tile = owned.tile.detach(), gradient = owned.tile.grad();
  if (!gradient.defined()) return tile.clone();  // the unused parameter, on one rank
  const at::Tensor values = at::empty(tile.sizes(), tile.options().device(gradient.device()));
  values.copy_(tile, /*non_blocking=*/true);
  values.add_(gradient, -0.05);
  tile.copy_(values, /*non_blocking=*/true);
  return values;
}

// Trains three steps of the toy model on the group's device.
Result train(const World& world, const Way& way) {
  const DeviceMesh mesh(world, {.dp_replicate = way.dp_replicate, .hpz = way.hpz});
  testing::ToyModel values, model;
  std::map<std::string, at::Tensor> start;
  for (const auto& entry : values.named_parameters()) start[entry.key()] = entry.value().detach();
  testing::move_to_meta(model);
  const auto sharded =
      fully_shard(model, {mesh.group(kAxisFsdp), mesh.group(kAxisDpReplicate), mesh.group(kAxisHpz)},
                  model.units(), way.options);
  sharded->materialize([&](const ShardedParameter& owned) {
    owned.tile.detach().copy_(start.at(owned.name).narrow(0, owned.box.offset[0], owned.box.size[0]));
  });
  Result result;
  for (int step = 0; step < 3; ++step) {
    sharded->zero_grad();
    for (int64_t m = 0; m < way.accumulation; ++m) {
      sharded->set_is_last_micro_batch(m + 1 == way.accumulation);
      const testing::ToyBatch batch = testing::toy_batch(m * world->size() + world->rank() + step);
      const at::Tensor loss = model.loss(batch.words.to(world->device()), batch.labels.to(world->device()));
      result["loss " + std::to_string(step) + std::to_string(m)] = loss.detach();
      loss.backward();
    }
    const at::NoGradGuard no_grad;
    for (const ShardedParameter& owned : sharded->parameters())
      result[std::to_string(step) + owned.name] = update(owned);
  }
  for (const ShardedParameter& owned : sharded->parameters())
    result["whole " + owned.name] = sharded->full_tensor(owned);
  for (auto& [name, tensor] : result) tensor = tensor.to(kHost);
  return result;
}

std::vector<Result> on_the_host(int64_t ranks, const Way& way) {
  if (ranks == 1) return {train(comm::Communicator::single(), way)};
  std::vector<Result> results(static_cast<size_t>(ranks));
  comm::run_fake_ranks(
      ranks, [&](const World& world) { results[static_cast<size_t>(world->rank())] = train(world, way); });
  return results;
}

std::vector<Result> on_devices(int64_t ranks, const Way& way) {
  if (ranks == 1) return {train(comm::Communicator::single(fake::device(0)), way)};
  std::vector<Result> results(static_cast<size_t>(ranks));
  testing::run_nccl_ranks(
      ranks, [&](const World& world) { results[static_cast<size_t>(world->rank())] = train(world, way); });
  return results;
}

// Describes the first difference; "" if there is none.
std::string difference(const std::vector<Result>& expected, const std::vector<Result>& got) {
  for (size_t rank = 0; rank < expected.size(); ++rank) {
    for (const auto& [name, tensor] : expected[rank]) {
      if (!at::equal(tensor, got[rank].at(name))) return name + " on rank " + std::to_string(rank);
    }
  }
  return "";
}

TEST(FullyShardStreamsTest, EveryDelayGivesTheHostsBits) {
  testing::Random random;
  for (const int64_t ranks : {1, 2, 3, 4}) {
    for (const Way& way : ways()) {
      if (ranks % way.dp_replicate != 0 || ranks % way.hpz != 0 || (way.hpz > 1 && way.hpz == ranks))
        continue;
      SCOPED_TRACE(way.name + ", " + std::to_string(ranks) + " ranks");
      const std::vector<Result> expected = on_the_host(ranks, way);
      for (const uint64_t seed : testing::some_of<uint64_t>({1, 2, 3}, 1, random)) {
        testing::use_delays(seed);
        EXPECT_EQ(difference(expected, on_devices(ranks, way)), "") << "seed " << seed;
        EXPECT_EQ(difference(expected, on_devices(ranks, offloaded(way))), "") << "offloaded, seed " << seed;
      }
    }
  }
  fake::synchronize();
  EXPECT_STREQ(testing::stub().faults(), "");
  EXPECT_EQ(fake::fault(), "");
}

void expect_lost_event_noticed(int64_t ranks, const Way& way) {
  const std::vector<Result> expected = on_the_host(ranks, way);
  for (const auto lost : {fake::Lost::OfDefaultStreams, fake::Lost::OfOtherStreams}) {
    bool is_noticed = false;
    for (uint64_t seed = 1; seed <= 20 && !is_noticed; ++seed) {
      testing::use_delays(seed, lost);
      is_noticed = !difference(expected, on_devices(ranks, way)).empty();
    }
    EXPECT_TRUE(is_noticed);
  }
  testing::use_delays(1);
}

// Both compute and communication must wait for each other.
TEST(FullyShardStreamsTest, ALostEventIsNoticed) { expect_lost_event_noticed(2, ways()[0]); }
// Both compute and copies must wait for each other: a single rank has no other events.
TEST(FullyShardStreamsTest, ALostEventOfTilesOnTheHostIsNoticed) {
  expect_lost_event_noticed(1, offloaded(ways()[0]));
  expect_lost_event_noticed(1, offloaded(ways()[2]));
}

// Values that are written or read while the last update is under way are written or read after it.
TEST(FullyShardStreamsTest, TilesOnTheHostAreReadAndWrittenBehindTheirUpdates) {
  const Way way = offloaded(ways()[0]);
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    testing::use_delays(seed);
    const World world = comm::Communicator::single(fake::device(0));
    testing::ToyModel model;
    testing::move_to_meta(model);
    const auto sharded = fully_shard(model, {world, world, world}, model.units(), way.options);
    sharded->materialize([](const ShardedParameter& owned) { owned.tile.detach().fill_(0.1); });
    for (int round = 0; round < 3; ++round) {
      const testing::ToyBatch batch = testing::toy_batch(round);
      sharded->zero_grad();
      const at::Tensor loss = model.loss(batch.words.to(world->device()), batch.labels.to(world->device()));
      loss.backward();
      const at::NoGradGuard no_grad;
      std::vector<at::Tensor> updated;
      for (const ShardedParameter& owned : sharded->parameters()) updated.push_back(update(owned));
      for (size_t i = 0; i < updated.size(); ++i) {
        const at::Tensor whole = sharded->full_tensor(sharded->parameters()[i]);
        EXPECT_TRUE(at::equal(whole.to(kHost), updated[i].to(kHost))) << "seed " << seed;
      }
      for (const ShardedParameter& owned : sharded->parameters()) (void)update(owned);
      sharded->overwrite([&] {
        for (const ShardedParameter& owned : sharded->parameters()) owned.tile.detach().fill_(0.01 * round);
      });
      for (const ShardedParameter& owned : sharded->parameters())
        EXPECT_TRUE(sharded->full_tensor(owned).eq(0.01 * round).all().item<bool>()) << "seed " << seed;
    }
  }
}

// Returns the bytes of parameters on the device: at rest, and the most that are gathered in a step.
std::pair<int64_t, int64_t> device_bytes(const Way& way) {
  testing::use_delays(1);
  const World world = comm::Communicator::single(fake::device(0));
  const DeviceLedger ledger(world->device());
  testing::ToyModel model;
  testing::move_to_meta(model);
  const auto sharded = fully_shard(model, {world, world, world}, model.units(), way.options);
  sharded->materialize([](const ShardedParameter& owned) { owned.tile.detach().fill_(0.1); });
  const int64_t at_rest = memory_ledger::live().of(MemoryCategory::Parameters);
  const testing::ToyBatch batch = testing::toy_batch(0);
  model.loss(batch.words.to(world->device()), batch.labels.to(world->device())).backward();
  return {at_rest, memory_ledger::most().of(MemoryCategory::GatheredParameters)};
}

TEST(FullyShardStreamsTest, TheDeviceHoldsNoTilesThatLieOnTheHost) {
  const Way way = ways()[0];
  const auto [kept, kept_gathered] = device_bytes(way);
  EXPECT_GT(kept, 0);
  EXPECT_EQ(kept_gathered, 0);
  const auto [at_rest, gathered] = device_bytes(offloaded(way));
  EXPECT_EQ(at_rest, 0);
  EXPECT_GT(gathered, 0);
}

// Lets two streams take one slot in turn. Tells whether every reader sees its own values, which is so only
// if the next owner of the slot waits for its last reader.
bool reader_sees_its_own(fake::Lost lost, uint64_t seed) {
  std::atomic<bool> is_right = true;
  testing::use_delays(seed, lost);
  testing::run_nccl_ranks(2, [&](const World& world) {
    detail::GatherSlots slots(world);
    const c10::impl::VirtualGuardImpl guard(world->device().type());
    const c10::Stream other = guard.getStreamFromGlobalPool(world->device());
    std::vector<at::Tensor> read;
    const void* memory = nullptr;
    for (int round = 0; round < 20; ++round) {
      std::optional<c10::StreamGuard> stream;
      if (round % 2 == 1) stream.emplace(other);
      auto slot = slots.take(4096);
      if (round == 0) memory = slot->bytes.const_data_ptr();
      EXPECT_EQ(slot->bytes.const_data_ptr(), memory);
      slot->bytes.fill_(round);
      read.push_back(slot->bytes.clone());
      slots.give_back(std::move(*slot));
    }
    fake::synchronize();
    for (int round = 0; round < 20; ++round) {
      if (!read[static_cast<size_t>(round)].to(kHost).eq(round).all().item<bool>()) is_right = false;
    }
    world->barrier();
  });
  return is_right;
}

TEST(FullyShardStreamsTest, EachReuseOfASlotWaitsForItsEvent) {
  bool is_noticed = false;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    EXPECT_TRUE(reader_sees_its_own(fake::Lost::None, seed)) << "seed " << seed;
    is_noticed = is_noticed || !reader_sees_its_own(fake::Lost::All, seed);
  }
  EXPECT_TRUE(is_noticed);
  testing::use_delays(1);
}

}  // namespace
}  // namespace tessera::parallel

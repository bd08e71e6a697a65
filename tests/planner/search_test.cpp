// Tests that the search returns plans that can be run, and a reason where there is none.
#include "tessera/planner/search.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::planner {
namespace {

ModelWork llama_70b() { return model_work({80, 8192, 28672, 64, 8, 128, 128256}); }
ModelWork llama_8b() { return model_work({32, 4096, 14336, 32, 8, 128, 128256}); }

Job job_of(int64_t sequence, int64_t sequences) {
  Job job;
  job.sequence = sequence;
  job.sequences_per_step = sequences;
  return job;
}

TEST(SearchTest, PlansMakeTheStepThatWasAskedFor) {
  const Cluster cluster = load_cluster("64x8xH100");
  const Job job = job_of(8192, 1024);
  const SearchResult found = search(llama_70b(), cluster, job, {});
  ASSERT_FALSE(found.plans.empty());
  EXPECT_GT(found.examined, 10000);
  EXPECT_FALSE(found.nearest.has_value());
  double before = 0.0;
  for (const Plan& plan : found.plans) {
    const Choice& c = plan.choice;
    EXPECT_EQ(c.ranks(), cluster.size());
    EXPECT_EQ(c.readers() * c.micro_batch * c.accumulation, job.sequences_per_step);
    EXPECT_LE(c.tp, cluster.devices_per_node);
    EXPECT_EQ(c.shards() % c.hpz, 0);
    EXPECT_TRUE(fits(plan.memory, cluster));
    EXPECT_GE(plan.time.total(), before);
    EXPECT_LT(plan.time.hfu(), 1.0);
    before = plan.time.total();
  }
}

// One device has no axes, and the fastest plan of more is not slower than one of fewer.
TEST(SearchTest, MoreDevicesAreFaster) {
  double before = 0.0;
  for (const char* const name : {"H100-96GB", "2xH100-96GB", "8xH100-96GB", "2x8xH100-96GB"}) {
    const SearchResult found = search(model_work({16, 2048, 8192, 32, 8, 64, 128256, true, true}),
                                      load_cluster(name), job_of(4096, 64), {});
    ASSERT_FALSE(found.plans.empty()) << name;
    EXPECT_GT(found.plans.front().time.tokens_per_s(), before) << name;
    before = found.plans.front().time.tokens_per_s();
  }
}

TEST(SearchTest, ExpertsAreDividedAmongRanksThatShard) {
  ModelShape shape{8, 1024, 2048, 16, 8, 64, 32000};
  shape.experts = 8;
  shape.experts_per_token = 2;
  bool divides = false;
  for (const Plan& plan : search(model_work(shape), load_cluster("8xH100"), job_of(8192, 4), {}).plans) {
    divides = divides || plan.choice.ep > 1;
    EXPECT_TRUE(plan.choice.ep == 1 || plan.choice.zero > 0);
    EXPECT_EQ(plan.choice.dp_shard * plan.choice.cp % plan.choice.ep, 0);
  }
  EXPECT_TRUE(divides);
}

TEST(SearchTest, AnUnevenBatchIsToldApartFromMemory) {
  const SearchResult found = search(llama_8b(), load_cluster("7xH100"), job_of(511, 5), {});
  EXPECT_EQ(found.examined, found.fitting);
  EXPECT_TRUE(found.plans.empty());
  EXPECT_FALSE(found.nearest.has_value());
}

TEST(SearchTest, WhatCannotFitIsToldWithChangesThatDo) {
  const Cluster cluster = load_cluster("2x4090");
  const Job job = job_of(4096, 16);
  const SearchResult found = search(llama_8b(), cluster, job, {});
  ASSERT_TRUE(found.plans.empty());
  ASSERT_TRUE(found.nearest.has_value());
  EXPECT_GT(found.nearest->memory.device(), cluster.device.memory_gib * 0x1p30);
  std::string texts;
  for (const Change& change : changes_that_fit(llama_8b(), cluster, job, {})) texts += change.text + "\n";
  EXPECT_THAT(texts, ::testing::HasSubstr("qlora"));
  EXPECT_THAT(texts, ::testing::HasSubstr("such nodes"));
}

TEST(SearchTest, TiersAreUsedWhereTheDeviceIsTooSmall) {
  Cluster cluster = load_cluster("8xA100-40GB");
  const Job job = job_of(2048, 64);
  const ModelWork work = model_work({48, 5120, 13824, 40, 8, 128, 152064});
  cluster.host_memory_gib = 1024;
  Choice pure;
  pure.pure_bf16 = true;
  const SearchResult with_host = search(work, cluster, job, pure);
  ASSERT_FALSE(with_host.plans.empty());
  bool offloads = false;
  for (const Plan& plan : with_host.plans) {
    if (plan.choice.offload != Offload::HostStates) continue;
    offloads = true;
    EXPECT_GT(plan.memory.host, 0.0);
    EXPECT_EQ(plan.memory.states, 0.0);
    EXPECT_GT(plan.time.of(Term::Offload), 0.0);
  }
  EXPECT_TRUE(offloads);
}

TEST(SearchTest, TiersThatWouldFitAreNamed) {
  const ModelWork work = model_work({64, 5120, 13824, 40, 8, 128, 152064});
  const Cluster cluster = load_cluster("8xA100-40GB");
  const Job job = job_of(2048, 64);
  ASSERT_TRUE(search(work, cluster, job, {}).plans.empty());
  std::string texts;
  for (const Change& change : changes_that_fit(work, cluster, job, {})) texts += change.text + "\n";
  EXPECT_THAT(texts, ::testing::HasSubstr("states on the host, with"));
  EXPECT_THAT(texts, ::testing::HasSubstr("states on a drive of"));
}

// The parts of a choice that a recipe fixes decide which plans the trainer takes.
TEST(SearchTest, PlansHaveWhatTheRecipeKeeps) {
  Choice updates, codes;
  updates.updates_in_backward = true;
  codes.codes_weights = codes.codes_gradients = true;
  const ModelWork work = model_work({16, 2048, 8192, 32, 8, 64, 128256, true, true});
  const Cluster cluster = load_cluster("2x4xH100");
  const auto plans = [&](const Choice& kept) { return search(work, cluster, job_of(2048, 24), kept).plans; };
  ASSERT_FALSE(plans(updates).empty());
  for (const Plan& plan : plans(updates)) {
    EXPECT_EQ(plan.choice.accumulation, 1);
    EXPECT_EQ(plan.choice.pp, 1);
    // The gradients of one block alone are there.
    Choice without = plan.choice;
    without.updates_in_backward = false;
    EXPECT_LE(plan.memory.gradients, memory_use(work, cluster, job_of(2048, 24), without).gradients);
  }
  ASSERT_FALSE(plans(codes).empty());
  for (const Plan& plan : plans(codes)) EXPECT_GT(plan.choice.shards(), 1);
  // Over a slow network, codes are worth their time.
  Cluster slow = cluster;
  slow.network_gb_s = 1.0;
  Choice plain;
  plain.dp_shard = codes.dp_shard = 8;
  plain.micro_batch = codes.micro_batch = 3;
  EXPECT_LT(step_time(work, slow, job_of(2048, 24), codes).total(),
            0.5 * step_time(work, slow, job_of(2048, 24), plain).total());
}

// States of shapes of their own lie whole on every rank that has a part of the parameter.
TEST(SearchTest, WholeStatesAreNotCut) {
  const ModelWork work = llama_8b();
  Job job = job_of(2048, 8);
  job.state_bytes = 1.0;
  job.whole_state_bytes = 0.5;
  Choice choice;
  choice.dp_shard = 8;
  const double parameters = work.parameters();
  const MemoryUse on_device = memory_use(work, load_cluster("8xH100"), job, choice);
  EXPECT_NEAR(on_device.states, parameters * (1.0 / 8 + 0.5), 1e-3 * parameters);
  choice.offload = Offload::DriveStates;
  const MemoryUse on_drive = memory_use(work, load_cluster("8xH100"), job, choice);
  EXPECT_NEAR(on_drive.drive, parameters / 8, 1e-3 * parameters);
  // Beside whole states, the blocks that are on their way are in memory.
  EXPECT_NEAR(on_drive.states, parameters * 0.5 + 4 * 16 * 0x1p20, 1e-3 * parameters);
}

TEST(SearchTest, ADeviceWithoutAPrecisionSaysSo) {
  EXPECT_THAT(why_not(*find_device("T4"), Precision::BFloat16), ::testing::HasSubstr("bfloat16"));
  EXPECT_THAT(why_not(*find_device("A100"), Precision::Fp8), ::testing::HasSubstr("fp8"));
  EXPECT_EQ(why_not(*find_device("T4"), Precision::Float16), "");
}

}  // namespace
}  // namespace tessera::planner

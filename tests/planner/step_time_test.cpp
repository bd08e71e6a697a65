// Tests the terms of a step's time against other sums: schedules that are simulated, and hand calculations.
#include "tessera/planner/step_time.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tessera/parallel/pipeline/schedule.h"
#include "tessera/parallel/pipeline/simulate.h"
#include "tessera/planner/links.h"
#include "tessera/planner/memory_use.h"
#include "tessera/planner/seeded_rates.h"

namespace tessera::planner {
namespace {

Cluster cluster_of(int64_t nodes, int64_t per_node) {
  Cluster cluster;
  cluster.device = *find_device("H100");
  cluster.nodes = nodes;
  cluster.devices_per_node = per_node;
  cluster.network_gb_s = 50.0;
  return cluster;
}

ModelWork llama_8b() { return model_work({32, 4096, 14336, 32, 8, 128, 128256}); }

TEST(ModelWorkTest, CountsAsItsModelCardSays) {
  EXPECT_NEAR(llama_8b().parameters(), 8.03e9, 0.01e9);
  EXPECT_NEAR(model_work({80, 8192, 28672, 64, 8, 128, 128256}).parameters(), 70.6e9, 0.1e9);
  EXPECT_NEAR(model_work({12, 768, 3072, 12, 12, 64, 50304, false, true}).parameters(), 124e6, 1e6);
  // Mixtral 8x7B: 46.7 billion parameters, 12.9 of them for a token.
  ModelShape mixtral{32, 4096, 14336, 32, 8, 128, 32000};
  mixtral.experts = 8;
  mixtral.experts_per_token = 2;
  const ModelWork work = model_work(mixtral);
  EXPECT_NEAR(work.parameters(), 46.7e9, 0.1e9);
  EXPECT_NEAR(work.flops_per_token(0.0) / 6.0, 12.9e9 - 0.13e9, 0.1e9);
}

TEST(ModelWorkTest, FlopsAreThoseOfTheLiterature) {
  const ModelWork work = llama_8b();
  const double products = work.parameters() - work.embedding_parameters - 32 * 2.0 * 4096;
  EXPECT_NEAR(work.flops_per_token(8192), 6 * products + 12.0 * 32 * 4096 * 8192, 1e6);
}

// The sums hold to a unit of time for the schedules that the trainer runs.
TEST(PipelineFactorTest, IsWhatASimulationTakes) {
  struct Case {
    PipelineKind kind;
    int64_t stages;
  };
  for (const Case& c :
       {Case{PipelineKind::GPipe, 1}, Case{PipelineKind::OneFOneB, 1}, Case{PipelineKind::Interleaved, 2},
        Case{PipelineKind::Interleaved, 4}, Case{PipelineKind::ZeroBubble, 1}}) {
    for (const int64_t ranks : {2, 4, 8}) {
      for (const int64_t rounds : {1, 2, 4}) {
        // Times of a stage; those of a rank with several stages are divided among them.
        const parallel::ActionCosts costs{12, 16, 8};
        const int64_t micro_batches = ranks * rounds;
        SCOPED_TRACE(std::to_string(static_cast<int>(c.kind)) + ", " + std::to_string(ranks) + " ranks, " +
                     std::to_string(micro_batches) + " micro-batches");
        const parallel::Timeline timeline =
            parallel::simulate(parallel::make_schedule(c.kind, {ranks, c.stages, micro_batches}), costs);
        const auto stages = static_cast<double>(c.stages);
        const double want = static_cast<double>(timeline.length);
        const double got = pipeline_factor(c.kind, static_cast<double>(ranks), stages,
                                           static_cast<double>(micro_batches), 12, 16, 8) *
                           static_cast<double>(micro_batches) * stages * (12 + 16 + 8);
        EXPECT_NEAR(got, want, 1e-9);
      }
    }
  }
}

TEST(LinksTest, TheSlowerLinkDecides) {
  Cluster one = cluster_of(1, 8), two = cluster_of(2, 8);
  one.link_share = two.link_share = 1.0;
  // 7/8 of the bytes over NVLink.
  EXPECT_NEAR(gather(one, 450e9, {8, 1}).seconds(), 7.0 / 8.0 + 7 * 3e-6, 1e-9);
  // All eight ranks of a node use their links to the network together.
  EXPECT_NEAR(gather(two, 450e9, {16, 1}).seconds(), 15.0 / 16.0 * 450.0 / 400.0 + 7 * 3e-6 + 10e-6, 1e-9);
  // Ranks eight apart are on different nodes, each with its own link.
  EXPECT_NEAR(gather(two, 50e9, {2, 8}).seconds(), 0.5 + 10e-6, 1e-9);
  EXPECT_EQ(gather(two, 1e9, {1, 1}).seconds(), 0.0);
  // Collectives reach a part of a link's rate.
  two.link_share = 0.8;
  EXPECT_NEAR(gather(two, 50e9, {2, 8}).seconds(), 0.5 / 0.8 + 10e-6, 1e-9);
}

// The trainer cuts each micro-batch's gradients where it computes in a narrower type, and else only with
// stages 2 and 3 outside of pipelines: traffic and memory follow.
TEST(StepPartsTest, GradientsAreCutWhenTheTrainerCutsThem) {
  struct Case {
    Precision precision;
    int64_t zero, pp;
    bool cuts_each;
  };
  Job job;
  job.sequence = 256;
  for (const Case& c : {Case{Precision::Float32, 1, 1, false}, Case{Precision::Float32, 2, 1, true},
                        Case{Precision::Float32, 3, 1, true}, Case{Precision::Float32, 3, 2, false},
                        Case{Precision::BFloat16, 1, 1, true}, Case{Precision::BFloat16, 3, 2, true}}) {
    SCOPED_TRACE(std::to_string(c.zero) + " of stage, " + std::to_string(c.pp) + " stages");
    const Cluster cluster = cluster_of(1, 8);
    Choice choice;
    choice.precision = c.precision;
    choice.zero = c.zero;
    choice.pp = c.pp;
    choice.dp_shard = 8 / c.pp;
    choice.accumulation = 4;
    EXPECT_EQ(step_parts(llama_8b(), cluster, job, choice).scatters, c.cuts_each ? 4.0 : 1.0);
    // Whole gradients are four bytes of each parameter of a stage more than shards.
    Choice other = choice;
    other.dp_shard = 1;
    other.dp_replicate = 8 / c.pp;
    other.zero = 0;
    const double whole = memory_use(llama_8b(), cluster, job, other).gradients;
    const double gradients = memory_use(llama_8b(), cluster, job, choice).gradients;
    EXPECT_EQ(gradients < 0.8 * whole, c.cuts_each) << gradients / whole;
  }
}

TEST(StepPartsTest, CodesTakeTheirBytes) {
  const ModelWork work = llama_8b();
  Job job;
  job.sequence = 4096;
  Choice plain;
  plain.dp_shard = 16;
  Choice coded = plain;
  coded.codes_weights = coded.codes_gradients = true;
  const StepParts before = step_parts(work, cluster_of(2, 8), job, plain),
                  after = step_parts(work, cluster_of(2, 8), job, coded);
  // A weight has 8 bits in place of 16, and a scale of 32 for 256 of them; a gradient has 4 in place of 32,
  // and a scale for 128.
  EXPECT_NEAR(after.gather.bytes_sent / before.gather.bytes_sent, (8 + 0.125) / 16, 1e-3);
  EXPECT_NEAR(after.scatter.bytes_sent / before.scatter.bytes_sent, (4 + 0.25) / 32, 1e-3);
  EXPECT_NEAR(after.root_gather.bytes_sent / before.root_gather.bytes_sent, (8 + 0.125) / 16, 1e-3);
  EXPECT_GT(after.block.elementwise, before.block.elementwise);
  // Secondary shards are sent as they are.
  coded.hpz = plain.hpz = 8;
  EXPECT_EQ(step_parts(work, cluster_of(2, 8), job, coded).gather_back.bytes_sent,
            step_parts(work, cluster_of(2, 8), job, plain).gather_back.bytes_sent);
}

// Rates that steps were made up with are found again, and those that no step depends on stay.
TEST(SeededRatesTest, FindsTheRatesOfTheSteps) {
  const ModelWork work = model_work({8, 512, 1536, 8, 4, 64, 32000});
  Cluster guess = cluster_of(1, 2);
  guess.device.fp32_tflops = 0.2;
  guess.device.memory_gb_s = 2;
  guess.device.node_gb_s = 0.5;
  guess.kernel_start_us = 0.0;
  Cluster real = guess;
  real.device.fp32_tflops *= 0.6;
  real.device.memory_gb_s *= 1.5;
  real.device.node_gb_s *= 0.5;
  Job job;
  job.sequence = 64;
  for (const bool has_links : {true, false}) {
    std::vector<MeasuredStep> steps;
    for (const int64_t batch : {1, 4, 16}) {
      for (const int64_t zero : {1, 3}) {
        Choice choice;
        choice.precision = Precision::Float32;
        choice.dp_shard = has_links ? 2 : 1;
        choice.zero = has_links ? zero : 0;
        choice.micro_batch = batch;
        choice.recompute = zero == 3 ? Recompute::Block : Recompute::None;
        steps.push_back({choice, step_time(work, real, job, choice).tokens_per_s()});
      }
    }
    const SeededRates seeded = seeded_rates(work, guess, job, steps);
    EXPECT_GT(seeded.error_before, 0.1);
    EXPECT_LT(seeded.error_after, 0.02);
    EXPECT_NEAR(seeded.products, 0.6, 0.03);
    EXPECT_NEAR(seeded.memory, 1.5, 0.15);
    EXPECT_NEAR(seeded.links, has_links ? 0.5 : 1.0, 0.05);
    EXPECT_EQ(seeded.cluster.device.node_gb_s, guess.device.node_gb_s * seeded.links);
  }
}

TEST(StepTimeTest, MoreWorkTakesLonger) {
  const ModelWork work = llama_8b();
  const Cluster cluster = cluster_of(1, 8);
  Job job;
  job.sequence = 4096;
  Choice choice;
  choice.dp_shard = 8;
  choice.micro_batch = 2;
  const double base = step_time(work, cluster, job, choice).total();
  const auto changed = [&](auto change) {
    Choice other = choice;
    change(other);
    return step_time(work, cluster, job, other).total();
  };
  EXPECT_GT(changed([](Choice& c) { c.recompute = Recompute::Block; }), 1.2 * base);
  EXPECT_GT(changed([](Choice& c) { c.recompute = Recompute::Mlp; }), base);
  EXPECT_LT(changed([](Choice& c) { c.recompute = Recompute::Mlp; }),
            changed([](Choice& c) { c.recompute = Recompute::Block; }));
  EXPECT_GT(changed([](Choice& c) { c.micro_batch = 4; }), 1.8 * base);
  EXPECT_LT(changed([](Choice& c) { c.precision = Precision::Fp8; }), base);
  EXPECT_LT(changed([](Choice& c) { c.adapter_rank = 16; }), base);
  EXPECT_GT(changed([](Choice& c) { c.offload = Offload::HostStates; }), base);
}

TEST(StepTimeTest, RecomputationIsInHfuAlone) {
  const ModelWork work = llama_8b();
  Job job;
  job.sequence = 4096;
  Choice choice;
  choice.dp_shard = 8;
  choice.recompute = Recompute::Block;
  const StepTime time = step_time(work, cluster_of(1, 8), job, choice);
  // A forward of the blocks more, of three with the head: a little less than 4/3.
  EXPECT_GT(time.hfu() / time.mfu(), 1.29);
  EXPECT_LT(time.hfu() / time.mfu(), 4.0 / 3.0);
  EXPECT_LT(time.hfu(), 1.0);
}

}  // namespace
}  // namespace tessera::planner

// Tests the simulated step against closed forms, against the sum, and against a simulation of all ranks.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/planner/failures.h"
#include "tessera/planner/simulation/simulated_step.h"
#include "tessera/planner/step_time.h"

namespace tessera::planner {
namespace {

Cluster cluster_of(int64_t nodes, int64_t per_node) {
  Cluster cluster = load_cluster("8xH100");
  cluster.nodes = nodes;
  cluster.devices_per_node = per_node;
  cluster.network_gb_s = 50.0;
  return cluster;
}

// Messages take no time.
Cluster without_links(int64_t nodes, int64_t per_node) {
  Cluster cluster = cluster_of(nodes, per_node);
  cluster.network_gb_s = cluster.device.node_gb_s = 1e15;
  cluster.network_latency_us = cluster.node_latency_us = 0.0;
  return cluster;
}

ModelWork small_model() { return model_work({16, 2048, 8192, 32, 8, 64, 32000}); }

Job job_of(int64_t sequence) {
  Job job;
  job.sequence = sequence;
  return job;
}

TEST(SimulatedStepTest, OneRankTakesItsSum) {
  Choice choice;
  choice.zero = 0;
  choice.accumulation = 3;
  for (const Recompute recompute : {Recompute::None, Recompute::Mlp, Recompute::Block}) {
    choice.recompute = recompute;
    const Cluster cluster = cluster_of(1, 1);
    const SimulatedStep step = simulate_step(small_model(), cluster, job_of(4096), choice);
    EXPECT_EQ(step.ranks.size(), 1u);
    const double sum = step_time(small_model(), cluster, job_of(4096), choice).total();
    EXPECT_NEAR(step.seconds, sum, 1e-9 * sum);
  }
}

// If messages take no time, a pipeline takes what its formula says.
TEST(SimulatedStepTest, PipelinesTakeWhatTheirFormulasSay) {
  struct Case {
    PipelineKind kind;
    int64_t stages_per_rank;
  };
  ModelWork work = small_model();
  work.vocab = 1;  // hardly a head, so that the stages are even
  const Cluster cluster = without_links(1, 4);
  for (const Case& c : {Case{PipelineKind::GPipe, 1}, Case{PipelineKind::OneFOneB, 1},
                        Case{PipelineKind::Interleaved, 2}, Case{PipelineKind::ZeroBubble, 1}}) {
    Choice choice;
    choice.zero = 0;
    choice.pp = 4;
    choice.accumulation = 8;
    choice.schedule = c.kind;
    choice.stages_per_rank = c.stages_per_rank;
    SCOPED_TRACE(static_cast<int>(c.kind));
    const StepParts parts = step_parts(work, cluster, job_of(4096), choice);
    const BlockTime& block = parts.block;
    const double factor = pipeline_factor(c.kind, 4, static_cast<double>(c.stages_per_rank), 8,
                                          block.forward(), block.input_gradient(), block.weight_gradient());
    const double want = 8 * (4 * block.compute() + parts.head) * factor + parts.optimizer + parts.host;
    const SimulatedStep step = simulate_step(work, cluster, job_of(4096), choice);
    EXPECT_EQ(step.ranks.size(), 4u);
    EXPECT_NEAR(step.seconds, want, 0.003 * want);
  }
}

// Gathers and reductions hide where the links are fast, and are all that counts where they are slow.
TEST(SimulatedStepTest, ShardingHidesOrDoesNot) {
  Choice choice;
  choice.dp_shard = 8;
  choice.accumulation = 2;
  const ModelWork work = small_model();
  const Cluster fast = without_links(1, 8);
  const StepParts parts = step_parts(work, fast, job_of(4096), choice);
  const double compute =
      2 * (16 * parts.block.compute() + parts.head) * (1.0 + kContention) + parts.optimizer + parts.host;
  EXPECT_NEAR(simulate_step(work, fast, job_of(4096), choice).seconds, compute, 1e-6 * compute);

  Cluster slow = cluster_of(8, 1);
  slow.network_gb_s = 0.1;
  const StepParts slow_parts = step_parts(work, slow, job_of(4096), choice);
  // Bytes alone: a transfer may move them while another one waits for its latency.
  const double of_block =
      slow_parts.gather.network_s + slow_parts.gather_back.network_s + slow_parts.scatter.network_s;
  const double messages =
      2 * (16 * of_block + slow_parts.root_gather.network_s) + slow_parts.root_scatter.network_s;
  const double took = simulate_step(work, slow, job_of(4096), choice).seconds;
  EXPECT_GE(took, messages);
  EXPECT_LE(took, messages + compute);
}

// The slowest rank decides, whichever it is, and the others wait for it.
TEST(SimulatedStepTest, ASlowRankHoldsAllUp) {
  Choice choice;
  choice.dp_shard = 4;
  choice.dp_replicate = 2;
  const ModelWork work = small_model();
  const Cluster cluster = cluster_of(1, 8);
  const double even = simulate_step(work, cluster, job_of(4096), choice).seconds;
  std::map<int64_t, double> took;
  for (const int64_t rank : {0, 3, 7}) {
    const SimulatedStep step = simulate_step(work, cluster, job_of(4096), choice, {{{rank, 1.5}}, {}});
    EXPECT_EQ(step.ranks.size(), 4u);
    took[rank] = step.seconds;
    for (const RankTrace& trace : step.ranks) {
      const RankTimes times = times_of(step, trace);
      EXPECT_NEAR(times.total(), step.seconds, 1e-9);
      const double waits = step.seconds - times.busy[static_cast<size_t>(Activity::Forward)] -
                           times.busy[static_cast<size_t>(Activity::Backward)];
      EXPECT_TRUE(trace.rank == rank || waits > 0.25 * step.seconds) << trace.rank;
    }
  }
  EXPECT_GT(took[0], 1.35 * even);
  EXPECT_LT(took[0], 1.5 * even);
  EXPECT_NEAR(took[0], took[3], 1e-9);
  EXPECT_NEAR(took[0], took[7], 1e-9);
  const double network =
      simulate_step(work, cluster_of(2, 4), job_of(4096), choice, {{}, {{1, 20.0}}}).seconds;
  EXPECT_GT(network, simulate_step(work, cluster_of(2, 4), job_of(4096), choice).seconds);
}

struct Layout {
  const char* name;
  Choice choice;
  Disturbances slow;
};

std::vector<Layout> layouts() {
  std::vector<Layout> all;
  const auto add = [&](const char* name, auto set, Disturbances slow = {}) {
    Choice choice;
    choice.accumulation = 4;
    set(choice);
    all.push_back({name, choice, slow});
  };
  add("shards and copies",
      [](Choice& c) {
        c.dp_replicate = 2;
        c.dp_shard = 8;
      },
      {{{5, 2.0}}, {}});
  add("all axes",
      [](Choice& c) {
        c.dp_replicate = 2;
        c.dp_shard = 2;
        c.cp = 2;
        c.tp = 2;
        c.pp = 2;
      },
      {{{3, 1.3}, {18, 1.7}}, {{2, 4.0}}});
  add("ring",
      [](Choice& c) {
        c.cp = 16;
        c.dp_shard = 2;
      },
      {{{1, 1.2}}, {}});
  add("ranks that divide the experts",
      [](Choice& c) {
        c.dp_shard = 8;
        c.ep = 4;
        c.tp = 2;
      },
      {{{9, 1.4}}, {}});
  // Groups of three ranks cut across pairs.
  add("experts across contexts",
      [](Choice& c) {
        c.dp_shard = 3;
        c.cp = 2;
        c.ep = 3;
        c.tp = 2;
      },
      {{{4, 1.4}}, {}});
  add("near shards",
      [](Choice& c) {
        c.dp_shard = 16;
        c.hpz = 4;
      },
      {{}, {{1, 3.0}}});
  add("zero 1", [](Choice& c) {
    c.zero = 1;
    c.dp_shard = 4;
    c.dp_replicate = 2;
    c.pp = 2;
  });
  add("zero 2, interleaved",
      [](Choice& c) {
        c.zero = 2;
        c.dp_shard = 4;
        c.pp = 4;
        c.schedule = PipelineKind::Interleaved;
        c.stages_per_rank = 2;
      },
      {{{6, 1.5}}, {}});
  add("zero bubble", [](Choice& c) {
    c.zero = 0;
    c.dp_replicate = 2;
    c.pp = 4;
    c.schedule = PipelineKind::ZeroBubble;
  });
  return all;
}

// A few ranks stand for all: each rank ends when the one does that has its place.
TEST(SimulatedStepTest, RepresentativesDoWhatAllRanksDo) {
  ModelShape shape{8, 1024, 2048, 16, 4, 64, 32000};
  shape.experts = 12;
  shape.experts_per_token = 2;
  const ModelWork work = model_work(shape);
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(layout.name);
    const Choice& choice = layout.choice;
    const Cluster cluster = cluster_of(choice.ranks() / 4, 4);
    const StepParts parts = step_parts(work, cluster, job_of(2048), choice);
    const SimulatedStep step = simulate_step(work, cluster, job_of(2048), choice, layout.slow);
    EXPECT_LE(std::ssize(step.ranks), choice.ranks());
    std::vector<int64_t> all;
    for (int64_t rank = 0; rank < choice.ranks(); ++rank) all.push_back(rank);
    const std::vector<RankTrace> whole =
        run_programs(step.programs, all, parts.groups, cluster.devices_per_node, layout.slow);
    std::map<int64_t, double> ends;
    double last = 0.0;
    for (const RankTrace& trace : whole) {
      ends[trace.rank] = trace.end;
      last = std::max(last, trace.end);
    }
    EXPECT_NEAR(step.seconds, last, 1e-9 * last);
    for (const RankTrace& trace : step.ranks) EXPECT_NEAR(trace.end, ends.at(trace.rank), 1e-9 * last);
    // The sum knows of no slow devices and shares no links; it is near.
    const double even = simulate_step(work, cluster, job_of(2048), choice).seconds;
    const double sum = step_time(work, cluster, job_of(2048), choice).total();
    EXPECT_GT(sum / even, 0.8) << sum << " and " << even;
    EXPECT_LT(sum / even, 1.3) << sum << " and " << even;
  }
}

// Two transfers that need one link wholly take twice as long beside each other; a half and a whole 1.5 times.
TEST(SimulatedStepTest, TransfersShareALink) {
  AxisGroups groups;
  groups.shards = groups.copies = groups.world = {2, 1};
  groups.pipeline = {1, 2};
  for (const double share : {1.0, 0.5}) {
    Program program;
    const auto add = [&](Item item) {
      program.streams[static_cast<size_t>(item.stream)].push_back(static_cast<int32_t>(program.items.size()));
      program.items.push_back(std::move(item));
    };
    add({.activity = Activity::Gather,
         .stream = Stream::Gather,
         .axis = Axis::Shards,
         .transfer = {2.0, 0, 0}});
    add({.activity = Activity::Reduce,
         .stream = Stream::Reduce,
         .axis = Axis::Copies,
         .transfer = {2.0 * share, 0, 2.0 * (1 - share)}});
    const auto traces = run_programs({program}, {0, 1}, groups, 2, {});
    EXPECT_NEAR(traces[0].end, 2.0 * (1.0 + share), 1e-12);
    EXPECT_NEAR(traces[1].node_link_s, 2.0 * (1.0 + share), 1e-12);
  }
}

TEST(SimulatedStepTest, AHundredThousandRanksAreAFewKinds) {
  Choice choice;
  choice.dp_replicate = 64;
  choice.dp_shard = 16;
  choice.tp = 8;
  choice.pp = 12;
  choice.accumulation = 24;
  const ModelWork work = model_work({126, 16384, 53248, 128, 8, 128, 128256});
  const Cluster cluster = cluster_of(12288, 8);
  ASSERT_EQ(choice.ranks(), 98304);
  const SimulatedStep step = simulate_step(work, cluster, job_of(8192), choice, {{{4711, 1.2}}, {}});
  EXPECT_EQ(step.ranks.size(), 8u * 12);
  EXPECT_GT(step.seconds, simulate_step(work, cluster, job_of(8192), choice).seconds);
  choice.accumulation = 1 << 22;
  EXPECT_THROW((void)simulate_step(work, cluster, job_of(8192), choice), Error);
}

TEST(SimulatedStepTest, TheTimelineIsJson) {
  Choice choice;
  choice.dp_shard = 4;
  choice.pp = 2;
  choice.accumulation = 2;
  const SimulatedStep step = simulate_step(small_model(), cluster_of(1, 8), job_of(2048), choice);
  const auto json = nlohmann::json::parse(timeline_json(step));
  size_t items = 0;
  double end = 0.0;
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    ++items;
    end = std::max(end, event.at("ts").get<double>() + event.at("dur").get<double>());
  }
  EXPECT_EQ(items, step.programs[0].items.size() + step.programs[1].items.size());
  EXPECT_NEAR(end * 1e-6, step.seconds, 1e-6);
}

TEST(FailuresTest, PlayedRunsTakeWhatTheFormulaSays) {
  const Failures failures{.mean_s = 4 * 3600.0, .save_s = 60.0, .restart_s = 600.0};
  for (const double interval : {600.0, 1280.0, 7200.0}) {
    const double work = 30 * 86400.0;
    const std::vector<double> runs = play_runs(failures, interval, work, 200, 7);
    double sum = 0.0;
    for (const double run : runs) sum += run;
    EXPECT_NEAR(work * 200 / sum, useful_share(failures, interval), 0.005) << interval;
  }
}

TEST(FailuresTest, DalysIntervalIsTheBest) {
  // Young's is good where a checkpoint takes no time beside the mean, Daly's also where it does.
  for (const double save : {1.0, 60.0, 1200.0}) {
    const Failures failures{.mean_s = 4 * 3600.0, .save_s = save, .restart_s = 600.0};
    const double daly = daly_interval(failures);
    double best = 0.0;
    for (double interval = save / 10; interval < failures.mean_s * 2; interval *= 1.01)
      best = std::max(best, useful_share(failures, interval));
    EXPECT_GT(useful_share(failures, daly), best - 1e-3) << save;
    EXPECT_GE(useful_share(failures, daly), useful_share(failures, young_interval(failures)) - 1e-6) << save;
  }
  EXPECT_EQ(daly_interval({.mean_s = 10.0, .save_s = 30.0}), 10.0);
}

}  // namespace
}  // namespace tessera::planner

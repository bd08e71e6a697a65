// Tests of four ranks on two machines that are connected by a wire: they compute the numbers of one process,
// whatever the wire does.
#include <cmath>

#include "tests/integration/fixture.h"
#include "tests/testing/paths.h"
#include "tests/testing/processes.h"
#include "tests/testing/skip.h"
#include "tests/testing/two_machines.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

class NetnsTest : public ProgramTest {
 protected:
  void SetUp() override {
    if (!machines_.is_up()) GTEST_SKIP() << skip::kPermission << ": networks of one's own";
    ProgramTest::SetUp();
  }

  ProgramResult train_on_both(const Words& keys, RunOptions options = {}) const {
    options.folder = here.path();
    return run_command(machines_.on_four_ranks(with({program_path(), "train", "recipe.yaml"}, keys)),
                       options);
  }
  ProgramResult train_well_on_both(const Words& keys) const {
    ProgramResult result = train_on_both(keys);
    EXPECT_EQ(result.exit_code, 0) << result.told();
    EXPECT_TRUE(result.error_lines().empty()) << result.told();
    return result;
  }
  // Returns the bytes that a step sends over the wire: the difference between a long and a short run, in
  // which the bytes of beginning and end cancel.
  double bytes_of_a_step(const Words& keys) const {
    constexpr int kShort = 4, kLong = 24;
    double bytes[2];
    for (const int run : {0, 1}) {
      const int64_t before = machines_.bytes_sent();
      train_well_on_both(with(keys, {"max_steps=" + std::to_string(run == 0 ? kShort : kLong)}));
      bytes[run] = static_cast<double>(machines_.bytes_sent() - before);
    }
    return (bytes[1] - bytes[0]) / (kLong - kShort);
  }

  TwoMachines machines_;
};

TEST_F(NetnsTest, EveryLayoutOf4RanksOnTwoMachinesEqualsOneProcess) {
  const Words all = {"dtype=float64", "micro_batch_size=1", "max_steps=5"};
  train_well(with(all, {"gradient_accumulation_steps=4", "output_dir=alone"}));
  const auto want = losses(here / "alone");
  ASSERT_EQ(want.size(), 5u);
  struct Case {
    Words keys;
    int readers;
  };
  for (const auto& [keys, readers] : {Case{{"dp_replicate_size=2"}, 4}, Case{{"tensor_parallel_size=2"}, 2},
                                      Case{{"pipeline_parallel_size=2"}, 2}, Case{{}, 4}}) {
    SCOPED_TRACE(keys.empty() ? "dp_shard 4" : keys.front());
    train_well_on_both(with(with(all, keys), {"gradient_accumulation_steps=" + std::to_string(4 / readers)}));
    const auto got = losses(out());
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i].second, want[i].second, 1e-9) << "step " << want[i].first;
  }
}

// Each kind of parallelism sends over the wire what it has to, and no more.
TEST_F(NetnsTest, ReplicasSendGradientsAloneAndTensorParallelismInAMachineNothing) {
  TinyModel wide;
  wide.hidden = 96, wide.intermediate = 160;
  write_tiny_model(here / "wide", wide);
  double parameter_bytes = 0.0;
  for (const TinyTensor& tensor : tiny_tensors(wide)) parameter_bytes += 4.0 * tensor.values.size();
  const Words all = {"base_model=wide", "micro_batch_size=1"};
  const double replicas = bytes_of_a_step(with(all, {"dp_replicate_size=2"}));
  // In an all-reduce of two replicas each sends half of its gradients and half of the sums.
  EXPECT_GT(replicas, 0.95 * parameter_bytes);
  EXPECT_LT(replicas, 1.3 * parameter_bytes);
  // Shards over both machines send the parameters too, twice.
  EXPECT_GT(bytes_of_a_step(all), 2.0 * replicas);

  // Sums of activations grow with the tokens of a step; what crosses the wire does not.
  write_text(here / "rows.jsonl", tiny_rows(240));
  const Words cut = {"base_model=wide", "tensor_parallel_size=2"};
  const double few = bytes_of_a_step(with(cut, {"micro_batch_size=1"}));
  const auto sent_by_tp = [&] { return read_metrics(out()).back().at("traffic").at("tp").at("bytes_sent"); };
  const double few_by_tp = sent_by_tp();
  const double many = bytes_of_a_step(with(cut, {"micro_batch_size=10"}));
  const double many_by_tp = sent_by_tp();
  EXPECT_GT(many_by_tp - few_by_tp, 0.15 * few);
  EXPECT_LT(std::abs(many - few), 0.05 * few);
}

TEST_F(NetnsTest, AWireThatLosesHalfOfItsPacketsDelaysAndChangesNothing) {
  const Words keys = {"max_steps=200", "dp_replicate_size=2"};
  train_well_on_both(with(keys, {"output_dir=whole"}));
  RunOptions options;
  options.timeout_s = 400.0;
  // The wire loses packets only for a while: TCP waits twice as long after each loss in a row.
  constexpr int64_t kLost = 30;
  options.while_running = [&](pid_t) {
    machines_.lose(num_steps() > 0 && machines_.packets_lost() < kLost ? 0.5 : 0.0);
  };
  const ProgramResult result = train_on_both(keys, options);
  machines_.lose(0.0);
  EXPECT_EQ(result.exit_code, 0) << result.told();
  EXPECT_GE(machines_.packets_lost(), kLost);
  EXPECT_TRUE(read_text(out("model.safetensors")) == read_text(here / "whole/model.safetensors"));
  EXPECT_EQ(losses(out()), losses(here / "whole"));
}

// Ranks, mpirun and its daemon on the other machine do not hear each other any more.
TEST_F(NetnsTest, AWireThatIsCutEndsTheRunAndNamesTheRanksAtItsEnds) {
  for (const Words& keys :
       {Words{"dp_replicate_size=2"}, Words{"tensor_parallel_size=2"}, Words{"pipeline_parallel_size=2"}}) {
    SCOPED_TRACE(keys.front());
    machines_.lose(0.0);
    fs::remove_all(partial());
    std::vector<pid_t> ranks, all;
    RunOptions options;
    options.timeout_s = 100.0;
    options.while_running = [&](pid_t root) {
      if (!ranks.empty() || num_steps() < 3) return;
      ranks = ranks_below(root);
      all = machines_.processes();
      machines_.lose(1.0);
    };
    const ProgramResult result = train_on_both(with({"max_steps=1000000", "ddp_timeout=4"}, keys), options);
    EXPECT_EQ(ranks.size(), 4u) << result.told();
    EXPECT_FALSE(result.has_timed_out) << result.told();
    EXPECT_EQ(result.exit_code, 8) << result.told();
    const Words errors = result.error_lines();
    ASSERT_GE(errors.size(), 1u) << result.told();
    for (const std::string& error : errors) {
      EXPECT_NE(error.find("error[E-HANG-TIMEOUT]"), std::string::npos) << error;
      EXPECT_NE(error.find(" on machine-a"), std::string::npos) << error;
      EXPECT_NE(error.find(" on machine-b"), std::string::npos) << error;
    }
    expect_gone(all);
  }
}

}  // namespace
}  // namespace tessera::testing

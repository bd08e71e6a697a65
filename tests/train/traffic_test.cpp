// Tests that a step sends along each axis the bytes that the formulas of the methods give.
#include <gtest/gtest.h>

#include "tessera/models/registry.h"
#include "tessera/nn/sparse_mlp.h"
#include "tessera/parallel/expert_parallel/expert_dispatch.h"
#include "tessera/parallel/layout.h"
#include "tessera/planner/step_traffic.h"
#include "tessera/train/run/planned_work.h"
#include "tessera/train/run/step_forecast.h"
#include "tessera/train/setup/recipe_values.h"
#include "tessera/train/step/step.h"

#include "tests/testing/mpi_world.h"
#include "tests/testing/paths.h"

namespace tessera::train {
namespace {

constexpr int64_t kTokens = 24;
// Bytes that losses, norms and their counts may add.
constexpr int64_t kSmall = 4096;

data::MicroBatch batch() {
  data::MicroBatch made;
  for (int64_t i = 0; i < kTokens; ++i) {
    made.input_ids.push_back(i);
    made.labels.push_back(i + 1 < kTokens ? i + 1 : kIgnoreLabel);
    made.position_ids.push_back(i);
  }
  made.document_starts = {0, kTokens};
  made.label_tokens = kTokens - 1;
  return made;
}

struct Sent {
  std::map<std::string, comm::Traffic> by_axis;  // traffic of this rank in one step
  int64_t block_bytes = 0, rest_bytes = 0;       // bytes of the parameters of blocks, and of all others
  int64_t coded_block_bytes = 0, coded_rest_bytes = 0;  // the same in codes of 8 bits
  int64_t coded_gradient_bytes = 0;  // bytes of the gradients that are sent in codes of 4 bits
  int64_t plain_gradient_bytes = 0;  // bytes of the others, of one dim
  int64_t num_blocks = 0, hidden_size = 0;
  double key_value_bytes = 0.0, query_bytes = 0.0;  // bytes of one token in a block

  void expect_bytes(const std::string& axis, int64_t ranks, double whole) const {
    expect_bytes(axis, whole * static_cast<double>(ranks - 1) / static_cast<double>(ranks));
  }
  void expect_bytes(const std::string& axis, double wanted) const {
    const auto found = by_axis.find(axis);
    ASSERT_NE(found, by_axis.end()) << axis;
    EXPECT_NEAR(static_cast<double>(found->second.bytes_sent), wanted, kSmall) << axis;
    EXPECT_GT(wanted, 10 * kSmall) << "so that the bound says something";
  }
};

// Returns the bytes of a parameter in codes: for each row the codes, and a scale in float32 for each block.
int64_t bytes_in_codes(const std::vector<int64_t>& shape, int64_t bits, int64_t block) {
  if (shape.size() < 2) return shape[0] * 4;
  int64_t width = 1;
  for (size_t dim = 1; dim < shape.size(); ++dim) width *= shape[dim];
  return shape[0] * ((width * bits + 7) / 8 + (width + block - 1) / block * 4);
}

using BeforeStep = std::function<void(models::CausalLM&, const parallel::DeviceMesh&)>;

// Returns the traffic of the second step, with `num_batches` micro-batches on each rank.
Sent run(config::Recipe recipe, int64_t num_batches = 1, const std::string& family = "llama3",
         const BeforeStep& before_step = {}, int64_t ranks_of_machine = 0) {
  recipe.base_model = testing::source_folder() + "/tests/reference/data/models/" + family;
  const auto world = testing::world();
  ParallelDims dims = parallel_dims(recipe, world->size());
  if (ranks_of_machine > 0) dims.machine = ranks_of_machine;
  const parallel::DeviceMesh mesh(world, dims);
  TrainedModel trained = set_up_model(recipe, mesh);
  Sent sent;
  sent.num_blocks = static_cast<int64_t>(trained.model->blocks().size());
  sent.hidden_size = trained.model->config().hidden_size;
  const nn::CachedHeads heads = trained.model->blocks().front()->cached_heads();
  sent.key_value_bytes = static_cast<double>(2 * heads.num_kv_heads * heads.head_dim * 4);
  sent.query_bytes = static_cast<double>(trained.model->config().num_heads * heads.head_dim * 4);
  for (const auto& parameter : trained.sharded->parameters()) {
    const bool is_of_block = parameter.name.find(".layers.") != std::string::npos;
    (is_of_block ? sent.block_bytes : sent.rest_bytes) += parameter.layout.numel() * 4;
    (is_of_block ? sent.coded_block_bytes : sent.coded_rest_bytes) +=
        bytes_in_codes(parameter.layout.shape(), 8, 256);
    (parameter.layout.shape().size() > 1 ? sent.coded_gradient_bytes : sent.plain_gradient_bytes) +=
        bytes_in_codes(parameter.layout.shape(), 4, 128);
  }
  const auto optimizer = optim::make_sgd(optimized_tiles(*trained.sharded, 0.0, false));
  const std::vector<data::MicroBatch> batches(static_cast<size_t>(num_batches), batch());
  std::map<std::string, comm::Traffic> before;
  for (int64_t step = 0; step < 2; ++step) {
    if (before_step) before_step(*trained.model, mesh);
    before = mesh.traffic();
    run_step(trained, *optimizer, mesh, {&batches, 100, step, 0.1, 1.0, 1});
  }
  for (const auto& [axis, traffic] : mesh.traffic()) sent.by_axis[axis] = traffic - before[axis];
  return sent;
}

config::Recipe with_stage(config::ZeroStage stage) {
  config::Recipe recipe;
  recipe.zero_stage = stage;
  return recipe;
}

double total(const Sent& sent) { return static_cast<double>(sent.block_bytes + sent.rest_bytes); }

// The formula is that of Rajbhandari et al., "ZeRO" (arXiv 1910.02054), section 7, times (n - 1) / n, since
// a rank has its own part already.
TEST(TrafficTest, OfShardsIsTwoOrThreeTimesTheParameters) {
  const int64_t n = testing::world()->size();
  if (n == 1) return;
  for (const auto stage : {config::ZeroStage::Zero1, config::ZeroStage::Zero2}) {
    const Sent sent = run(with_stage(stage));
    sent.expect_bytes("dp_shard", n, 2.0 * total(sent));
  }
  const Sent sent = run(with_stage(config::ZeroStage::Zero3));
  // Parameters outside the blocks stay gathered from the forward to the backward.
  sent.expect_bytes("dp_shard", n, 3.0 * total(sent) - static_cast<double>(sent.rest_bytes));
}

// By Wang et al., "ZeRO++" (arXiv 2306.10209), section 3.2, the backward's gathers stay among the ranks that
// keep secondary shards, whatever the number of micro-batches.
TEST(TrafficTest, OfSecondaryShardsTheBackwardsGathersStayInside) {
  const int64_t n = testing::world()->size();
  if (n < 4) return;
  for (const int64_t batches : {2, 5}) {
    config::Recipe recipe = with_stage(config::ZeroStage::Zero3);
    recipe.zero_hpz_partition_size = 2;
    const Sent sent = run(recipe, batches);
    const auto m = static_cast<double>(batches);
    sent.expect_bytes("dp_shard", n, m * 2.0 * total(sent));
    sent.expect_bytes("hpz", 2, m * static_cast<double>(sent.block_bytes));
  }
}

// By Wang et al., "ZeRO++", section 3, parameters travel in 8 bits and gradients in 4, and with the sums of
// each machine exchanged between machines only a rank's share of the gradients crosses between them.
TEST(TrafficTest, OfCodesIsThatOfTheirFormula) {
  const int64_t n = testing::world()->size();
  if (n == 1) return;
  constexpr int64_t kBatches = 24;
  config::Recipe recipe = with_stage(config::ZeroStage::Zero3);
  recipe.zero_quantized_weights = recipe.zero_quantized_gradients = true;
  const Sent sent = run(recipe, kBatches);
  const auto as_one = static_cast<double>(
      kBatches * (2 * sent.coded_block_bytes + sent.coded_rest_bytes + sent.plain_gradient_bytes));
  const auto of_gradients = static_cast<double>(kBatches * sent.coded_gradient_bytes);
  sent.expect_bytes("dp_shard", n, as_one + of_gradients);
  const double plain =
      static_cast<double>(kBatches) * (3.0 * total(sent) - static_cast<double>(sent.rest_bytes));
  // The rows of this model are short, so scales take more than in a real one (row_codes_test.cpp).
  EXPECT_LT(3.5 * (as_one + of_gradients), plain);
  if (n != 4) return;
  const Sent staged = run(recipe, kBatches, "llama3", {}, 2);
  staged.expect_bytes("dp_shard", n, as_one);
  staged.expect_bytes("machine", 2, of_gradients);
  staged.expect_bytes("machines", 2, of_gradients / 2.0);
}

TEST(TrafficTest, OfReplicasIsTwiceTheGradientsOnceAStep) {
  const int64_t n = testing::world()->size();
  if (n == 1) return;
  const Sent sent = run(with_stage(config::ZeroStage::Ddp), 3);
  sent.expect_bytes("dp_replicate", n, 2.0 * total(sent));
}

// The tensors are hidden states, [tokens, hidden_size]. A block gathers twice and reduce-scatters twice in
// the forward; in the backward it does the same, and gathers twice more. Embedding and output projection
// send theirs once each way.
TEST(TrafficTest, OfTensorParallelLayersIsTheirHiddenStates) {
  const int64_t n = testing::world()->size();
  if (n == 1 || n > 4) return;  // the model has four heads
  for (const bool async : {false, true}) {
    config::Recipe recipe;
    recipe.tensor_parallel_size = n;
    recipe.async_tensor_parallel = async;
    const Sent sent = run(recipe, 4);
    const double hidden = static_cast<double>(4 * kTokens * sent.hidden_size * 4);
    sent.expect_bytes("tp", n, hidden * static_cast<double>(10 * sent.num_blocks + 4));
  }
}

// The tensors are keys and values, [tokens, key/value heads]. They go round the ring in the forward and in
// the backward, where their gradients go one step further, to the rank that they belong to.
TEST(TrafficTest, OfRingsIsTheirKeysAndValues) {
  // There are two ranks along dp_shard: if there were one, the group of cp would also share the parameters.
  const int64_t n = testing::world()->size() / 2;
  if (n == 1) return;
  config::Recipe recipe;
  recipe.context_parallel_size = n;
  recipe.context_parallel_method = ContextParallelMethod::Ring;
  const Sent sent = run(recipe, 40);
  const double layers = static_cast<double>(40 * kTokens * sent.num_blocks), ranks = static_cast<double>(n);
  sent.expect_bytes("cp", layers * sent.key_value_bytes * (2.0 * (ranks - 1.0) / ranks + 1.0));
}

// By Jacobs et al., "DeepSpeed Ulysses" (arXiv 2309.14509), section 3.2, queries, keys, values and results
// change places between ranks, and so do their gradients.
TEST(TrafficTest, OfExchangedHeadsIsTheirPart) {
  const int64_t n = 2;  // number of key/value heads, which are dealt evenly
  if (testing::world()->size() == n) return;
  config::Recipe recipe;
  recipe.context_parallel_size = n;
  recipe.context_parallel_method = ContextParallelMethod::Ulysses;
  const Sent sent = run(recipe, 40);
  const double tokens = static_cast<double>(40 * kTokens * sent.num_blocks) / static_cast<double>(n);
  sent.expect_bytes("cp", n, 2.0 * tokens * (2.0 * sent.query_bytes + sent.key_value_bytes));
}

// Both methods at once: two neighbours exchange their heads, and rings along the other axis pass half of the
// heads on.
TEST(TrafficTest, OfHeadsAndRingsIsCountedOnEachOfTheirAxes) {
  const int64_t n = testing::world()->size();
  if (n < 4) return;
  config::Recipe recipe;
  recipe.context_parallel_size = n;
  recipe.context_parallel_method = ContextParallelMethod::Usp;
  const Sent sent = run(recipe, 40);
  const double layers = static_cast<double>(40 * kTokens * sent.num_blocks);
  sent.expect_bytes("cp_heads", 2,
                    2.0 * layers / static_cast<double>(n) * (2.0 * sent.query_bytes + sent.key_value_bytes));
  const double ring = static_cast<double>(n / 2);
  sent.expect_bytes("cp_ring", layers * sent.key_value_bytes / 2.0 * (2.0 * (ring - 1.0) / ring + 1.0));
}

// Runs the experts over ranks, and counts the rows that this rank sends to each other rank.
class CountedDispatch : public nn::ExpertCore {
 public:
  CountedDispatch(std::shared_ptr<comm::Communicator> group, std::vector<int64_t>& rows)
      : group_(group), dispatch_(group), rows_(rows) {}
  at::Tensor run(const at::Tensor& rows, const at::Tensor& ends, const nn::Experts& experts) const override {
    const std::vector<int64_t> counts = nn::row_counts(ends, rows.size(0));
    for (int64_t rank = 0; rank < group_->size(); ++rank) {
      if (rank == group_->rank()) continue;
      const auto [first, count] = parallel::piece_of(std::ssize(counts), group_->size(), rank);
      for (int64_t e = first; e < first + count; ++e) rows_[static_cast<size_t>(rank)] += counts[e];
    }
    return dispatch_.run(rows, ends, experts);
  }

 private:
  const std::shared_ptr<comm::Communicator> group_;
  const parallel::ExpertDispatch dispatch_;
  std::vector<int64_t>& rows_;
};

// In the forward rows go to their experts and results come back; in the backward gradients of results go and
// those of rows come back. So a rank sends its own rows to others, and theirs back to them, twice.
TEST(TrafficTest, OfExpertsIsTheRowsThatTravel) {
  const int64_t n = testing::world()->size(), ranks = n == 6 ? 3 : n;
  config::Recipe recipe;
  recipe.expert_parallel_size = ranks;
  std::vector<int64_t> rows;  // number of rows sent to each rank of the group in the last step
  std::shared_ptr<comm::Communicator> group;
  const Sent sent =
      run(recipe, 20, "mixtral", [&](models::CausalLM& model, const parallel::DeviceMesh& mesh) {
        group = mesh.group(parallel::kAxisEp);
        rows.assign(static_cast<size_t>(group->size()), 0);
        for (const auto& module : model.modules(/*include_self=*/false)) {
          if (auto* const mlp = dynamic_cast<nn::SparseMLP*>(module.get()))
            mlp->set_core(std::make_shared<CountedDispatch>(group, rows));
        }
      });
  ASSERT_EQ(group->size(), ranks);
  const at::Tensor all = at::empty({ranks, ranks}, at::kLong);
  group->all_gather_single(all, at::tensor(rows, at::kLong));
  const int64_t travel =
      all.select(0, group->rank()).sum().item<int64_t>() + all.select(1, group->rank()).sum().item<int64_t>();
  sent.expect_bytes("ep", 2.0 * static_cast<double>(travel * sent.hidden_size * 4));
}

struct PlannedCase {
  std::string axes, family;
  void (*set)(config::Recipe&, int64_t ranks);
};

// Compares the planner's bytes, which know of no embedding, head or bias that an axis sends beside its
// blocks.
TEST(TrafficTest, IsWhatThePlannerForesees) {
  constexpr int64_t kBatches = 20;
  using config::Recipe, config::ZeroStage;
  const PlannedCase cases[] = {
      {"ddp", "llama3", [](Recipe& r, int64_t n) { r.dp_replicate_size = n; }},
      {"zero 1", "llama3", [](Recipe& r, int64_t) { r.zero_stage = ZeroStage::Zero1; }},
      {"zero 2", "llama3", [](Recipe& r, int64_t) { r.zero_stage = ZeroStage::Zero2; }},
      {"zero 3", "llama3", [](Recipe& r, int64_t) { r.zero_stage = ZeroStage::Zero3; }},
      {"zero 3 in codes", "llama3",
       [](Recipe& r, int64_t) { r.zero_quantized_weights = r.zero_quantized_gradients = true; }},
      {"tp", "llama3", [](Recipe& r, int64_t) { r.tensor_parallel_size = 2; }},
      {"cp", "llama3", [](Recipe& r, int64_t n) { r.context_parallel_size = n; }},
      {"pp", "llama3", [](Recipe& r, int64_t) { r.pipeline_parallel_size = 2; }},
  };
  const int64_t n = testing::world()->size();
  planner::Cluster cluster = planner::load_cluster("8xH100");
  cluster.devices_per_node = n;
  for (const PlannedCase& c : cases) {
    SCOPED_TRACE(c.axes);
    Recipe recipe;
    recipe.sequence_len = kTokens;
    recipe.micro_batch_size = 1;
    recipe.gradient_accumulation_steps = kBatches;
    c.set(recipe, n);
    std::map<std::string, AxisTraffic> sent;
    for (const auto& [axis, traffic] : run(recipe, kBatches, c.family).by_axis)
      sent[axis] = {traffic.bytes_sent, 0.0};
    const auto config =
        models::read_model_config(testing::source_folder() + "/tests/reference/data/models/" + c.family);
    const planner::ModelWork work = work_of(*models::build_model(*config, at::kFloat), *config);
    const planner::Choice choice = choice_of(recipe, n);
    const planner::StepTraffic planned =
        planner::step_traffic(planner::step_parts(work, cluster, job_of(recipe, n), choice), choice,
                              static_cast<double>(work.layers));
    const planner::StepTraffic measured = sent_by_purpose(sent);
    for (size_t i = 0; i < planner::kNumPurposes && testing::world()->rank() == 0; ++i) {
      EXPECT_NEAR(measured.bytes[i], planned.bytes[i], 0.15 * planned.bytes[i] + 2 * kSmall)
          << purpose_name(static_cast<planner::Purpose>(i));
    }
  }
}

}  // namespace
}  // namespace tessera::train

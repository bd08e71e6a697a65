// A training step on any layout of ranks equals the step of one process that sees all micro-batches.
#include <gtest/gtest.h>

#include "tessera/checkpoint/random_source.h"
#include "tessera/core/rng.h"
#include "tessera/models/common/parallelize.h"
#include "tessera/ops/kernel_choice.h"
#include "tessera/parallel/gather_tensor.h"
#include "tessera/train/step.h"

#include "tests/io/expect_error.h"
#include "tests/models/reference_models.h"
#include "tests/testing/mpi_world.h"

namespace tessera::train {
namespace {

constexpr int64_t kVocabulary = 61;  // the least of the families

enum class Trained { All, LoraWithDropout, SomeFrozen };

struct LayoutCase {
  std::string family;
  config::ZeroStage stage = config::ZeroStage::Zero3;
  int64_t dp_replicate = 1, tp = 1, cp = 1;
  ContextParallelMethod method = ContextParallelMethod::Auto;
  Trained trained = Trained::All;
  config::Checkpointing checkpointing = config::Checkpointing::Off;
};

config::Recipe recipe_of(const LayoutCase& layout) {
  config::Recipe recipe;
  recipe.base_model = models::reference_folder(layout.family);
  recipe.dtype = config::ComputeType::Float64;
  recipe.zero_stage = layout.stage;
  recipe.dp_replicate_size = layout.dp_replicate;
  recipe.tensor_parallel_size = layout.tp;
  recipe.context_parallel_size = layout.cp;
  recipe.context_parallel_method = layout.method;
  recipe.gradient_checkpointing = layout.checkpointing;
  recipe.gradient_checkpointing_every = layout.stage == config::ZeroStage::Zero2 ? 2 : 1;
  recipe.seed = 5;
  if (layout.trained == Trained::LoraWithDropout) {
    recipe.adapter = config::AdapterKind::Lora;
    recipe.lora_r = 3;
    recipe.lora_alpha = 6.0;
    recipe.lora_dropout = 0.3;
    recipe.lora_target_linear = true;
    recipe.lora_modules_to_save = {layout.family == "gpt2" ? "ln_f" : "norm"};
  }
  return recipe;
}

// A model of which only some parameters train, whole layers and the tied embedding among the frozen.
TrainedModel set_up_frozen(const config::Recipe& recipe, const parallel::DeviceMesh& mesh) {
  TrainedModel trained;
  trained.model = models::build_model(recipe.base_model, at::kDouble);
  for (auto& entry : trained.model->named_parameters()) {
    const std::string& name = entry.key();
    const auto is_in = [&](const char* part) { return name.find(part) != std::string::npos; };
    const bool trains = is_in("layers.1.") || is_in("h.1.") || is_in("v_proj") || is_in("c_attn") ||
                        name == "model.norm.weight" || is_in("ln_f");
    entry.value().set_requires_grad(trains && !is_in("layers.2.") && !is_in("h.2."));
  }
  models::ParallelizeOptions options;
  options.checkpoint_every = recipe.gradient_checkpointing == config::Checkpointing::Block ? 1 : 0;
  options.recompute_mlps = recipe.gradient_checkpointing == config::Checkpointing::Mlp;
  // Both kinds of tensor parallelism occur.
  options.sequence_parallel =
      recipe.gradient_checkpointing != config::Checkpointing::Mlp && recipe.context_parallel_size == 1;
  options.context_parallel = recipe.context_parallel_method;
  options.shard.average_gradients = false;
  options.shard.broadcast_initial_values = false;
  options.shard.reshard_after_forward = recipe.zero_stage == config::ZeroStage::Zero3;
  options.shard.reduce_every_backward = recipe.zero_stage >= config::ZeroStage::Zero2;
  const auto files = std::make_shared<const io::ModelFiles>(io::ModelFiles::open(recipe.base_model));
  const auto source = checkpoint::stored_source(checkpoint::stored_tensors(files),
                                                models::state_dict_adapter(*trained.model));
  trained.sharded = models::parallelize(*trained.model, mesh, options);
  trained.sharded->materialize([&](const parallel::ShardedParameter& parameter) {
    source->read(parameter.name, parameter.box, parameter.tile.detach());
  });
  return trained;
}

TrainedModel set_up(const LayoutCase& layout, const parallel::DeviceMesh& mesh) {
  const config::Recipe recipe = recipe_of(layout);
  if (layout.trained == Trained::SomeFrozen) return set_up_frozen(recipe, mesh);
  TrainedModel trained = set_up_model(recipe, mesh);
  trained.model->train();
  for (const auto& parameter : trained.sharded->parameters()) {
    // Adapters that do something from the start.
    if (parameter.name.find("lora_B") == std::string::npos || parameter.tile.numel() == 0) continue;
    checkpoint::fill_box(parameter.tile.detach(), "b." + std::to_string(parameter.name.size()) + ".weight",
                         parameter.layout.shape(), parameter.box, nn::InitialValue::normal(0.1), 9);
  }
  return trained;
}

// Micro-batch `index` of a step: one to three documents; number 1 without a label, the last one empty.
data::MicroBatch micro_batch(int64_t step, int64_t index, int64_t count) {
  data::MicroBatch batch;
  if (index == count - 1) return batch;
  const CounterRng rng(static_cast<uint64_t>(step * 1000 + index), 17);
  uint64_t drawn = 0;
  const auto draw = [&](int64_t below) {
    return static_cast<int64_t>(rng.bits(drawn++) % static_cast<uint64_t>(below));
  };
  batch.document_starts = {0};
  for (int64_t document = 0; document <= index % 3; ++document) {
    const int64_t size = 2 + draw(9);
    for (int64_t i = 0; i < size; ++i) {
      batch.input_ids.push_back(draw(kVocabulary));
      batch.position_ids.push_back(i);
      const bool has_label = index != 1 && i + 1 < size && draw(3) != 0;
      batch.labels.push_back(has_label ? draw(kVocabulary) : kIgnoreLabel);
      batch.label_tokens += has_label ? 1 : 0;
    }
    batch.document_starts.push_back(static_cast<int64_t>(batch.input_ids.size()));
  }
  return batch;
}

// Those of the step that rank `rank` of `ranks` runs.
std::vector<data::MicroBatch> micro_batches(int64_t step, int64_t count, int64_t rank, int64_t ranks) {
  std::vector<data::MicroBatch> batches;
  for (int64_t index = rank; index < count; index += ranks)
    batches.push_back(micro_batch(step, index, count));
  return batches;
}

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<std::pair<std::string, at::Tensor>>
      gradients;                                           // whole; of the first step, which updates nothing
  std::vector<std::pair<std::string, at::Tensor>> values;  // whole; after the two steps that follow it
};

at::Tensor whole_gradient(const parallel::ShardedModel& sharded,
                          const parallel::ShardedParameter& parameter) {
  const at::Tensor grad = parameter.tile.grad();
  return parallel::gather_tensor(grad.defined() ? grad : at::zeros_like(parameter.tile.detach()),
                                 parameter.layout, sharded.axes(), parameter.name);
}

Outcome run(const LayoutCase& layout, const std::shared_ptr<comm::Communicator>& world, int64_t count) {
  const config::Recipe recipe = recipe_of(layout);
  const parallel::DeviceMesh mesh(world, parallel_dims(recipe, world->size()));
  TrainedModel trained = set_up(layout, mesh);
  Outcome outcome;
  const auto step = [&](optim::Optimizer& optimizer, int64_t number, double lr, double max_grad_norm) {
    const auto batches =
        micro_batches(number, count, mesh.coordinate(parallel::kAxisDp), mesh.size(parallel::kAxisDp));
    int64_t label_tokens = 0;
    for (int64_t i = 0; i < count; ++i) label_tokens += micro_batch(number, i, count).label_tokens;
    const StepResult result =
        run_step(trained, optimizer, mesh, {&batches, label_tokens, number, lr, max_grad_norm, 77});
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.grad_norm);
  };
  const auto still = optim::make_sgd(optimized_tiles(*trained.sharded, 0.0, false));
  step(*still, 0, 0.0, 0.0);
  for (const auto& parameter : trained.sharded->parameters()) {
    EXPECT_TRUE(parameter.requires_grad || !parameter.tile.grad().defined()) << parameter.name;
    if (parameter.requires_grad)
      outcome.gradients.emplace_back(parameter.name, whole_gradient(*trained.sharded, parameter));
  }
  const auto adamw = optim::make_adamw(optimized_tiles(*trained.sharded, 0.1, false), {});
  step(*adamw, 1, 0.01, 0.5);
  step(*adamw, 2, 0.01, 0.5);
  for (const auto& parameter : trained.sharded->parameters()) {
    outcome.values.emplace_back(parameter.name, trained.sharded->full_tensor(parameter));
  }
  return outcome;
}

void expect_close(const std::vector<std::pair<std::string, at::Tensor>>& got,
                  const std::vector<std::pair<std::string, at::Tensor>>& want, double tolerance,
                  const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].first, want[i].first);
    ASSERT_EQ(got[i].second.sizes(), want[i].second.sizes());
    const double scale = want[i].second.norm().item<double>();
    const double error = (got[i].second - want[i].second).norm().item<double>();
    EXPECT_LE(error, tolerance * scale) << what << " of " << got[i].first << ", norm " << scale;
  }
}

void expect_equal(const Outcome& got, const Outcome& want, double tolerance = 1e-9) {
  for (size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], want.losses[i], 1e-10 * want.losses[i]) << "step " << i;
    EXPECT_NEAR(got.norms[i], want.norms[i], tolerance * want.norms[i]) << "step " << i;
  }
  expect_close(got.gradients, want.gradients, 1e-10, "gradient");
  expect_close(got.values, want.values, tolerance, "value");
}

void expect_same_as_one_process(const LayoutCase& layout) {
  const auto world = testing::world();
  SCOPED_TRACE(layout.family + ", zero_stage " + std::to_string(static_cast<int>(layout.stage)) +
               ", dp_replicate " + std::to_string(layout.dp_replicate) + ", tp " + std::to_string(layout.tp) +
               ", cp " + std::to_string(layout.cp) + " method " +
               std::to_string(static_cast<int>(layout.method)) + ", trained " +
               std::to_string(static_cast<int>(layout.trained)) + ", checkpointing " +
               std::to_string(static_cast<int>(layout.checkpointing)));
  const int64_t count = 3 * world->size();
  LayoutCase alone = layout;
  alone.dp_replicate = alone.tp = alone.cp = 1;
  alone.checkpointing = config::Checkpointing::Off;
  const Outcome want = run(alone, comm::Communicator::single(), count);
  // Nothing is equal because it is zero.
  for (const auto& [name, gradient] : want.gradients) EXPECT_GT(gradient.norm().item<double>(), 0.0) << name;
  for (const double norm : want.norms) EXPECT_GT(norm, 0.5) << "so that clipping does something";

  const Outcome got = run(layout, world, count);
  expect_equal(got, want);
}

enum class Extent { Whole, EveryThird };

// Tensor parallel ranks up to the number of heads, also uneven: between key/value heads, and beyond their
// number between the query heads of each.
void add_tensor_parallel(std::vector<LayoutCase>& layouts, const std::string& family, int64_t num_heads,
                         int64_t num_kv_heads) {
  const int64_t world = testing::world()->size();
  for (int64_t tp = 2; tp <= std::min(world, num_heads); ++tp) {
    if (world % tp != 0 || (tp > num_kv_heads && tp % num_kv_heads != 0)) continue;
    for (const auto stage : {config::ZeroStage::Zero1, config::ZeroStage::Zero2, config::ZeroStage::Zero3}) {
      layouts.push_back({.family = family, .stage = stage, .tp = tp});
    }
    if (world / tp % 2 == 0) layouts.push_back({.family = family, .dp_replicate = 2, .tp = tp});
  }
}

// Context parallel ranks alone, and beside all other axes. Documents are shorter than 2 cp, too.
void add_context_parallel(std::vector<LayoutCase>& layouts, const std::string& family, int64_t num_kv_heads) {
  const int64_t world = testing::world()->size();
  for (int64_t cp = 2; cp <= world; ++cp) {
    if (world % cp != 0) continue;
    for (const auto method : {ContextParallelMethod::Ring, ContextParallelMethod::Ulysses}) {
      layouts.push_back({.family = family, .cp = cp, .method = method});
      const int64_t rest = world / cp;
      if (rest > 1 && rest <= num_kv_heads) {
        layouts.push_back({.family = family, .tp = rest, .cp = cp, .method = method});
      }
    }
    layouts.push_back({.family = family, .stage = config::ZeroStage::Zero1, .cp = cp});
    if (world / cp % 2 == 0) {
      layouts.push_back({.family = family, .stage = config::ZeroStage::Zero2, .dp_replicate = 2, .cp = cp});
    }
  }
}

void check(const std::vector<LayoutCase>& layouts, Extent extent) {
  constexpr config::Checkpointing kKinds[] = {config::Checkpointing::Off, config::Checkpointing::Mlp,
                                              config::Checkpointing::Block};
  size_t index = 0;
  for (LayoutCase layout : layouts) {
    for (const Trained trained : {Trained::All, Trained::LoraWithDropout, Trained::SomeFrozen}) {
      layout.trained = trained;
      ++index;
      for (const config::Checkpointing kind : kKinds) {
        // Of those that differ in checkpointing alone, one in turn.
        if (extent == Extent::EveryThird && kind != kKinds[(index + index / 3) % 3]) continue;
        layout.checkpointing = kind;
        expect_same_as_one_process(layout);
      }
    }
  }
}

// Every stage, and replication of shards, tensor and context parallelism where the ranks allow it.
void check_layouts(const std::string& family, int64_t num_heads, int64_t num_kv_heads, Extent extent) {
  std::vector<LayoutCase> layouts;
  add_tensor_parallel(layouts, family, num_heads, num_kv_heads);
  add_context_parallel(layouts, family, num_kv_heads);
  for (const auto stage : {config::ZeroStage::Ddp, config::ZeroStage::Zero1, config::ZeroStage::Zero2,
                           config::ZeroStage::Zero3}) {
    if (testing::world()->size() > 4) break;  // of these, less do
    layouts.push_back({.family = family, .stage = stage});
    if (testing::world()->size() % 2 == 0 && stage != config::ZeroStage::Ddp) {
      layouts.push_back({.family = family, .stage = stage, .dp_replicate = 2});
    }
  }
  check(layouts, extent);
}

TEST(StepLayoutTest, Llama3) { check_layouts("llama3", 4, 2, Extent::EveryThird); }
TEST(StepLayoutTest, Qwen2) { check_layouts("qwen2", 4, 2, Extent::EveryThird); }
TEST(StepLayoutTest, Qwen3) { check_layouts("qwen3", 4, 2, Extent::EveryThird); }
// Windows on all layers, on some, and positions whose frequencies depend on the length of the document.
TEST(StepLayoutTest, ContextParallelOfOtherFamilies) {
  for (const auto& [family, num_kv_heads] :
       {std::pair{"mistral_sliding", 2}, {"qwen2_sliding", 2}, {"llama_dynamic", 1}}) {
    std::vector<LayoutCase> layouts;
    add_context_parallel(layouts, family, num_kv_heads);
    check(layouts, Extent::EveryThird);
  }
}
// Three heads, which two ranks share unevenly, and an output projection of its own.
TEST(StepLayoutTest, UntiedInShards) { check_layouts("llama2", 3, 3, Extent::EveryThird); }

TEST(StepLayoutTest, Gpt2) { check_layouts("gpt2", 3, 3, Extent::EveryThird); }

// Masks that followed the rank or the position in it would show as another loss.
TEST(StepLayoutTest, DropoutDependsOnTheGlobalMicroBatchAlone) {
  const LayoutCase layout{.family = "llama3", .trained = Trained::LoraWithDropout};
  const auto single = comm::Communicator::single();
  const config::Recipe recipe = recipe_of(layout);
  const parallel::DeviceMesh mesh(single, parallel_dims(recipe, 1));
  TrainedModel trained = set_up(layout, mesh);
  const auto still = optim::make_sgd(optimized_tiles(*trained.sharded, 0.0, false));
  const auto loss_of = [&](const std::vector<data::MicroBatch>& batches, int64_t step, uint64_t seed) {
    return run_step(trained, *still, mesh, {&batches, 1, step, 0.0, 0.0, seed}).loss;
  };
  const data::MicroBatch batch = micro_batch(0, 2, 9), empty = micro_batch(0, 8, 9);
  const double first = loss_of({batch, empty}, 0, 1);
  EXPECT_EQ(loss_of({batch, empty}, 0, 1), first);
  EXPECT_NE(loss_of({empty, batch}, 0, 1), first);
  EXPECT_NE(loss_of({batch, empty}, 1, 1), first);
  EXPECT_NE(loss_of({batch, empty}, 0, 2), first);
}

// The formulas that run on any device give a whole training the numbers of the kernels.
TEST(StepLayoutTest, PlainOpsTrainAsKernelsDo) {
  for (const char* family : {"llama3", "qwen3", "gpt2"}) {
    for (const Trained trained : {Trained::All, Trained::LoraWithDropout}) {
      for (const auto checkpointing : {config::Checkpointing::Off, config::Checkpointing::Mlp}) {
        SCOPED_TRACE(std::string(family) + ", trained " + std::to_string(static_cast<int>(trained)));
        const LayoutCase layout{.family = family, .trained = trained, .checkpointing = checkpointing};
        const Outcome want = run(layout, testing::world(), 3);
        const ops::PlainOps plain;
        expect_equal(run(layout, testing::world(), 3), want, 1e-10);
      }
    }
  }
}

// Ranks that share their micro-batches share their loss: the first of them is named, on every rank.
TEST(StepLayoutTest, ALossThatIsNotFiniteNamesARankOfTheWorld) {
  const auto world = testing::world();
  const LayoutCase layout{.family = "llama3", .tp = world->size() % 2 == 0 ? 2 : 1};
  const config::Recipe recipe = recipe_of(layout);
  const parallel::DeviceMesh mesh(world, parallel_dims(recipe, world->size()));
  TrainedModel trained = set_up(layout, mesh);
  const auto still = optim::make_sgd(optimized_tiles(*trained.sharded, 0.0, false));
  for (const auto& parameter : trained.sharded->parameters()) {
    if (parameter.name == "model.norm.weight") parameter.tile.detach().fill_(std::nan(""));
  }
  // The last ones along dp are the only ones that have labels.
  const bool is_last = mesh.coordinate(parallel::kAxisDp) + 1 == mesh.size(parallel::kAxisDp);
  const std::vector<data::MicroBatch> batches = {is_last ? micro_batch(0, 2, 9) : data::MicroBatch{}};
  testing::expect_error(ErrorKind::Numerics,
                        {"not finite on rank " + std::to_string(world->size() - layout.tp)}, [&] {
                          run_step(trained, *still, mesh, {&batches, 1, 0, 0.0, 0.0, 1});
                        });
}

}  // namespace
}  // namespace tessera::train

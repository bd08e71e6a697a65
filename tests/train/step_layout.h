// Compares steps under any layout with the same steps of one process.
#pragma once

#include <map>

#include <gtest/gtest.h>

#include "tessera/checkpoint/random_source.h"
#include "tessera/core/rng.h"
#include "tessera/models/common/parallelize.h"
#include "tessera/optim/optimizers.h"
#include "tessera/parallel/gather_tensor.h"
#include "tessera/train/setup/parameter_rates.h"
#include "tessera/train/setup/recipe_values.h"
#include "tessera/train/setup/setup.h"
#include "tessera/train/step/step.h"

#include "tests/models/reference_models.h"
#include "tests/testing/mpi_world.h"
#include "tests/train/parity_families.h"

namespace tessera::train {

inline constexpr int64_t kVocabulary = 61;  // the smallest vocabulary of the families

// QloraWithDropout is LoraWithDropout over base weights of four bits, those of experts too. Dora has no
// dropout; the start of DoraFromPissa is a part of the base's weights. QDora is Dora over a base of four
// bits, from LoftQ's factors. LoraOfExperts adapts the parameters in which Transformers joins all experts.
enum class Trained {
  All,
  LoraWithDropout,
  QloraWithDropout,
  SomeFrozen,
  Dora,
  QDora,
  DoraFromPissa,
  LoraWithBias,
  Ia3,
  Norms,
  VeraWithDropout,
  TokenRows,
  LoraOfExperts,
  Prompt
};

// Below the norm of every family's gradients, so that clipping does something.
inline constexpr double kMaxGradNorm = 0.0005;

struct LayoutCase {
  std::string family;
  config::ZeroStage stage = config::ZeroStage::Zero3;
  int64_t dp_replicate = 1, tp = 1, cp = 1, pp = 1, ep = 1, hpz = 1;
  ContextParallelMethod method = ContextParallelMethod::Auto;
  Trained trained = Trained::All;
  config::Checkpointing checkpointing = config::Checkpointing::Off;
  PipelineKind schedule = PipelineKind::OneFOneB;
  int64_t stages_per_rank = 1;
  std::vector<int64_t> split;  // number of layers of each stage
  std::string folder;          // a config.json for random weights; empty = the family's reference model
  int64_t micro_batches = 3;   // number of micro-batches of every rank along dp in a step
  config::ComputeType dtype = config::ComputeType::Float64;
  bool async_tp = false;
  bool fp8 = false;
  bool offloads = false;  // keeps parameters and optimizer states on the host, if the device has streams
  bool has_bf16_states = false;
  OptimizerKind optimizer = OptimizerKind::AdamW;
  double max_grad_norm = kMaxGradNorm;
  bool updates_in_backward = false;
};

// Tells whether the family has experts; the loss then asks for balanced routers and small logits too.
inline bool has_experts(const std::string& family) { return parity_family(family).experts > 1; }

inline config::Recipe recipe_of(const LayoutCase& layout) {
  config::Recipe recipe;
  recipe.base_model = layout.folder.empty() ? models::reference_folder(layout.family) : layout.folder;
  recipe.random_init = !layout.folder.empty();
  recipe.dtype = layout.dtype;
  recipe.fp8 = layout.fp8;
  if (layout.offloads)
    recipe.offload_param_device = recipe.offload_optimizer_device = config::OffloadDevice::Cpu;
  recipe.zero_stage = layout.stage;
  recipe.dp_replicate_size = layout.dp_replicate;
  recipe.tensor_parallel_size = layout.tp;
  recipe.async_tensor_parallel = layout.async_tp;
  recipe.context_parallel_size = layout.cp;
  recipe.context_parallel_method = layout.method;
  recipe.pipeline_parallel_size = layout.pp;
  recipe.expert_parallel_size = layout.ep;
  recipe.zero_hpz_partition_size = layout.hpz;
  recipe.pipeline_schedule = layout.schedule;
  recipe.pipeline_stages_per_rank = layout.stages_per_rank;
  recipe.pipeline_split = layout.split;
  recipe.gradient_checkpointing = layout.checkpointing;
  recipe.gradient_checkpointing_every = layout.stage == config::ZeroStage::Zero2 ? 2 : 1;
  recipe.seed = 5;
  recipe.update_in_backward = layout.updates_in_backward;
  if (has_experts(layout.family)) {
    recipe.router_aux_loss_coef = 0.2;
    recipe.router_z_loss_coef = 0.05;
  }
  if (layout.trained == Trained::QloraWithDropout || layout.trained == Trained::QDora)
    recipe.load_in_4bit = recipe.quantize_moe_experts = true;
  if (layout.trained != Trained::All && layout.trained != Trained::SomeFrozen) {
    recipe.adapter = config::AdapterKind::Lora;
    recipe.lora_r = 3;
    recipe.lora_alpha = 6.0;
    recipe.lora_dropout = 0.3;
    recipe.lora_target_linear = true;
    recipe.neftune_noise_alpha = 5.0;
    recipe.label_smoothing_factor = 0.1;
    recipe.z_loss_coef = 0.02;
    recipe.lora_modules_to_save = {parity_family(layout.family).final_norm};
    const bool is_dora = layout.trained == Trained::Dora || layout.trained == Trained::QDora;
    recipe.peft_use_dora = is_dora || layout.trained == Trained::DoraFromPissa;
    recipe.lora_bias = layout.trained == Trained::LoraWithBias;
    if (layout.trained == Trained::DoraFromPissa) recipe.peft_init_lora_weights = "pissa_niter_2";
    if (is_dora) recipe.lora_dropout = 0.0;
    if (layout.trained == Trained::QDora) recipe.peft_init_lora_weights = "loftq";
    if (layout.trained == Trained::Ia3) {
      recipe.adapter = config::AdapterKind::Ia3;
      recipe.ia3_feedforward_modules = parity_family(layout.family).mlp_layers;
    }
    // The first and the last rows, which two ranks of tp have.
    if (layout.trained == Trained::TokenRows) recipe.peft_trainable_token_indices = {60, 3, 7, 31, 0};
    if (layout.trained == Trained::Prompt) {
      recipe.adapter = config::AdapterKind::PromptTuning;
      recipe.num_virtual_tokens = 3;
      recipe.lora_target_linear = false;
      recipe.lora_modules_to_save.clear();
    }
    if (layout.trained == Trained::LoraOfExperts) {
      recipe.lora_dropout = 0.0;
      recipe.lora_target_parameters = {"experts.gate_up_proj", "experts.down_proj"};
    }
    if (layout.trained == Trained::VeraWithDropout) {
      recipe.adapter = config::AdapterKind::Vera;
      recipe.vera_r = 5;
      recipe.vera_d_initial = 0.8;
    }
    if (layout.trained == Trained::Norms) {
      recipe.adapter = config::AdapterKind::LnTuning;
      recipe.lora_target_linear = false;
      recipe.lora_modules_to_save.clear();
    }
  }
  return recipe;
}

// Sets up a model of which only some parameters train; whole layers and the tied embedding are frozen.
inline TrainedModel set_up_frozen(const config::Recipe& recipe, const parallel::DeviceMesh& mesh) {
  TrainedModel trained;
  trained.model = models::build_model(recipe.base_model, at::kDouble);
  for (auto& entry : trained.model->named_parameters()) {
    const std::string& name = entry.key();
    const auto is_in = [&](const char* part) { return name.find(part) != std::string::npos; };
    const bool trains = is_in("layers.1.") || is_in("h.1.") || is_in("blocks.1.") || is_in("v_proj") ||
                        is_in("c_attn") || name == "model.norm.weight" || is_in("ln_f");
    const bool is_trained = trains && entry.value().requires_grad();
    entry.value().set_requires_grad(is_trained && !is_in("layers.2.") && !is_in("h.2."));
  }
  models::ParallelizeOptions options;
  options.checkpoint_every = recipe.gradient_checkpointing == config::Checkpointing::Block ? 1 : 0;
  options.recompute_mlps = recipe.gradient_checkpointing == config::Checkpointing::Mlp;
  // Tests occur with and without sequence parallelism.
  options.tensor_parallel.sequence_parallel = recipe.gradient_checkpointing != config::Checkpointing::Mlp;
  options.tensor_parallel.async = recipe.async_tensor_parallel;
  options.context_parallel = recipe.context_parallel_method;
  options.shard.average_gradients = false;
  options.shard.broadcast_initial_values = false;
  options.shard.reshard_after_forward = recipe.zero_stage == config::ZeroStage::Zero3;
  options.shard.reduce_every_backward = recipe.zero_stage >= config::ZeroStage::Zero2;
  options.shard.reports_gradients = recipe.update_in_backward;
  if (recipe.pipeline_parallel_size > 1) {
    options.pipeline = models::plan_pipeline(*trained.model, recipe.pipeline_parallel_size,
                                             {recipe.pipeline_schedule, recipe.pipeline_stages_per_rank});
  }
  const auto source = checkpoint::stored_source(models::BaseModel::open(recipe.base_model).tensors(),
                                                models::state_dict_adapter(*trained.model));
  models::ParallelModel parallel = models::parallelize(*trained.model, mesh, options);
  trained.sharded = std::move(parallel.sharded);
  trained.pipeline = std::move(parallel.pipeline);
  trained.sharded->materialize([&](const parallel::ShardedParameter& parameter) {
    source->read(parameter.name, parameter.box, parameter.tile.detach());
  });
  return trained;
}

inline TrainedModel set_up(const LayoutCase& layout, const parallel::DeviceMesh& mesh) {
  const config::Recipe recipe = recipe_of(layout);
  if (layout.trained == Trained::SomeFrozen) return set_up_frozen(recipe, mesh);
  TrainedModel trained = set_up_model(recipe, mesh);
  trained.model->train();
  for (const auto& parameter : trained.sharded->parameters()) {
    // Gives adapters values under which they have an effect from the start.
    const auto is = [&](const char* part) { return parameter.name.find(part) != std::string::npos; };
    const bool is_adapter = is("lora_B") || is("vera_lambda_b") || is("prompt_adapter");
    if (!is_adapter || parameter.tile.numel() == 0) continue;
    checkpoint::fill_box(parameter.tile.detach(), "b." + std::to_string(parameter.name.size()) + ".weight",
                         parameter.layout.shape(), parameter.box, nn::InitialValue::normal(0.1), 9);
  }
  return trained;
}

// Returns micro-batch `index` of a step, with one to three documents. Number 1 has no label, and the last
// one is empty.
inline data::MicroBatch micro_batch(int64_t step, int64_t index, int64_t count) {
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

// Returns the step's micro-batches that rank `rank` of `ranks` runs.
inline std::vector<data::MicroBatch> micro_batches(int64_t step, int64_t count, int64_t rank, int64_t ranks) {
  std::vector<data::MicroBatch> batches;
  for (int64_t index = rank; index < count; index += ranks)
    batches.push_back(micro_batch(step, index, count));
  return batches;
}

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<double> routers;  // both router losses of each step, if the model has experts
  std::vector<std::pair<std::string, at::Tensor>>
      gradients;                                           // of the first step, which updates nothing; whole
  std::vector<std::pair<std::string, at::Tensor>> values;  // after the two steps that follow it; whole
  std::vector<std::pair<std::string, at::Tensor>> states;  // at the same time, if they are in bfloat16; whole
};

inline at::Tensor whole_gradient(const parallel::ShardedModel& sharded,
                                 const parallel::ShardedParameter& parameter) {
  const at::Tensor grad = parameter.tile.grad();
  return parallel::gather_tensor(
      grad.defined() ? grad : at::zeros_like(parameter.tile.detach(), sharded.device()), parameter.layout,
      parameter.axes, parameter.name);
}

// Returns the optimizer's defaults, with momentum for gradient descent.
inline OptimizerOptions optimizer_options(OptimizerKind kind) {
  OptimizerOptions options = default_options(kind);
  if (kind == OptimizerKind::Sgd) options.momentum = 0.9;
  // The second update projects anew, to fewer rows or columns than matrices have.
  if (kind == OptimizerKind::GaLore || kind == OptimizerKind::Apollo) options.rank = 3.0;
  options.update_proj_gap = 1.0;
  return options;
}

inline Outcome run(const LayoutCase& layout, const std::shared_ptr<comm::Communicator>& world,
                   int64_t count) {
  const config::Recipe recipe = recipe_of(layout);
  const parallel::DeviceMesh mesh(world, parallel_dims(recipe, world->size()));
  TrainedModel trained = set_up(layout, mesh);
  Outcome outcome;
  const auto step = [&](optim::Optimizer& optimizer, int64_t number, double lr) {
    const auto batches =
        micro_batches(number, count, mesh.coordinate(parallel::kAxisDp), mesh.size(parallel::kAxisDp));
    int64_t label_tokens = 0;
    for (int64_t i = 0; i < count; ++i) label_tokens += micro_batch(number, i, count).label_tokens;
    StepInput input{&batches, label_tokens, number, lr, lr > 0.0 ? layout.max_grad_norm : 0.0, 77};
    input.updates_in_backward = layout.updates_in_backward && lr > 0.0;
    const StepResult result = run_step(trained, optimizer, mesh, input);
    for (const auto& parameter : trained.sharded->parameters())
      EXPECT_FALSE(input.updates_in_backward && parameter.tile.grad().defined()) << parameter.name;
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.grad_norm);
    EXPECT_EQ(result.routers.has_value(), has_experts(layout.family));
    if (result.routers) {
      outcome.routers.push_back(result.routers->balance);
      outcome.routers.push_back(result.routers->z_loss);
    }
  };
  const auto still = optim::make_sgd(optimized_tiles(*trained.sharded, 0.0, false));
  step(*still, 0, 0.0);
  for (const auto& parameter : trained.sharded->parameters()) {
    EXPECT_TRUE(parameter.requires_grad || !parameter.tile.grad().defined()) << parameter.name;
    if (parameter.requires_grad)
      outcome.gradients.emplace_back(parameter.name, whole_gradient(*trained.sharded, parameter));
  }
  auto tiles = optimized_tiles(*trained.sharded, 0.1, false);
  set_roles(*trained.model, tiles);
  const auto adamw =
      layout.optimizer == OptimizerKind::AdamW
          ? optim::make_adamw(std::move(tiles), {.has_bf16_states = layout.has_bf16_states, .seed = 6})
          : optim::make_optimizer(layout.optimizer, std::move(tiles), optimizer_options(layout.optimizer), 1);
  step(*adamw, 1, 0.01);
  step(*adamw, 2, 0.01);
  if (layout.has_bf16_states) {
    const auto states = adamw->states();
    size_t next = 0;
    for (const auto& parameter : trained.sharded->parameters()) {
      if (!parameter.requires_grad) continue;
      // A parameter has three states: two for each element, and the number of steps.
      for (size_t i = 0; i < 2; ++i) {
        const checkpoint::StateTensor& state = states.at(next + i);
        EXPECT_EQ(state.name.rfind(parameter.name + "/exp_avg", 0), 0U);
        outcome.states.emplace_back(
            state.name, parallel::gather_tensor(state.get(), parameter.layout, parameter.axes, state.name));
      }
      next += 3;
    }
  }
  for (const auto& parameter : trained.sharded->parameters()) {
    outcome.values.emplace_back(parameter.name, trained.sharded->full_tensor(parameter));
  }
  return outcome;
}

// Expects the norm of each difference to be at most `tolerance` of the norm of what is wanted, plus `floor`:
// gradients that are zero up to rounding, as those of a keys' bias without rotations, differ in all digits.
inline void expect_close(const std::vector<std::pair<std::string, at::Tensor>>& got,
                         const std::vector<std::pair<std::string, at::Tensor>>& want, double tolerance,
                         double floor, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].first, want[i].first);
    if (want[i].second.scalar_type() == at::kByte) {
      // Blocks of codes are the same; where tensor parallelism needs smaller ones, losses and gradients tell.
      if (got[i].second.sizes() == want[i].second.sizes()) {
        EXPECT_TRUE(at::equal(got[i].second, want[i].second)) << got[i].first;
      }
      continue;
    }
    ASSERT_EQ(got[i].second.sizes(), want[i].second.sizes());
    const double scale = want[i].second.norm().item<double>();
    const double error = (got[i].second - want[i].second).norm().item<double>();
    EXPECT_LE(error, tolerance * scale + floor) << what << " of " << got[i].first << ", norm " << scale;
  }
}

inline void expect_equal(const Outcome& got, const Outcome& want, double tolerance = 1e-9) {
  for (size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], want.losses[i], 1e-10 * want.losses[i]) << "step " << i;
    EXPECT_NEAR(got.norms[i], want.norms[i], tolerance * want.norms[i]) << "step " << i;
  }
  ASSERT_EQ(got.routers.size(), want.routers.size());
  for (size_t i = 0; i < want.routers.size(); ++i) {
    EXPECT_GT(want.routers[i], 0.1);
    EXPECT_NEAR(got.routers[i], want.routers[i], 1e-9 * want.routers[i]) << "value " << i;
  }
  expect_close(got.gradients, want.gradients, 1e-10, 1e-15 * want.norms.front(), "gradient");
  expect_close(got.values, want.values, tolerance, 0.1 * tolerance, "value");
  // Gradients that differ in the last digits of float64 lead to the same bits of the states, unless they are
  // zero up to rounding, as those of the keys' bias.
  ASSERT_EQ(got.states.size(), want.states.size());
  for (size_t i = 0; i < want.states.size(); ++i) {
    const auto& [name, state] = want.states[i];
    const at::Tensor& other = got.states[i].second;
    EXPECT_EQ(other.scalar_type(), at::kBFloat16);
    const at::Tensor is_noise = state.abs().maximum(other.abs()).lt(1e-12 * state.abs().max());
    EXPECT_TRUE(at::equal(other.masked_fill(is_noise, 0), state.masked_fill(is_noise, 0))) << name;
    EXPECT_GT(state.norm().item<double>(), 0.0) << name;
  }
}

// Returns the case of the same step in one process.
inline LayoutCase without_axes(LayoutCase layout) {
  layout.dp_replicate = layout.tp = layout.cp = layout.pp = layout.ep = layout.hpz = layout.stages_per_rank =
      1;
  layout.updates_in_backward = false;
  layout.schedule = PipelineKind::OneFOneB;
  layout.split.clear();
  layout.checkpointing = config::Checkpointing::Off;
  return layout;
}

// Expects that gradients are not zero, since zeros would be equal under any fault.
inline void expect_worth_comparing(const Outcome& want) {
  int64_t idle = 0, experts = 0;  // gradients that are zero, and those of experts, which no token may take
  for (const auto& [name, gradient] : want.gradients) {
    const bool is_expert = name.find(".experts.") != std::string::npos,
               is_zero = gradient.norm().item<double>() == 0.0;
    EXPECT_FALSE(is_zero && !is_expert) << name;
    experts += is_expert ? 1 : 0;
    idle += is_zero ? 1 : 0;
  }
  EXPECT_LE(3 * idle, experts);
  for (const double norm : want.norms) EXPECT_GT(norm, kMaxGradNorm) << "so that clipping does something";
}

inline std::string name_of(const LayoutCase& layout) {
  const auto text = [](const char* name, auto value) {
    return std::string(", ") + name + " " + std::to_string(static_cast<int>(value));
  };
  return layout.family + text("zero_stage", layout.stage) + text("dp_replicate", layout.dp_replicate) +
         text("tp", layout.tp) + text("async_tp", layout.async_tp) + text("cp", layout.cp) +
         text("method", layout.method) + text("pp", layout.pp) + text("ep", layout.ep) +
         text("hpz", layout.hpz) + text("schedule", layout.schedule) +
         text("stages", layout.stages_per_rank) + text("micro-batches", layout.micro_batches) +
         text("trained", layout.trained) + text("checkpointing", layout.checkpointing) +
         text("states in bfloat16", layout.has_bf16_states) + ", " +
         std::string(facts_of(layout.optimizer).name);
}

// Compares each case with one process. Every rank runs and checks its share of the single processes, since
// their steps have the micro-batches of all ranks; all ranks run each case. Collective.
inline void expect_same_as_one_process(const std::vector<LayoutCase>& layouts) {
  const auto world = testing::world();
  const auto count_of = [&](const LayoutCase& layout) {
    const int64_t readers = world->size() / layout.tp / layout.cp / layout.pp;
    return layout.micro_batches * (layout.pp > 1 ? readers : world->size());
  };
  std::map<size_t, Outcome> wanted;
  for (auto i = static_cast<size_t>(world->rank()); i < layouts.size();
       i += static_cast<size_t>(world->size())) {
    SCOPED_TRACE(name_of(layouts[i]));
    wanted[i] = run(without_axes(layouts[i]), comm::Communicator::single(), count_of(layouts[i]));
    expect_worth_comparing(wanted[i]);
  }
  for (size_t i = 0; i < layouts.size(); ++i) {
    SCOPED_TRACE(name_of(layouts[i]));
    const Outcome got = run(layouts[i], world, count_of(layouts[i]));
    if (const auto want = wanted.find(i); want != wanted.end()) expect_equal(got, want->second);
  }
  // All ranks go on alike.
  const at::Tensor failures = at::full({1}, ::testing::Test::HasFailure() ? 1.0 : 0.0, at::kDouble);
  world->all_reduce(failures);
  EXPECT_EQ(failures.item<double>(), 0.0) << "a rank found a difference";
}
inline void expect_same_as_one_process(const LayoutCase& layout) {
  expect_same_as_one_process(std::vector<LayoutCase>{layout});
}

}  // namespace tessera::train

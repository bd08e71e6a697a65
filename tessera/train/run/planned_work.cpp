#include "tessera/train/run/planned_work.h"

#include <algorithm>

#include "tessera/config/load_recipe.h"
#include "tessera/config/optimizer_rules.h"
#include "tessera/config/parallelism.h"
#include "tessera/core/error.h"
#include "tessera/measure/speed_of_light.h"
#include "tessera/nn/transformer_block.h"
#include "tessera/optim/optimizers.h"
#include "tessera/train/setup/optimizer_targets.h"
#include "tessera/train/setup/parameter_rates.h"
#include "tessera/train/setup/setup.h"

namespace tessera::train {
namespace {

using planner::Matrix;
using planner::ModelWork;

// Collects the matrices of all blocks, equal ones together.
class BlockWork {
 public:
  explicit BlockWork(ModelWork& work) : work_(work) {}

  void add(const nn::TransformerBlock& block) {
    add_linear(block.mixer_output(), {.cuts_input = true});
    if (block.attention != nullptr)
      work_.pair_flops += 4.0 * static_cast<double>(block.mixer_output().in_features());
    if (block.delta_net != nullptr) work_.state_flops += measure::state_flops(*block.delta_net);
    if (block.sparse_mlp != nullptr) {
      const nn::SparseMLP& sparse = *block.sparse_mlp;
      const double share = static_cast<double>(sparse.options().experts_per_token) /
                           static_cast<double>(sparse.options().num_experts);
      for (const auto& expert : sparse.experts) add_mlp(*expert, {.share = share, .is_expert = true});
      if (sparse.shared_expert != nullptr) add_mlp(*sparse.shared_expert, {});
    }
    if (block.mlp != nullptr) add_mlp(*block.mlp, {});
    // The other layers, such as the projections into attention and routers, cut their outputs.
    for (const auto& module : block.modules()) {
      if (const auto* linear = dynamic_cast<const nn::Linear*>(module.get())) add_linear(*linear, {});
    }
    for (const auto& parameter : block.parameters()) {
      work_.block_parameters += static_cast<double>(parameter.numel());
    }
  }

  void take_mean(double layers) {
    for (Matrix& matrix : work_.block) matrix.count /= layers;
    work_.block_parameters /= layers;
    work_.mlp_width /= layers;
    work_.pair_flops /= layers;
    work_.state_flops /= layers;
  }

 private:
  void add_mlp(const nn::MLP& mlp, Matrix kind) {
    const bool is_new =
        add_linear(*mlp.down_proj, {.share = kind.share, .cuts_input = true, .is_expert = kind.is_expert});
    if (!is_new) return;
    work_.mlp_width +=
        kind.share == 0.0 ? 0.0 : kind.share * static_cast<double>(mlp.down_proj->in_features());
    work_.is_gated = mlp.gate_proj != nullptr || mlp.gate_up_proj != nullptr;
    kind.is_into_mlp = true;
    for (const auto& linear : {mlp.gate_proj, mlp.up_proj, mlp.gate_up_proj}) {
      if (linear != nullptr) add_linear(*linear, kind);
    }
  }

  // Returns whether the layer was not counted before.
  bool add_linear(const nn::Linear& linear, Matrix kind) {
    if (std::find(counted_.begin(), counted_.end(), &linear) != counted_.end()) return false;
    counted_.push_back(&linear);
    kind.in = static_cast<double>(linear.in_features());
    kind.out = static_cast<double>(linear.out_features());
    for (Matrix& matrix : work_.block) {
      const bool is_same = matrix.in == kind.in && matrix.out == kind.out && matrix.share == kind.share &&
                           matrix.cuts_input == kind.cuts_input && matrix.is_expert == kind.is_expert &&
                           matrix.is_into_mlp == kind.is_into_mlp;
      if (!is_same) continue;
      matrix.count += 1.0;
      return true;
    }
    kind.count = 1.0;
    work_.block.push_back(kind);
    return true;
  }

  ModelWork& work_;
  std::vector<const nn::Linear*> counted_;
};

// Bytes of the optimizer's states for a parameter, of weights of `width` bytes.
double state_bytes(const config::Recipe& recipe) {
  const double width =
      recipe.pure_bf16 || recipe.optimizer_state_dtype == config::StateType::BFloat16 ? 2.0 : 4.0;
  switch (recipe.optimizer) {
    case OptimizerKind::AdamW8bit: return 2.1;
    case OptimizerKind::Adafactor: return 0.1;
    case OptimizerKind::Lion:
    case OptimizerKind::Sgd:
    case OptimizerKind::Adagrad:
    case OptimizerKind::Muon:
    case OptimizerKind::MuonJordan:
    case OptimizerKind::MuonTorch: return width;
    case OptimizerKind::AdamMini: return width;
    case OptimizerKind::ApolloMini: return 0.1;
    // This is for rank 128 and matrices a few thousand elements wide, and includes AdamW's of embeddings.
    case OptimizerKind::GaLore:
    case OptimizerKind::Apollo: return 1.0;
    case OptimizerKind::AdEMAMix: return 3.0 * width;
    default: return 2.0 * width;
  }
}

}  // namespace

void count_states(const config::Recipe& recipe, const models::CausalLM& model, planner::Job& job) {
  if (recipe.adapter != config::AdapterKind::None || recipe.optimizer == OptimizerKind::AdamW) return;
  std::vector<optim::OptimizedTile> tiles;
  for (const auto& entry : model.named_parameters())
    tiles.push_back({.name = entry.key(), .tile = entry.value()});
  set_roles(model, tiles);
  set_targets(recipe.optim_target_modules, tiles);
  const OptimizerOptions options = config::optimizer_options(recipe);
  double all = 0.0, cut = 0.0, whole = 0.0;
  for (const optim::OptimizedTile& tile : tiles) {
    const optim::RuleParameter parameter{tile.tile.sizes().vec(), at::kFloat,    tile.role, tile.name,
                                         tile.row_blocks,         tile.is_target};
    const optim::StateSize size = optim::state_size(recipe.optimizer, parameter, options);
    all += static_cast<double>(parameter.numel());
    cut += static_cast<double>(size.cut_bytes);
    whole += static_cast<double>(size.whole_bytes);
  }
  job.state_bytes = cut / all;
  job.whole_state_bytes = whole / all;
}

ModelWork work_of(const models::CausalLM& model, const models::ModelConfig& config) {
  if (config.is_encoder_decoder) {
    throw Error(ErrorKind::Model, "TASK",
                "the planner does not know encoder-decoders, whose tokens pass the blocks of one side alone")
        .in(config.source_file)
        .hint("tessera estimate counts the memory of a recipe");
  }
  ModelWork work;
  work.layers = config.num_layers;
  work.hidden = config.hidden_size;
  work.has_stages = !config.reads_far();
  work.heads = config.num_heads;
  work.kv_heads = std::max<int64_t>(1, config.num_kv_heads);
  work.vocab = model.head().weight().size(0);
  work.head_dim = static_cast<double>(config.head_dim);
  work.experts_per_token = static_cast<double>(config.experts_per_token);
  BlockWork blocks(work);
  for (const auto& block : model.blocks()) blocks.add(*block);
  blocks.take_mean(static_cast<double>(work.layers));
  double all = 0.0;
  for (const auto& parameter : model.parameters()) all += static_cast<double>(parameter.numel());
  work.head_parameters =
      config.tie_word_embeddings ? 0.0 : static_cast<double>(model.head().weight().numel());
  work.embedding_parameters =
      all - work.head_parameters - work.block_parameters * static_cast<double>(work.layers);
  return work;
}

planner::Job job_of(const config::Recipe& recipe, int64_t num_ranks) {
  planner::Job job;
  job.sequence = recipe.sequence_len;
  job.sequences_per_step = recipe.global_batch_size;
  if (job.sequences_per_step == 0) {
    const int64_t others =
        recipe.tensor_parallel_size * recipe.context_parallel_size * recipe.pipeline_parallel_size;
    job.sequences_per_step = recipe.micro_batch_size * recipe.gradient_accumulation_steps *
                             std::max<int64_t>(1, num_ranks / others);
  }
  job.async_tensor = recipe.async_tensor_parallel;
  job.state_bytes = state_bytes(recipe);
  job.steps = static_cast<double>(recipe.max_steps);
  return job;
}

planner::Choice kept_choice(const config::Recipe& recipe) {
  planner::Choice choice;
  switch (recipe.dtype) {
    case config::ComputeType::BFloat16:
    case config::ComputeType::Auto: choice.precision = planner::Precision::BFloat16; break;
    case config::ComputeType::Float16: choice.precision = planner::Precision::Float16; break;
    case config::ComputeType::Float32: choice.precision = planner::Precision::Float32; break;
    default:
      throw recipe.error("UNSUPPORTED", "float64 is for tests; the planner has no rates for it", {"dtype"});
  }
  if (recipe.fp8) choice.precision = planner::Precision::Fp8;
  choice.pure_bf16 = recipe.pure_bf16;
  choice.codes_weights = recipe.zero_quantized_weights;
  choice.codes_gradients = recipe.zero_quantized_gradients;
  choice.updates_in_backward = recipe.update_in_backward;
  if (recipe.adapter != config::AdapterKind::None) {
    choice.adapter_rank = recipe.adapter == config::AdapterKind::Lora ? recipe.lora_r : 1;
    if (recipe.load_in_4bit) choice.base = planner::Base::FourBit;
  }
  return choice;
}

planner::Choice choice_of(const config::Recipe& given, int64_t num_ranks) {
  const ParallelDims dims = config::validate_parallelism(given, num_ranks);
  const config::Recipe recipe = config::with_accumulation(given, dims.dp_replicate * dims.dp_shard);
  planner::Choice choice = kept_choice(recipe);
  choice.dp_replicate = dims.dp_replicate;
  choice.dp_shard = dims.dp_shard;
  choice.cp = dims.cp;
  choice.tp = dims.tp;
  choice.pp = dims.pp;
  choice.ep = dims.ep;
  choice.hpz = dims.hpz;
  choice.zero = choice.dp_shard * choice.cp > 1 ? static_cast<int64_t>(recipe.zero_stage) : 0;
  choice.micro_batch = recipe.micro_batch_size;
  choice.accumulation = recipe.gradient_accumulation_steps;
  if (choice.pp > 1) {
    choice.schedule = recipe.pipeline_schedule;
    choice.stages_per_rank = recipe.pipeline_stages_per_rank > 0 ? recipe.pipeline_stages_per_rank
                             : recipe.pipeline_schedule == PipelineKind::Interleaved ? 2
                                                                                     : 1;
    if (recipe.pipeline_microbatches > 0) {
      // At least a sequence each, as the trainer cuts them.
      choice.micro_batch =
          std::max<int64_t>(1, choice.micro_batch * choice.accumulation / recipe.pipeline_microbatches);
      choice.accumulation = recipe.pipeline_microbatches;
    }
  }
  switch (recipe.gradient_checkpointing) {
    case config::Checkpointing::Off: break;
    case config::Checkpointing::Mlp: choice.recompute = planner::Recompute::Mlp; break;
    case config::Checkpointing::Block:
      choice.recompute = planner::Recompute::Block;
      choice.recomputed_blocks = 1.0 / static_cast<double>(recipe.gradient_checkpointing_every);
      break;
  }
  switch (recipe.offload_optimizer_device) {
    case config::OffloadDevice::None: break;
    case config::OffloadDevice::Cpu: choice.offload = planner::Offload::HostStates; break;
    case config::OffloadDevice::Nvme: choice.offload = planner::Offload::DriveStates; break;
  }
  return choice;
}

std::vector<std::string> as_overrides(const std::vector<std::string>& lines) {
  std::vector<std::string> overrides;
  for (const std::string& line : lines) {
    const size_t colon = line.find(": ");
    overrides.push_back(line.substr(0, colon) + "=" + line.substr(colon + 2));
  }
  return overrides;
}

std::vector<RankMemory> count_memory(const std::string& recipe, std::vector<std::string> overrides,
                                     const planner::Job& job, const planner::Choice& choice) {
  planner::Choice on_device = choice;
  on_device.offload = planner::Offload::None;
  for (std::string& line : as_overrides(on_device.recipe_lines(job))) overrides.push_back(std::move(line));
  overrides.insert(overrides.end(),
                   {"device=cpu", "global_batch_size=", "pipeline_microbatches=", "pipeline_split="});
  const config::Recipe read = config::load_recipe(recipe, overrides);
  std::vector<RankMemory> memory;
  const std::vector<int64_t> ranks = ranks_to_estimate(read, choice.ranks());
  // The first stage holds most activations and the last one the head; what lies between needs no more.
  memory.push_back(estimate_memory(read, choice.ranks(), ranks.front()));
  if (ranks.size() > 1) memory.push_back(estimate_memory(read, choice.ranks(), ranks.back()));
  return memory;
}

}  // namespace tessera::train

// A training recipe: Axolotl's key names, typed, with its defaults. load_recipe()
// (tessera/config/load_recipe.h) fills and validates it; other code only reads it. A key marked "ours" is
// Tessera's own; Axolotl does not have it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/config/data_config.h"
#include "tessera/core/device_choice.h"
#include "tessera/core/error.h"
#include "tessera/core/optimizer_table.h"
#include "tessera/core/parallel_dims.h"
#include "tessera/core/schedule_kind.h"

namespace tessera::config {

// Position of a key in a recipe; the line is 0 when the key came from the command line.
struct KeyPlace : SourcePlace {
  std::string written_as = {};  // key path as it stands there, if it is another spelling; else ""
};

using tessera::OptimizerKind;
// Type of AdamW's states: that of the weights, or bfloat16 with stochastic rounding.
enum class StateType { OfWeights, BFloat16 };
// Type of the weights of the result: that of the base model's weights, or a given one.
enum class SaveType { OfBase, Float32, BFloat16, Float16 };
// A task says what is learned: the next token, labels of whole texts, the targets of sources, masked tokens,
// labels of single tokens, or rewards that are higher for the better of two answers.
enum class Task { CausalLm, Classification, Seq2Seq, MaskedLm, TokenClassification, RewardModel };
// Tells whether the task trains the head of a classifier. That of a reward model tells one number.
constexpr bool has_classifier(Task task) {
  return task == Task::Classification || task == Task::TokenClassification || task == Task::RewardModel;
}
enum class AdapterKind { None, Lora, Ia3, LnTuning, Vera, PromptTuning };
// Codes of weights of four bits.
enum class FourBitType { Nf4, Fp4 };
enum class ComputeType { Float32, Float64, BFloat16, Float16, Auto };
// How the peak learning rate grows with the number of sequences of a step.
enum class LrScaling { None, Linear, Sqrt };
// Basis on which blocks are dealt to pipeline stages: their estimated work, or their measured time.
enum class SplitBasis { Work, Time };
// How parameters, gradients and optimizer states are sharded over dp_shard.
enum class ZeroStage { Ddp = 0, Zero1 = 1, Zero2 = 2, Zero3 = 3 };
// When a run evaluates, or saves a checkpoint: after each epoch; every so many steps (or so many times in an
// epoch); never; or, for checkpoints only, after each evaluation that is the best so far.
enum class Cadence { Epoch, Steps, No, Best };
// Reaction of a run to a checkpoint that cannot be written, and to a leap of a step's loss or gradient norm.
enum class SaveErrorAction { Stop, Continue };
enum class SpikeAction { Off, Warn, Skip, Rollback };
// When a run uploads: there is one way so far.
enum class HubStrategy { End };
// Memory that holds optimizer states, or parameters: the device of the computation, or the host.
enum class OffloadDevice { None, Cpu, Nvme };
// Activations that the backward recomputes: none, the inputs of the MLP's nonlinearity, or all of a block but
// its input.
enum class Checkpointing { Off, Mlp, Block };

// Memory that holds activations between forward and backward: the device's, or the host's.
enum class Offloading { Off, Host };

// A learning rate for some parameters: weight matrices whose names contain one of `modules`.
struct LrGroup {
  std::string name;
  std::vector<std::string> modules;
  double lr = 0.0;
};

// Keys of the peak learning rate, and of those of parts of the model.
struct RateConfig {
  double learning_rate = 0.0;  // required
  std::optional<double> embedding_lr, embedding_lr_scale;
  std::vector<LrGroup> lr_groups;
  double loraplus_lr_ratio = 0.0;  // 0 = off
};

// Keys of the learning rate from the first step to the last.
struct ScheduleConfig : RateConfig {
  LrScaling lr_scaling = LrScaling::None;  // ours
  int64_t base_batch_size = 0;             // ours: sequences of a step that learning_rate is meant for
  ScheduleKind lr_scheduler = ScheduleKind::Cosine;
  double cosine_min_lr_ratio = 0.0;
  double cosine_constant_lr_ratio = 0.0;  // share of the steps after which cosine stays at its end; 0 = off
  bool lr_quadratic_warmup = false;
  // Transformers' lr_scheduler_kwargs, under names of their own; optim::Schedule says what each means.
  double lr_cycles = 0.0;
  double lr_end = 1e-7, lr_power = 1.0;
  double lr_min = 0.0;  // lowest learning rate; 0 = by cosine_min_lr_ratio
  int64_t lr_timescale = 0;
  double lr_decay_steps = 0.1;  // below 1: a share of the steps
  std::optional<int64_t> lr_stable_steps;
  RampKind lr_warmup_type = RampKind::Linear, lr_decay_type = RampKind::Cosine;
  double lr_div_factor = 25.0, lr_final_div_factor = 1e4;
  // DeepSpeed's LRRangeTest, of which lr_range_test_min_lr is learning_rate; lr_range_test_max_lr is ours.
  int64_t lr_range_test_step_size = 2000;
  double lr_range_test_step_rate = 1.0, lr_range_test_max_lr = 0.0;
  bool lr_range_test_staircase = false;
  // Options of lr_scheduler reduce_lr_on_plateau; see optim::PlateauOptions.
  double lr_plateau_factor = 0.1, lr_plateau_threshold = 1e-4;
  PlateauMode lr_plateau_threshold_mode = PlateauMode::Relative;
  int64_t lr_plateau_patience = 10, lr_plateau_cooldown = 0;
  int64_t jagged_restart_steps = 0;  // steps between restarts of the learning rate; 0 = never
  int64_t jagged_restart_warmup_steps = 10, jagged_restart_anneal_steps = 1;
  // If neither of the two is given, the warm-up takes 3 % of the steps, at most 100.
  std::optional<double> warmup_ratio;
  std::optional<double> warmup_steps;  // below 1: a share of the steps
};

// Keys of the number of sequences of a step, and of the steps.
struct BatchConfig {
  int64_t micro_batch_size = 1;
  int64_t gradient_accumulation_steps = 1;
  double num_epochs = 1.0;
  int64_t max_steps = 0;  // 0 = as many as num_epochs has
  // torchtitan's: sequences of a step over all ranks; 0 = not given. with_accumulation() derives
  // gradient_accumulation_steps from it.
  int64_t global_batch_size = 0;
};

// Keys of the types in which a run computes, and of the loss scaling that one of them needs.
struct PrecisionConfig {
  ComputeType dtype = ComputeType::Float32;  // ours; `bf16: true` sets BFloat16, `fp16: true` Float16
  bool pure_bf16 = false;                    // trained weights are in bfloat16, too; sets dtype BFloat16
  bool fp8 = false;  // the blocks' linear layers multiply in e4m3; sets dtype BFloat16
  // Loss scaling with dtype Float16, under DeepSpeed's names.
  double loss_scale = 0.0;           // 0 = dynamic
  int64_t initial_scale_power = 16;  // the first dynamic scale is 2 to this power
  int64_t loss_scale_window = 2000;  // steps in a row without overflow after which the scale doubles
  double min_loss_scale = 1.0;
};

// Keys of evaluations, and logging_steps, after which a run evaluates if no other key says when.
struct EvaluationConfig {
  double logging_steps = 1.0;  // below 1: a share of the steps
  Cadence eval_strategy = Cadence::Epoch;
  double eval_steps = 0.0;  // below 1: a share of the steps; 0 with evals_per_epoch 0: logging_steps
  double evals_per_epoch = 0.0;
  // Evaluations in a row without a better loss after which the run ends; 0 = never.
  int64_t early_stopping_patience = 0;
  double early_stopping_threshold = 0.0;
  std::string metric_for_best_model;  // name of a loss; "" = the loss of all evaluation data
  // Ours: names of tasks, or task files, that each evaluation scores, and scoring::TaskOptions for them.
  std::vector<std::string> eval_tasks;
  std::string eval_tasks_data;
  double eval_tasks_limit = 0.0;
  std::optional<int64_t> eval_tasks_num_fewshot;
  bool eval_tasks_apply_chat_template = false;
  // Axolotl's: the rows of the evaluation data whose prompts the model continues at each evaluation, and the
  // most tokens of a continuation.
  int64_t eval_table_size = 0, eval_max_new_tokens = 128;
  bool makes_samples() const { return eval_table_size > 0 && eval_strategy != Cadence::No; }
  bool scores_tasks() const { return !eval_tasks.empty() && eval_strategy != Cadence::No; }
};

// Keys of what stops a run, or passes over a step, that goes wrong.
struct GuardConfig {
  double loss_watchdog_threshold = 0.0;  // 0 = off
  int64_t loss_watchdog_patience = 3;
  SpikeAction spike_action = SpikeAction::Warn;  // ours
  double spike_threshold = 10.0;                 // ours: in standard deviations above the mean
  int64_t replica_check_steps = 500;             // ours: steps between comparisons of copies; 0 = never
  bool strict_finite = false;                    // ours: refuse weights that hold NaN or infinity
};

// Keys of the memory, or drive, that holds parameters and optimizer states beside the device.
struct OffloadConfig {
  // Accelerate's names. offload_param_device Cpu also puts the parameters' optimizer states on the host.
  OffloadDevice offload_optimizer_device = OffloadDevice::None, offload_param_device = OffloadDevice::None;
  std::string offload_optimizer_nvme_path;     // folder on a local drive, for Nvme
  int64_t offload_optimizer_buffer_count = 4;  // blocks of states in memory
  // DeepSpeed's section `aio`: bytes of a request to the drive, and requests in flight.
  int64_t aio_block_size = int64_t{1} << 20, aio_queue_depth = 16;
  std::string host_memory_limit;  // ours: "6GB", of all ranks of a machine; "" = what the machine has
};

// Keys of checkpoints, and of the folder in which they lie.
struct CheckpointConfig {
  std::string output_dir = "./model-out";
  Cadence save_strategy = Cadence::No;
  double save_steps = 0.0;  // below 1: a share of the steps; 0 with saves_per_epoch 0: 500
  double saves_per_epoch = 0.0;
  int64_t save_total_limit = 4;        // number of checkpoints that are kept
  std::string resume_from_checkpoint;  // a checkpoint's folder
  bool auto_resume_from_checkpoints = false;
  bool async_save = true;                                 // ours: a thread writes while the steps go on
  SaveErrorAction on_save_error = SaveErrorAction::Stop;  // ours
  bool save_only_model = false;                           // leave optimizer states out of checkpoints
  bool allow_data_change = false;                         // ours: may go on with other training rows
  bool load_best_model_at_end = false;
  SaveType save_dtype = SaveType::OfBase;  // ours
  // Ours: minutes between checkpoints that serve a restart alone; 0 = none. load_recipe() sets 0 where a
  // recipe says when to save.
  double save_minutes = 20.0;

  // Returns whether a run saves checkpoints at all, given time.
  bool saves_checkpoints() const { return save_strategy != Cadence::No || save_minutes > 0.0; }
};

// Values by the names of layers, or by regular expressions for them; the first that matches counts.
template <class T>
using NamePatterns = std::vector<std::pair<std::string, T>>;

// Keys of a LoRA adapter, under the names of Axolotl.
struct LoraConfig {
  int64_t lora_r = 8;
  double lora_alpha = 16.0;
  double lora_dropout = 0.0;
  std::vector<std::string> lora_target_modules;  // names of modules
  std::string lora_target_regex;                 // lora_target_modules given as one string
  bool lora_target_linear = false;
  std::vector<std::string> lora_exclude_modules;    // names of modules
  std::string lora_exclude_regex;                   // lora_exclude_modules given as one string
  std::vector<std::string> lora_target_parameters;  // names of parameters of experts
  std::vector<int64_t> peft_layers_to_transform;
  std::vector<std::string> peft_layers_pattern;
  NamePatterns<int64_t> lora_rank_pattern;
  NamePatterns<double> lora_alpha_pattern;
  std::vector<std::string> lora_modules_to_save;
  bool peft_use_rslora = false;
  bool peft_use_dora = false;
  bool lora_bias = false;                       // PEFT's
  std::string peft_init_lora_weights = "true";  // see peft::lora_start()
  std::vector<int64_t> peft_trainable_token_indices;
  // These are ours, after PEFT's keys of the same meaning.
  std::vector<std::string> ia3_feedforward_modules;
  int64_t vera_r = 256;
  double vera_d_initial = 0.1;
  int64_t vera_projection_prng_key = 0;
  bool vera_save_projection = true;
  int64_t num_virtual_tokens = 20;
  std::string prompt_tuning_init = "random";  // or "text"
  std::string prompt_tuning_init_text;
};

// Ours, after the names of Transformers and TRL: keys of the task, of the labels of a classifier, of the
// masks of a masked language model, and of the loss of a reward model.
struct TaskConfig {
  Task task = Task::CausalLm;
  int64_t num_labels = 0;                // 0 = by label_names, else those of the base model, else of the data
  std::vector<std::string> label_names;  // id2label in its order
  std::string problem_type;              // "" = as the labels are
  double mlm_probability = 0.15;         // share of the tokens, or words, that are to be told
  // Shares of these tokens that the mask token, and any token of the vocabulary, take the place of.
  double mask_replace_prob = 0.8, random_replace_prob = 0.1;
  bool whole_word_mask = false;   // all tokens of a word are masked together
  bool label_all_tokens = false;  // a word's label is that of all its tokens, not of the first alone
  double center_rewards_coefficient = 0.0;  // weight of the squared sum of the rewards of a pair
};

// Keys of a base model whose weights are quantised while they are read, under the names of Axolotl and of
// Transformers.
struct QuantizeConfig {
  bool load_in_4bit = false, load_in_8bit = false;
  FourBitType bnb_4bit_quant_type = FourBitType::Nf4;
  bool bnb_4bit_use_double_quant = true;
  std::vector<std::string> llm_int8_skip_modules;
  bool quantize_moe_experts = false;

  bool quantizes() const { return load_in_4bit || load_in_8bit; }
};

// Keys of the programs that follow a run.
struct TrackerConfig {
  std::optional<bool> use_wandb;  // unset = only if wandb_project is given
  std::string wandb_project, wandb_entity, wandb_name, wandb_run_id;
  std::string wandb_mode;          // only the value "disabled" has an effect
  std::string prometheus_file;     // ours
  std::optional<bool> use_mlflow;  // unset = only if mlflow_experiment_name or mlflow_tracking_uri is given
  std::string mlflow_tracking_uri, mlflow_experiment_name, mlflow_run_name;
  bool use_otel_metrics = false;
  std::string
      cluster;  // ours: the devices that the run's steps are compared with, as `tessera plan` reads them
};

// Keys of the upload to the Hugging Face hub, under the names of Transformers.
struct UploadConfig {
  std::string hub_model_id;              // org/name; "" = nothing is uploaded
  std::optional<bool> push_to_hub;       // unset = only if hub_model_id is given
  std::optional<bool> hub_private_repo;  // of a repository that is made; unset = as the account has it
  std::string hub_revision;              // a branch; "" = main
  HubStrategy hub_strategy = HubStrategy::End;

  // Returns whether the run uploads its result.
  bool uploads() const { return !hub_model_id.empty() && push_to_hub.value_or(true); }
};

// Keys of the tokens and of the rows of the model's tables of tokens, under the names of Axolotl.
struct VocabularyConfig {
  std::map<std::string, std::string> special_tokens;          // pad_token, bos_token, eos_token, unk_token
  std::map<std::string, std::string> added_tokens_overrides;  // other names of added tokens, by id
  // Tokens that are added to the vocabulary if it lacks them: control tokens, and ordinary ones.
  std::vector<std::string> additional_special_tokens, tokens;
  // The model's tables of tokens grow to the vocabulary by themselves, and here to a multiple of 32 rows.
  bool resize_token_embeddings_to_32x = false;
  bool mean_resizing_embeddings = false;  // new rows begin near the mean of the others
  bool shrink_embeddings = false;         // rows beyond the vocabulary are dropped

  // Returns whether the keys name tokens, or give tokens other names.
  bool names_tokens() const {
    return !added_tokens_overrides.empty() || !special_tokens.empty() || !additional_special_tokens.empty() ||
           !tokens.empty();
  }
};

// Keys of the axes along which ranks share the work, under the names of Axolotl where it has them.
struct ParallelConfig {
  int64_t dp_replicate_size = 1;
  int64_t dp_shard_size = -1;  // -1 = as many ranks as the other axes leave
  int64_t tensor_parallel_size = 1;
  bool async_tensor_parallel = false;  // torchtitan's enable_async_tensor_parallel
  int64_t context_parallel_size = 1;
  ContextParallelMethod context_parallel_method = ContextParallelMethod::Auto;  // ours
  int64_t pipeline_parallel_size = 1;
  PipelineKind pipeline_schedule = PipelineKind::OneFOneB;
  int64_t pipeline_stages_per_rank = 0;  // ours; 0 = 2 for interleaved, else 1
  std::vector<int64_t> pipeline_split;   // ours: number of blocks of each stage; empty = by pipeline_split_by
  SplitBasis pipeline_split_by = SplitBasis::Work;  // ours
  // Micro-batches that the pipeline cuts a step's sequences into; 0 = gradient_accumulation_steps.
  int64_t pipeline_microbatches = 0;
  int64_t expert_parallel_size = 1;  // divides the ranks of dp_shard x context parallel
  ZeroStage zero_stage = ZeroStage::Zero3;
  int64_t zero_hpz_partition_size = 1;  // DeepSpeed: neighbouring ranks that cut secondary shards; 1 = none
  // DeepSpeed's: sends gathered parameters in codes of 8 bits, and gradients in codes of 4 bits.
  bool zero_quantized_weights = false, zero_quantized_gradients = false;
  double collective_timeout_s = 600.0;  // Transformers' ddp_timeout
};

// The places of the keys that a recipe gives, for errors.
struct KeyPlaces {
  // Position of each given native key ("learning_rate", "datasets.0.path"); keys left at their defaults are
  // absent. Later checks name these places in their errors.
  std::map<std::string, KeyPlace> key_places;

  std::string source_file;  // the recipe's path, for errors

  // Returns the first of `keys` that the recipe gives; the last of them where it gives none.
  std::string first_given(std::initializer_list<std::string_view> keys) const;
  // Returns the place of the first of `keys` that the recipe gives; the recipe's file where it gives none.
  SourcePlace place_of(std::initializer_list<std::string_view> keys) const;
  // Makes a config error named `name` at that place.
  Error error(std::string_view name, std::string what, std::initializer_list<std::string_view> keys) const;
};

// All keys of a recipe. Those that other code reads apart from the rest are in its bases.
struct Recipe : DataConfig,
                ScheduleConfig,
                BatchConfig,
                PrecisionConfig,
                EvaluationConfig,
                GuardConfig,
                OffloadConfig,
                CheckpointConfig,
                LoraConfig,
                TaskConfig,
                QuantizeConfig,
                TrackerConfig,
                UploadConfig,
                VocabularyConfig,
                ParallelConfig,
                KeyPlaces {
  // Model
  std::string base_model;         // a folder, or a name on the hub; load_recipe() resolves it
  std::string tokenizer_config;   // folder of the tokenizer; "" = base_model
  std::string revision_of_model;  // branch, tag or commit of a base_model of the hub
  // Keys of the model's config.json, or of its text_config, with the JSON that takes the place of their
  // values.
  std::map<std::string, std::string> model_config;
  bool random_init = false;  // ours: start from random weights of config.json (pre-training, tests)

  // Training
  bool sample_packing = false;
  std::optional<bool> eval_sample_packing;
  bool sample_packing_sequentially = false;
  bool group_by_length = false;
  OptimizerKind optimizer = OptimizerKind::AdamW;
  std::map<std::string, std::string> optimizer_args;  // ours: options that have no key of their own
  // Names or parts of names of modules, or regular expressions for whole names; empty or all-linear: all.
  std::vector<std::string> optim_target_modules;
  StateType optimizer_state_dtype = StateType::OfWeights;  // ours
  double weight_decay = 0.0;
  bool decay_norm_and_bias = false;  // ours: by default norms and biases get no decay
  double max_grad_norm = 1.0;        // 0 = no clipping
  int64_t gradient_noise_steps = 0;  // ours: the noise of every n-th step's gradient is measured; 0 = never
  bool update_in_backward = false;   // ours: updates each block when its gradients are there
  double adam_beta1 = 0.9, adam_beta2 = 0.999, adam_epsilon = 1e-8;
  Checkpointing gradient_checkpointing = Checkpointing::Off;
  int64_t gradient_checkpointing_every = 1;  // with Block, every n-th block is recomputed
  Offloading activation_offloading = Offloading::Off;
  std::vector<std::string> unfrozen_parameters;  // regular expressions over names; empty = all are trained
  int64_t seed = 42;
  bool deterministic = false;                  // ours: gives the same bits each time (device/deterministic.h)
  std::optional<double> router_aux_loss_coef;  // ours: overrides the coefficient of the model's config.json
  double router_z_loss_coef = 0.0;             // ours; 0 = off
  double neftune_noise_alpha = 0.0;            // 0 = off
  double label_smoothing_factor = 0.0;
  double z_loss_coef = 0.0;  // ours: see ops::LossTerms

  // Output
  bool save_final = true;             // ours
  bool overwrite_output_dir = false;  // replace an older result in output_dir

  // Adapter
  AdapterKind adapter = AdapterKind::None;
  std::string lora_model_dir;  // folder of the adapter to start from
  bool relora = false;         // every jagged_restart_steps the adapter is added to the base and begins anew
  double relora_prune_ratio = 0.9;  // share of the adapter's states that a restart sets to zero

  DeviceChoice device;  // ours
};

}  // namespace tessera::config

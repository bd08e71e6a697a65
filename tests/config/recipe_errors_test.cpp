// Tests of the errors that mistakes in a recipe lead to.
#include <sstream>
#include <string>
#include <vector>

#include "tests/config/config_testing.h"

namespace tessera::config {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(RecipeErrorsTest, StylesOfTypesAreChecked) {
  const auto text_of = [](const std::string& type) {
    return message_of("base_model: m\nlearning_rate: 1\ndatasets: [{path: d, type: '" + type + "'}]\n");
  };
  EXPECT_THAT(text_of("gpteacher:vicuna"),
              HasSubstr("key 'datasets.0.type': unknown style; got gpteacher:vicuna"));
  EXPECT_THAT(text_of("reflection:chat"), HasSubstr("need reflection:instruct"));
}

TEST(RecipeErrorsTest, UnknownKeysNamePlacePathAndANearName) {
  EXPECT_EQ(message_of(kMinimal + "sead: 1\n"),
            "error[E-CONFIG-UNKNOWN-KEY]: r.yaml:4:1: unknown key 'sead'. hint: did you mean 'seed'?");
  EXPECT_EQ(
      message_of("base_model: m\nlearning_rate: 1\ndatasets:\n  - path: a\n    typ: alpaca\n"),
      "error[E-CONFIG-UNKNOWN-KEY]: r.yaml:5:5: unknown key 'datasets.0.typ'. hint: did you mean 'type'?");
  EXPECT_THAT(message_of(kMinimal + "special_tokens:\n  pad_tokn: x\n"),
              HasSubstr("r.yaml:5:3: unknown key 'special_tokens.pad_tokn'; need pad_token, bos_token"));
  EXPECT_THAT(
      message_of(kMinimal + "fsdp_config:\n  fsdp_reshard_after_foward: true\n"),
      HasSubstr("r.yaml:5:3: unknown key 'fsdp_config.fsdp_reshard_after_foward'. hint: did you mean"));
  EXPECT_THAT(
      message_of(kMinimal + "deepspeed:\n  zero_optimization:\n    stagee: 2\n"),
      HasSubstr("r.yaml:6:5: unknown key 'deepspeed.zero_optimization.stagee'. hint: did you mean 'stage'?"));
  EXPECT_THAT(message_of(kMinimal + "gradient_checkpointing_kwargs: {use_reentrent: true}\n"),
              HasSubstr("did you mean 'use_reentrant'?"));
  EXPECT_EQ(message_of(kMinimal + "zzzzzzzz: 1\n"),
            "error[E-CONFIG-UNKNOWN-KEY]: r.yaml:4:1: unknown key 'zzzzzzzz'. hint: `tessera recipe keys` "
            "lists all "
            "keys");
  EXPECT_THAT(message_of(kMinimal + "datasets_2: [{path: x}]\n"), HasSubstr("did you mean 'datasets'?"));
}

TEST(RecipeErrorsTest, NamesOfOtherToolsPointAtOurs) {
  EXPECT_THAT(message_of(kMinimal + "lr: 1e-4\n"), HasSubstr("did you mean 'learning_rate'?"));
  EXPECT_THAT(message_of(kMinimal + "per_device_train_batch_size: 4\n"),
              HasSubstr("did you mean 'micro_batch_size'?"));
  EXPECT_THAT(message_of(kMinimal + "max_seq_length: 4\n"), HasSubstr("did you mean 'sequence_len'?"));
}

TEST(RecipeErrorsTest, KeysInTheWrongSectionSayWhereTheyBelong) {
  EXPECT_EQ(message_of(kMinimal + "roles_to_train: [assistant]\n"),
            "error[E-CONFIG-UNKNOWN-KEY]: r.yaml:4:1: unknown key 'roles_to_train'. hint: 'roles_to_train' "
            "belongs in "
            "an entry of 'datasets'");
  EXPECT_THAT(message_of("base_model: m\ndatasets:\n- path: x\n  sequence_len: 4\nlearning_rate: 1\n"),
              HasSubstr("r.yaml:4:3: unknown key 'datasets.0.sequence_len'. hint: 'sequence_len' belongs at "
                        "the top level"));
  EXPECT_THAT(message_of(kMinimal + "reshard_after_forward: true\n"),
              HasSubstr("belongs under 'fsdp_config'"));
  EXPECT_THAT(message_of(kMinimal + "pad_token: x\n"), HasSubstr("belongs under 'special_tokens'"));
  EXPECT_THAT(message_of(kMinimal + "use_reentrant: true\n"),
              HasSubstr("belongs under 'gradient_checkpointing_kwargs'"));
  EXPECT_THAT(message_of(kMinimal + "deepspeed: {stage: 2}\n"),
              HasSubstr("belongs under 'deepspeed.zero_optimization'"));
}

TEST(RecipeErrorsTest, DuplicateKeysNameBothLines) {
  EXPECT_THAT(message_of(kMinimal + "learning_rate: 2e-4\n"),
              HasSubstr("r.yaml:4:1: key 'learning_rate' is given twice; got line 3 and line 4"));
}

TEST(RecipeErrorsTest, WrongTypesNameWhatCameAndWhatIsNeeded) {
  EXPECT_EQ(message_of(kMinimal + "micro_batch_size: many\n"),
            "error[E-CONFIG-TYPE]: r.yaml:4:19: key 'micro_batch_size': wrong type; got the text 'many', "
            "need a whole "
            "number");
  EXPECT_THAT(message_of(kMinimal + "micro_batch_size: 2.5\n"), HasSubstr("got 2.5, need a whole number"));
  EXPECT_THAT(message_of(kMinimal + "micro_batch_size: true\n"),
              HasSubstr("got the boolean true, need a whole number"));
  EXPECT_THAT(message_of(kMinimal + "micro_batch_size: [1]\n"),
              HasSubstr("got a list of 1, need a whole number"));
  EXPECT_THAT(message_of(kMinimal + "warmup_ratio: {}\n"), HasSubstr("got a map of 0, need a number"));
  EXPECT_THAT(message_of(kMinimal + "warmup_ratio: yes\n"), HasSubstr("got the boolean yes, need a number"));
  EXPECT_THAT(message_of(kMinimal + "sample_packing: 1\n"), HasSubstr("got 1, need true or false"));
  EXPECT_THAT(message_of(kMinimal + "sample_packing: maybe\n"),
              HasSubstr("got the text 'maybe', need true or false"));
  EXPECT_THAT(message_of(kMinimal + "output_dir: no\n"),
              HasSubstr("got the boolean no, need text. hint: quote it"));
  EXPECT_THAT(message_of(kMinimal + "output_dir: [a]\n"), HasSubstr("got a list of 1, need text"));
  EXPECT_THAT(message_of(kMinimal + "lora_target_modules: {a: b}\n"),
              HasSubstr("got a map of 1, need a list of texts"));
  EXPECT_THAT(message_of(kMinimal + "lora_target_modules: [a, null]\n"),
              HasSubstr("key 'lora_target_modules.1': wrong type; got null, need text"));
  EXPECT_THAT(message_of(kMinimal + "special_tokens: x\n"), HasSubstr("need a map"));
  EXPECT_THAT(message_of(kMinimal + "fsdp_config: 3\n"),
              HasSubstr("key 'fsdp_config': wrong type; got 3, need a map"));
  EXPECT_THAT(message_of("base_model: m\nlearning_rate: 1\ndatasets: x.jsonl\n"),
              HasSubstr("key 'datasets': wrong type; got the text 'x.jsonl', need a list of maps"));
  EXPECT_THAT(message_of("base_model: m\nlearning_rate: 1\ndatasets: [x.jsonl]\n"),
              HasSubstr("key 'datasets.0'"));
  EXPECT_THAT(message_of("base_model: m\nlearning_rate: 1\ndatasets: [{type: alpaca}]\n"),
              HasSubstr("missing key 'datasets.0.path'"));
  EXPECT_THAT(message_of("base_model: m\nlearning_rate: 1\ndatasets: [~]\n"), HasSubstr("got null"));
  EXPECT_THAT(message_of("- a\n"), HasSubstr("a recipe is a map of keys; got a list of 1"));
  EXPECT_THAT(message_of("just text"), HasSubstr("a recipe is a map of keys"));
}

TEST(RecipeErrorsTest, YamlQuirksReadAsMeant) {
  const Recipe recipe = parse_recipe(
      "base_model: m\ndatasets: [{path: d, train_on_eos: none}]\nlearning_rate: 2e-5\nweight_decay: "
      "\"1e-2\"\n"
      "sample_packing: on\ntrain_on_inputs: 'false'\nmicro_batch_size: '4'\nsequence_len: 2048.0\nmax_steps: "
      "1e3\n"
      "lr_scheduler:\nwarmup_steps: ~\nseed: 7\noutput_dir: 2024\n",
      "r.yaml");
  EXPECT_DOUBLE_EQ(recipe.learning_rate, 2e-5);
  EXPECT_DOUBLE_EQ(recipe.weight_decay, 1e-2);
  EXPECT_TRUE(recipe.sample_packing);
  EXPECT_FALSE(recipe.train_on_inputs);
  EXPECT_EQ(recipe.micro_batch_size, 4);
  EXPECT_EQ(recipe.sequence_len, 2048);
  EXPECT_EQ(recipe.max_steps, 1000);
  EXPECT_EQ(recipe.lr_scheduler, ScheduleKind::Cosine);
  EXPECT_EQ(recipe.warmup_steps, std::nullopt);
  EXPECT_EQ(recipe.output_dir, "2024");
  EXPECT_EQ(recipe.datasets[0].train_on_eos, "none");
  EXPECT_FALSE(recipe.key_places.contains("warmup_steps"));
}

TEST(RecipeErrorsTest, BooleansOfYamlAreTheWordsThatMeanTheSame) {
  const auto read = [](const std::string& lines) { return parse_recipe(kMinimal + lines, "r.yaml"); };
  for (const char* word : {"no", "off", "false", "No", "OFF"}) {
    EXPECT_EQ(read("eval_strategy: " + std::string(word) + "\n").eval_strategy, Cadence::No) << word;
    EXPECT_EQ(read("save_strategy: " + std::string(word) + "\n").save_strategy, Cadence::No) << word;
    EXPECT_EQ(read("gradient_checkpointing: " + std::string(word) + "\n").gradient_checkpointing,
              Checkpointing::Off);
    const Recipe rows = parse_recipe(
        "base_model: m\nlearning_rate: 1\ndatasets: [{path: d, train_on_eos: " + std::string(word) + "}]\n",
        "r.yaml");
    EXPECT_EQ(rows.datasets[0].train_on_eos, "none") << word;
  }
  EXPECT_EQ(read("gradient_checkpointing: on\n").gradient_checkpointing, Checkpointing::Block);
  EXPECT_THAT(message_of(kMinimal + "eval_strategy: yes\n"), HasSubstr("unknown value"));
  EXPECT_THAT(message_of(kMinimal + "eval_strategy: 'off'\n"), HasSubstr("unknown value"));
}

TEST(RecipeErrorsTest, NumbersThatAreNotFinite) {
  for (const char* value : {".nan", "nan", ".inf", "-.inf", "1e999"}) {
    EXPECT_THAT(
        message_of("base_model: m\ndatasets: [{path: d}]\nlearning_rate: " + std::string(value) + "\n"),
        HasSubstr("r.yaml:3:16: key 'learning_rate': not a finite number"))
        << value;
  }
  EXPECT_THAT(message_of(kMinimal + "max_steps: .inf\n"), HasSubstr("need a whole number"));
}

TEST(RecipeErrorsTest, SizesOutOfRange) {
  EXPECT_EQ(message_of(kMinimal + "sequence_len: 1099511627776\n"),
            "error[E-CONFIG-RANGE]: r.yaml:4:15: key 'sequence_len': out of range; got 1099511627776, need a "
            "number at "
            "least 1 and at most 16777216");
  const std::string cases[] = {
      "micro_batch_size: 0", "micro_batch_size: -1", "sequence_len: 0",   "gradient_accumulation_steps: 0",
      "num_epochs: 0",       "num_epochs: -1",       "max_steps: -1",     "max_steps: 99999999999999999999",
      "weight_decay: -0.1",  "warmup_ratio: 1.5",    "adam_beta1: 1",     "adam_beta2: -0.1",
      "lora_r: 0",           "lora_alpha: 0",        "lora_dropout: 1.0", "seed: -1",
      "logging_steps: 0",    "dp_shard_size: 0",     "dp_shard_size: -2", "dp_replicate_size: 0",
      "ddp_timeout: 0",      "val_set_size: -1",     "val_set_size: 1.5", "batch_size: 0",
      "max_grad_norm: -1"};
  for (const std::string& line : cases) {
    EXPECT_THAT(message_of(kMinimal + line + '\n'), StartsWith("error[E-CONFIG-RANGE]: r.yaml:4:")) << line;
  }
  EXPECT_THAT(message_of("base_model: m\ndatasets: [{path: d}]\nlearning_rate: -1e-4\n"),
              HasSubstr("got -1e-4, need a number at least 0"));
  EXPECT_THAT(
      message_of("base_model: m\ndatasets: [{path: d, shards: 2, shards_idx: 2}]\nlearning_rate: 1\n"),
      HasSubstr("key 'datasets.0.shards_idx': out of range; got 2, need below shards, which is 2"));
}

TEST(RecipeErrorsTest, CheckpointingTakesTrueFalseAndMlp) {
  const auto read = [](const std::string& value) {
    return parse_recipe(kMinimal + "gradient_checkpointing: " + value + "\n", "r.yaml")
        .gradient_checkpointing;
  };
  for (const char* value : {"true", "yes", "On", "\"true\""}) EXPECT_EQ(read(value), Checkpointing::Block);
  for (const char* value : {"false", "no", "off", "~"}) EXPECT_EQ(read(value), Checkpointing::Off);
  EXPECT_EQ(read("mlp"), Checkpointing::Mlp);
  EXPECT_EQ(read("offload"), Checkpointing::Block);
  EXPECT_EQ(warnings_of(kMinimal + "gradient_checkpointing: offload\n"), "");
  EXPECT_THAT(message_of(kMinimal + "gradient_checkpointing: offload_disk\n"),
              HasSubstr("E-CONFIG-UNSUPPORTED]: r.yaml:4:25: key 'gradient_checkpointing': 'offload_disk'"));
  EXPECT_THAT(message_of(kMinimal + "gradient_checkpointing: mpl\n"), HasSubstr("did you mean 'mlp'?"));
  EXPECT_THAT(message_of(kMinimal + "gradient_checkpointing: [mlp]\n"),
              HasSubstr("E-CONFIG-TYPE]: r.yaml:4:25: key 'gradient_checkpointing': wrong type"));
}

TEST(RecipeErrorsTest, ValuesOutsideAKeysSet) {
  EXPECT_THAT(
      message_of(kMinimal + "lr_scheduler: cosin\n"),
      HasSubstr(
          "key 'lr_scheduler': unknown value; got the text 'cosin', need cosine, linear, constant, "
          "constant_with_warmup, cosine_with_restarts, polynomial, inverse_sqrt, warmup_stable_decay, wsd, "
          "one_cycle, rex, warmup_lr, warmup_decay_lr, warmup_cosine_lr, cosine_with_min_lr, "
          "reduce_lr_on_plateau, lr_range_test. hint: did you mean 'cosine'?"));
  EXPECT_THAT(message_of(kMinimal + "zero_stage: 4\n"), HasSubstr("E-CONFIG-VALUE]: r.yaml:4:13"));
  EXPECT_THAT(message_of("base_model: m\nlearning_rate: 1\ndatasets: [{path: d, type: alpacca}]\n"),
              HasSubstr("key 'datasets.0.type': unknown value"));
  EXPECT_THAT(
      message_of("base_model: m\ndatasets: [{path: x, type: zzz}]\nlearning_rate: 1\n"),
      HasSubstr("need alpaca, chat_template, sharegpt, completion, input_output, pretrain, user_defined, "
                "llama_factory, ... (`tessera recipe keys` lists all "));
  EXPECT_THAT(message_of("base_model: m\nlearning_rate: 1\ndatasets: [{path: d, train_on_eos: never}]\n"),
              HasSubstr("E-CONFIG-VALUE"));
}

TEST(RecipeErrorsTest, UpdatesInTheBackwardNeedNoWholeGradient) {
  const std::string updates = kMinimal + "update_in_backward: true\n";
  EXPECT_EQ(
      message_of(updates),
      "error[E-CONFIG-CONFLICT]: r.yaml:4:1: keys 'update_in_backward' and 'max_grad_norm': the norm is "
      "known when all gradients are, and by then they are gone; got 1, need max_grad_norm: 0. hint: an "
      "optimizer that limits its own steps, such as adafactor or stable_adamw, needs no clipping");
  EXPECT_NO_THROW(parse_recipe(updates + "max_grad_norm: 0\n", "r.yaml"));
  EXPECT_TRUE(parse_recipe(updates + "max_grad_norm: 0\nspike_action: warn\n", "r.yaml").update_in_backward);
  for (const char* line :
       {"gradient_accumulation_steps: 2", "pipeline_parallel_size: 2", "fp16: true", "spike_action: skip",
        "spike_action: rollback\nsave_steps: 5", "loss_watchdog_threshold: 5", "gradient_noise_steps: 5"}) {
    EXPECT_THAT(message_of(updates + "max_grad_norm: 0\n" + line + '\n'),
                HasSubstr("keys 'update_in_backward' and '"))
        << line;
  }
}

TEST(RecipeErrorsTest, RestartsNeedPlainProducts) {
  const std::string head =
      kMinimal + "relora: true\nadapter: lora\nlora_target_linear: true\njagged_restart_steps: 20\n";
  EXPECT_TRUE(parse_recipe(head, "r.yaml").relora);
  EXPECT_EQ(parse_recipe(head, "r.yaml").relora_prune_ratio, 0.9);
  const std::pair<std::string, const char*> cases[] = {
      {kMinimal + "relora: true\n", "restarts add low-rank products to the base; need adapter: lora"},
      {kMinimal + "relora: true\nadapter: lora\nlora_target_linear: true\n", "need jagged_restart_steps"},
      {head + "load_in_4bit: true\n", "keys 'relora' and 'load_in_4bit'"},
      {head + "peft_use_dora: true\n", "keys 'relora' and 'peft_use_dora'"},
      {head + "peft_init_lora_weights: pissa\n", "each restart draws A"},
      {head + "optimizer: lion\n", "restarts prune the two moments of AdamW"},
      {head + "fp16: true\n", "keys 'relora' and 'dtype'"},
      {head + "relora_prune_method: random\n", "by their magnitude alone"}};
  for (const auto& [text, what] : cases) EXPECT_THAT(message_of(text), HasSubstr(what)) << text;
}

TEST(RecipeErrorsTest, TasksTakeTheirKeysAlone) {
  const std::string head = "base_model: m\nlearning_rate: 1\ntask: classification\n";
  const std::string rows = head + "datasets: [{path: d}]\n";
  const std::string masked = "base_model: m\nlearning_rate: 1\nmodel_type: AutoModelForMaskedLM\n";
  const std::string tags = "base_model: m\nlearning_rate: 1\nmodel_type: AutoModelForTokenClassification\n";
  const std::string reward =
      "base_model: m\nlearning_rate: 1\nmodel_type: AutoModelForSequenceClassification\nreward_model: true\n"
      "datasets: [{path: d, type: bradley_terry.chat_template}]\n";
  EXPECT_EQ(parse_recipe(rows + "label_names: [a, b]\n", "r.yaml").task, Task::Classification);
  EXPECT_EQ(parse_recipe(tags + "datasets: [{path: d}]\n", "r.yaml").task, Task::TokenClassification);
  EXPECT_EQ(parse_recipe(reward + "num_labels: 1\n", "r.yaml").task, Task::RewardModel);
  const std::pair<std::string, const char*> cases[] = {
      {kMinimal + "num_labels: 2\n", "only a classifier has labels"},
      {rows + "num_labels: 3\nlabel_names: [a, b]\n", "got 3 and 2 names"},
      {rows + "label_names: [a, a]\n", "a name stands twice; got a"},
      {head + "datasets: [{path: d, type: alpaca}]\n", "got type: alpaca"},
      {rows + "adapter: prompt_tuning\n", "adapter: lora trains a classifier"},
      {rows + "label_all_tokens: true\n", "only a classifier of tokens labels words"},
      {rows + "center_rewards_coefficient: 1\n", "only a reward model has rewards"},
      {tags + "datasets: [{path: d, type: alpaca}]\n", "reads words with a label each; got type: alpaca"},
      {tags + "datasets: [{path: d}]\nproblem_type: regression\n", "only task: classification has several"},
      {reward + "num_labels: 2\n", "a reward is one number"},
      {reward + "rl: dpo\n", "leave out rl"},
      {reward + "excess_length_strategy: truncate\n", "would have the reward of another one"},
      {kMinimal + "process_reward_model: true\n", "models that rate the steps of an answer"},
      {kMinimal + "mlm_probability: 0.3\n", "only a masked language model has masks"},
      {rows + "whole_word_mask: true\n", "only a masked language model has masks"},
      {masked + "datasets: [{path: d, type: alpaca}]\n", "got type: alpaca, need no type, completion or"},
      {masked + "datasets: [{path: d}]\nrandom_replace_prob: 0.5\n", "add up to more than 1"},
      {masked + "datasets: [{path: d}]\nadapter: prompt_tuning\n", "PEFT has no masked language models"},
      {masked + "pretraining_dataset: d\nmax_steps: 1\n", "needs its rows in advance"}};
  for (const auto& [recipe, part] : cases) EXPECT_THAT(message_of(recipe), HasSubstr(part)) << recipe;
}

TEST(RecipeErrorsTest, WeightsInBfloat16) {
  for (const char* line : {"pure_bf16: true", "bfloat16: true", "bf16: true\npure_bf16: true"}) {
    const Recipe recipe = parse_recipe(kMinimal + line + '\n', "r.yaml");
    EXPECT_TRUE(recipe.pure_bf16 && recipe.dtype == ComputeType::BFloat16) << line;
  }
  EXPECT_THAT(message_of(kMinimal + "pure_bf16: true\noptimizer: schedule_free_adamw\n"
                                    "lr_scheduler: constant\n"),
              HasSubstr("keys 'pure_bf16' and 'optimizer'"));
  EXPECT_THAT(message_of(kMinimal + "pure_bf16: true\nfp16: true\n"), HasSubstr("disagree"));
}

TEST(RecipeErrorsTest, ConflictsNameBothKeys) {
  EXPECT_EQ(message_of(kMinimal + "warmup_ratio: 0.1\nwarmup_steps: 10\n"),
            "error[E-CONFIG-CONFLICT]: r.yaml:5:1: keys 'warmup_ratio' (line 4) and 'warmup_steps' (line 5) "
            "exclude each "
            "other; got 0.1 and 10. hint: keep one of them");
  EXPECT_THAT(message_of(kMinimal + "val_set_size: 0.1\ntest_datasets: [{path: t}]\n"),
              HasSubstr("keys 'val_set_size' (line 4) and 'test_datasets' (line 5)"));
  EXPECT_THAT(message_of(kMinimal + "eval_steps: 5\nevals_per_epoch: 1\n"), HasSubstr("'eval_steps'"));
  EXPECT_THAT(message_of(kMinimal + "save_steps: 5\nsaves_per_epoch: 1\n"), HasSubstr("'save_steps'"));
  EXPECT_THAT(message_of(kMinimal + "save_steps: 5\nsave_strategy: epoch\n"), HasSubstr("'save_strategy'"));
  EXPECT_THAT(message_of(kMinimal + "save_steps: 5\nsave_strategy: best\n"), HasSubstr("'save_strategy'"));
  EXPECT_THAT(message_of(kMinimal + "batch_size: 8\ngradient_accumulation_steps: 2\n"),
              HasSubstr("'batch_size'"));
  EXPECT_THAT(message_of(kMinimal + "batch_size: 8\nmicro_batch_size: 3\n"), HasSubstr("not a multiple"));
  EXPECT_THAT(message_of(kMinimal + "chat_template: chatml\nchat_template_jinja: '{{ x }}'\n"),
              HasSubstr("keys 'chat_template' and 'chat_template_jinja' exclude each other"));
  EXPECT_THAT(message_of(kMinimal + "chat_template: jinja\n"),
              HasSubstr("jinja needs 'chat_template_jinja'"));
  EXPECT_THAT(message_of(kMinimal + "adapter: lora\n"),
              HasSubstr("need lora_target_linear: true or lora_target_modules"));
  EXPECT_THAT(message_of(kMinimal + "sequence_len: 4\nmin_sample_len: 8\n"),
              HasSubstr("keys 'min_sample_len' and 'sequence_len'"));
  // There is no conflict if one of the two is zero or blank.
  EXPECT_NO_THROW(
      parse_recipe(kMinimal + "warmup_ratio: 0.0\nwarmup_steps: 10\nval_set_size: 0\ntest_datasets:\n", "r"));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(RecipeErrorsTest, AllMistakesAreToldAtOnceInTheFilesOrder) {
  const std::string text =
      "base_model: m\n"
      "qat: {weight_dtype: int8}\n"
      "adapter: mora\n"
      "datasets:\n"
      "  - path: d\n"
      "    typ: alpaca\n"
      "    train_on_eos: never\n"
      "  - type: alpaca\n"
      "micro_batch_size: many\n"
      "special_tokens: {pad_tokn: x, eos_tokn: y}\n"
      "sead: 1\n";
  const std::vector<std::string> lines = lines_of(message_of(text));
  const std::vector<std::string> parts = {"r.yaml: missing key 'learning_rate'",
                                          "r.yaml:2:1: key 'qat'",
                                          "r.yaml:3:10: key 'adapter': 'mora'",
                                          "r.yaml:6:5: unknown key 'datasets.0.typ'",
                                          "r.yaml:7:19: key 'datasets.0.train_on_eos'",
                                          "r.yaml:8:5: missing key 'datasets.1.path'",
                                          "r.yaml:9:19: key 'micro_batch_size'",
                                          "r.yaml:10:18: unknown key 'special_tokens.pad_tokn'",
                                          "r.yaml:10:31: unknown key 'special_tokens.eos_tokn'",
                                          "r.yaml:11:1: unknown key 'sead'"};
  ASSERT_EQ(lines.size(), parts.size()) << message_of(text);
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_THAT(lines[i], StartsWith("error[E-CONFIG-"));
    EXPECT_THAT(lines[i], HasSubstr(parts[i]));
  }
  // If there are thousands of mistakes, only the first ones are reported.
  std::string many = kMinimal;
  for (int i = 0; i < 5000; ++i) many += "k" + std::to_string(i) + ": 1\n";
  EXPECT_EQ(lines_of(message_of(many)).size(), 101u);
  EXPECT_EQ(lines_of(message_of(many)).back(), "and 4900 more");
}

TEST(RecipeErrorsTest, WhatFollowsFromAMistakeIsNotTold) {
  // The refused adapter leaves the LoRA keys without effect, which is not reported as well.
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(lines_of(message_of(kMinimal + "adapter: mora\nlora_r: 4\nwandb_project: x\n")).size(), 1u);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(lines_of(message_of(kMinimal + "adapter: lora\nlora_target_modules: {a: b}\n")).size(), 1u);
  EXPECT_EQ(lines_of(message_of(kMinimal + "adapter: lora\nlora_target_parameters: {a: b}\n")).size(), 1u);
  EXPECT_EQ(lines_of(message_of("base_model: m\ndatasets: x\nlearning_rate: y\n")).size(), 2u);
  EXPECT_EQ(lines_of(message_of("base_model: m\npretraining_dataset: [{path: d, x: 1}]\nlearning_rate: 1\n"))
                .size(),
            2u);
}

TEST(RecipeErrorsTest, ArgumentsOfOtherTrainersPointAtTheirConversion) {
  for (const char* key : {"do_train", "finetuning_type", "stage"}) {
    EXPECT_THAT(message_of(kMinimal + key + ": 1\n"), HasSubstr("unknown key '" + std::string(key) +
                                                                "'. hint: an argument of other trainers: "
                                                                "`tessera recipe convert`"));
  }
}

TEST(RecipeErrorsTest, HintsDoNotPointAtUnrelatedKeys) {
  for (const char* key : {"batch_implementation", "params", "enabled", "checkpoint", "cls_config",
                          "sample_packing_seq_factor", "fused_mlp_kernel"}) {
    EXPECT_THAT(message_of(kMinimal + key + ": 1\n"),
                HasSubstr("unknown key '" + std::string(key) + "'. hint: `tessera recipe keys`"));
  }
}

TEST(RecipeErrorsTest, MissingKeys) {
  EXPECT_EQ(
      message_of("base_model: m\n"),
      "error[E-CONFIG-MISSING]: r.yaml: missing keys datasets, learning_rate; need datasets, learning_rate");
  EXPECT_THAT(message_of(""), HasSubstr("missing keys base_model, datasets, learning_rate"));
  EXPECT_THAT(message_of("base_model:\ndatasets: []\nlearning_rate: 1\n"), HasSubstr("base_model, datasets"));
  EXPECT_THAT(message_of("base_model: m\ndatasets: [{path: d}]\n"), HasSubstr("missing key 'learning_rate'"));
}

TEST(RecipeErrorsTest, WhenToEvaluate) {
  const auto read = [](const std::string& lines, const std::vector<std::string>& overrides = {}) {
    return parse_recipe(kMinimal + "val_set_size: 2\n" + lines, "r.yaml", overrides);
  };
  EXPECT_EQ(read("").save_strategy, Cadence::No);
  EXPECT_EQ(read("save_steps: 5\n").save_strategy, Cadence::Steps);
  EXPECT_EQ(read("saves_per_epoch: 2\n").save_strategy, Cadence::Steps);
  EXPECT_EQ(read("save_strategy: epoch\n").save_strategy, Cadence::Epoch);
  EXPECT_EQ(read("save_steps: 0\n").save_strategy, Cadence::No);
  EXPECT_EQ(parse_recipe(dump_recipe(read("save_steps: 5\n")), "r.yaml").save_strategy, Cadence::Steps);
  // A recipe that says nothing is saved by time; one that says when, or never, is not.
  EXPECT_EQ(read("").save_minutes, 20.0);
  EXPECT_EQ(parse_recipe(dump_recipe(read("")), "r.yaml").save_minutes, 20.0);
  EXPECT_TRUE(read("").saves_checkpoints());
  for (const char* said : {"save_steps: 5\n", "save_strategy: epoch\n", "save_strategy: no\n",
                           "save_steps: 0\n", "save_only_model: true\n"})
    EXPECT_EQ(read(said).save_minutes, 0.0) << said;
  EXPECT_EQ(read("save_only_model: false\n").save_minutes, 20.0);
  EXPECT_EQ(read("save_only_model: true\nsave_minutes: 3\n").save_minutes, 3.0);
  EXPECT_FALSE(read("save_strategy: no\n").saves_checkpoints());
  EXPECT_EQ(read("save_strategy: no\nsave_minutes: 3\n").save_minutes, 3.0);
  EXPECT_EQ(read("").eval_strategy, Cadence::Epoch);
  EXPECT_EQ(read("eval_strategy: epoch\n").eval_strategy, Cadence::Epoch);
  EXPECT_EQ(read("eval_steps: 5\n").eval_strategy, Cadence::Steps);
  EXPECT_EQ(read("evals_per_epoch: 2\n").eval_strategy, Cadence::Steps);
  for (const char* off : {"eval_strategy: no\n", "eval_strategy: 'no'\n", "evaluation_strategy: false\n",
                          "eval_steps: 0\n", "evals_per_epoch: 0\n", "eval_steps: 0\nevals_per_epoch: 0\n",
                          "eval_strategy: no\neval_steps: 0\n"}) {
    const Recipe recipe = read(off);
    EXPECT_EQ(recipe.eval_strategy, Cadence::No) << off;
    EXPECT_EQ(parse_recipe(dump_recipe(recipe), "r.yaml").eval_strategy, Cadence::No) << off;
  }
  EXPECT_EQ(read("eval_steps: 0\nevals_per_epoch: 2\n").eval_strategy, Cadence::Steps);
  for (const char* steps : {"eval_strategy: steps\n", "eval_strategy: steps\neval_steps: 0\n"}) {
    const Recipe recipe = parse_recipe(dump_recipe(read(steps)), "r.yaml");
    EXPECT_EQ(recipe.eval_strategy, Cadence::Steps) << steps;
    EXPECT_EQ(recipe.eval_steps, 0.0) << steps;
  }
  EXPECT_EQ(read("eval_steps: 0.1\n").eval_strategy, Cadence::Steps);
  EXPECT_EQ(parse_recipe(dump_recipe(read("eval_steps: 0.1\nlogging_steps: 0.05\n")), "r.yaml").eval_steps,
            0.1);
  EXPECT_EQ(read("logging_steps: 0.05\n").logging_steps, 0.05);
  EXPECT_EQ(parse_recipe(dump_recipe(read("")), "r.yaml").eval_strategy, Cadence::Epoch);
  EXPECT_EQ(read("eval_steps: 5\n", {"eval_strategy=no"}).eval_strategy, Cadence::No);
  EXPECT_EQ(read("eval_strategy: no\n", {"eval_steps=5"}).eval_strategy, Cadence::Steps);
  EXPECT_THAT(message_of(kMinimal + "eval_steps: 5\neval_strategy: no\n"),
              HasSubstr("keys 'eval_steps' (line 4) and 'eval_strategy' (line 5) exclude each other"));
}

TEST(RecipeErrorsTest, WarmUpKeys) {
  const Recipe none = parse_recipe(kMinimal, "r.yaml");
  EXPECT_EQ(none.warmup_steps, std::nullopt);
  EXPECT_EQ(none.warmup_ratio, std::nullopt);
  EXPECT_EQ(parse_recipe(dump_recipe(none), "r.yaml").warmup_steps, std::nullopt);
  EXPECT_EQ(parse_recipe(kMinimal + "warmup_steps: 0\n", "r.yaml").warmup_steps, 0);
  // A share of the run under the name of the steps is accepted, as in Transformers.
  const Recipe share = parse_recipe(kMinimal + "warmup_steps: 0.1\n", "r.yaml");
  EXPECT_EQ(share.warmup_steps, 0.1);
  EXPECT_EQ(share.warmup_ratio, std::nullopt);
  for (const char* key : {"warmup_steps", "logging_steps", "eval_steps"}) {
    EXPECT_THAT(message_of(kMinimal + key + ": 2.5\n"),
                AllOf(HasSubstr("r.yaml:4:1: key '" + std::string(key) +
                                "': neither a share nor a whole number of steps"),
                      HasSubstr("need a number below 1, or a whole number of steps")));
  }
  // A warmup longer than the run is accepted here; the trainer reports it.
  EXPECT_EQ(parse_recipe(kMinimal + "warmup_steps: 10\nmax_steps: 1\n", "r.yaml").warmup_steps, 10);
}

TEST(RecipeErrorsTest, WarnsAboutKeysWithoutEffect) {
  EXPECT_THAT(warnings_of(kMinimal + "lora_r: 4\n"),
              HasSubstr("warning: r.yaml:4: key 'lora_r' has no effect without 'adapter: lora'"));
  EXPECT_THAT(warnings_of(kMinimal + "eval_steps: 4\n"),
              HasSubstr("r.yaml:4: key 'eval_steps' has no effect without 'val_set_size'"));
  EXPECT_THAT(warnings_of(kMinimal + "evals_per_epoch: 4\n"),
              HasSubstr("key 'evals_per_epoch' has no effect"));
  EXPECT_THAT(warnings_of(kMinimal + "eval_strategy: steps\n"),
              AllOf(HasSubstr("r.yaml:4: key 'eval_strategy' has no effect"), Not(HasSubstr("eval_steps"))));
  EXPECT_THAT(warnings_of("base_model: m\nlearning_rate: 1\ndatasets: [{path: d, roles_to_train: }]\n"),
              HasSubstr("key 'datasets.0.roles_to_train' is blank: its default applies"));
  EXPECT_THAT(warnings_of(kMinimal + "lr_scheduler: linear\nlr_power: 2\n"),
              HasSubstr("key 'lr_power' has no effect without 'lr_scheduler: polynomial'"));
  EXPECT_THAT(warnings_of(kMinimal + "sample_packing: true\ngroup_by_length: true\n"),
              HasSubstr("key 'group_by_length' has no effect with 'sample_packing'"));
  EXPECT_THAT(warnings_of(kMinimal + "loraplus_lr_ratio: 16\n"),
              HasSubstr("'loraplus_lr_ratio' has no effect without 'adapter: lora'"));
  EXPECT_EQ(warnings_of(kMinimal), "");
}

TEST(RecipeErrorsTest, ADeterministicRunFollowsNoMeasurement) {
  EXPECT_FALSE(parse_recipe(kMinimal, "r.yaml").deterministic);
  EXPECT_TRUE(parse_recipe(kMinimal + "deterministic: true\nbf16: true\n", "r.yaml").deterministic);
  EXPECT_THAT(message_of(kMinimal + "deterministic: true\nbf16: auto\n"),
              HasSubstr("keys 'deterministic' and 'dtype': auto exclude each other"));
  EXPECT_THAT(
      message_of(kMinimal + "deterministic: true\npipeline_parallel_size: 2\npipeline_split_by: time\n"),
      HasSubstr("keys 'deterministic' and 'pipeline_split_by': time exclude each other"));
}

TEST(RecipeErrorsTest, LearningRatesThatCannotBe) {
  EXPECT_THAT(message_of(kMinimal + "cosine_constant_lr_ratio: 0.8\n"),
              HasSubstr("key 'cosine_constant_lr_ratio' needs 'cosine_min_lr_ratio'"));
  EXPECT_THAT(message_of(kMinimal + "lr_scheduler: polynomial\nlr_end: 1\n"),
              HasSubstr("key 'lr_end': must be below 'learning_rate'"));
  EXPECT_THAT(message_of(kMinimal + "jagged_restart_steps: 5\n"), HasSubstr("need at least 11"));
  EXPECT_THAT(message_of(kMinimal + "embedding_lr: 1e-5\nembedding_lr_scale: 2\n"),
              HasSubstr("exclude each other"));
  EXPECT_THAT(message_of(kMinimal + "adapter: lora\nlora_target_linear: true\nloraplus_lr_ratio: 4\n"
                                    "embedding_lr: 1e-5\n"),
              HasSubstr("keys 'loraplus_lr_ratio' and 'embedding_lr' exclude each other"));
  EXPECT_THAT(message_of(kMinimal + "lr_groups: [{name: a, lr: 1}]\n"),
              HasSubstr("missing key 'lr_groups.0.modules'"));
  EXPECT_THAT(message_of(kMinimal + "lr_groups: [{name: a, modules: [q], lr: 1, lrr: 2}]\n"),
              HasSubstr("unknown key 'lr_groups.0.lrr'. hint: did you mean 'lr'?"));
  EXPECT_THAT(message_of(kMinimal + "lr_groups: [{modules: [q], lr: -1}]\n"),
              HasSubstr("key 'lr_groups.0.lr': out of range"));
  EXPECT_THAT(message_of(kMinimal + "lr_scheduler_kwargs: {powr: 1}\n"), HasSubstr("did you mean 'power'?"));
  EXPECT_THAT(message_of(kMinimal + "early_stopping_patience: 3\n"),
              HasSubstr("key 'early_stopping_patience': this run has no evaluation"));
  EXPECT_THAT(message_of(kMinimal + "group_by_length: true\ncurriculum_sampling: true\n"),
              HasSubstr("keys 'group_by_length' and 'shuffle_merged_datasets': false exclude each other"));
}

}  // namespace
}  // namespace tessera::config

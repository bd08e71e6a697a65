#include "tessera/config/load_recipe.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <string>

#include <unistd.h>

#include "tessera/config/resolve_paths.h"
#include "tessera/config/schema.h"

#include "tests/config/config_testing.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_folder.h"

namespace tessera::config {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string load_message(const std::string& path, const std::vector<std::string>& overrides = {}) {
  try {
    load_recipe(path, overrides);
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.kind()), 2);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(LoadRecipeTest, ReadsAnAxolotlLoraRecipe) {
  const std::string folder = recipes_folder();
  const Recipe recipe = load_recipe(folder + "/lora.yaml");
  EXPECT_EQ(recipe.base_model, folder + "/models/smol");
  ASSERT_EQ(recipe.datasets.size(), 2U);
  EXPECT_EQ(recipe.datasets[0].path, folder + "/data/alpaca.jsonl");
  EXPECT_EQ(recipe.datasets[0].type, "alpaca");
  const DatasetConfig& chats = recipe.datasets[1];
  EXPECT_EQ(chats.field_messages, "conversations");
  EXPECT_EQ(chats.message_property_mappings.at("role"), "from");
  EXPECT_THAT(chats.roles.at("assistant"), ElementsAre("gpt", "model"));
  EXPECT_THAT(chats.roles_to_train.value(), ElementsAre("assistant"));
  EXPECT_EQ(chats.source_line, 12);
  EXPECT_EQ(chats.source_file, folder + "/lora.yaml");
  EXPECT_DOUBLE_EQ(recipe.val_set_size, 0.05);
  EXPECT_EQ(recipe.adapter, AdapterKind::Lora);
  EXPECT_EQ(recipe.lora_model_dir, "");
  EXPECT_EQ(recipe.lora_r, 16);
  EXPECT_DOUBLE_EQ(recipe.lora_alpha, 32.0);
  EXPECT_EQ(recipe.lora_target_modules.size(), 7U);
  EXPECT_TRUE(recipe.sample_packing);
  EXPECT_EQ(recipe.eval_sample_packing, false);
  EXPECT_EQ(recipe.sequence_len, 2048);
  EXPECT_EQ(recipe.gradient_accumulation_steps, 2);
  EXPECT_EQ(recipe.optimizer, OptimizerKind::AdamW8bit);
  EXPECT_EQ(recipe.lr_scheduler, ScheduleKind::Cosine);
  EXPECT_DOUBLE_EQ(recipe.learning_rate, 2e-4);
  EXPECT_EQ(recipe.dtype, ComputeType::Auto);
  EXPECT_EQ(recipe.gradient_checkpointing, Checkpointing::Block);
  EXPECT_EQ(recipe.warmup_ratio, 0.1);
  EXPECT_DOUBLE_EQ(recipe.evals_per_epoch, 4.0);
  EXPECT_EQ(recipe.loss_watchdog_threshold, 5.0);
  EXPECT_EQ(recipe.loss_watchdog_patience, 3);
  EXPECT_EQ(recipe.save_strategy, Cadence::Steps);
  EXPECT_DOUBLE_EQ(recipe.saves_per_epoch, 1.0);
  EXPECT_EQ(recipe.special_tokens.at("pad_token"), "<|end_of_text|>");
  EXPECT_EQ(recipe.zero_stage, ZeroStage::Zero3);
  EXPECT_EQ(recipe.key_places.at("learning_rate").line, 58);
  EXPECT_EQ(recipe.source_folder, folder);
}

TEST(LoadRecipeTest, WarnsOnceAboutKeysWithoutEffect) {
  ::testing::internal::CaptureStderr();
  load_recipe(recipes_folder() + "/lora.yaml", {"save_first_step=true", "do_bench_eval=true"});
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("accepted without effect: save_first_step, do_bench_eval\n"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("wandb")));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("flash_attention")));
  ::testing::internal::CaptureStderr();
  load_recipe(recipes_folder() + "/lora.yaml", {"optimizer=paged_adamw_8bit"});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("command line: key 'optimizer': 'paged_adamw_8bit'"));
}

TEST(LoadRecipeTest, ReadsAnFsdp2Recipe) {
  const Recipe recipe = load_recipe(recipes_folder() + "/fsdp2.yaml");
  EXPECT_EQ(recipe.zero_stage, ZeroStage::Zero2);
  EXPECT_EQ(recipe.gradient_checkpointing, Checkpointing::Block);
  EXPECT_EQ(recipe.dp_shard_size, 2);
  EXPECT_EQ(recipe.dp_replicate_size, 2);
  EXPECT_EQ(recipe.dtype, ComputeType::BFloat16);
  EXPECT_EQ(recipe.lr_scheduler, ScheduleKind::ConstantWithWarmup);
  EXPECT_EQ(recipe.datasets[0].split, "train[:1%]");
  EXPECT_EQ(recipe.max_steps, 20);
}

TEST(LoadRecipeTest, ReadsADeepSpeedRecipe) {
  const std::string folder = recipes_folder();
  const Recipe recipe = load_recipe(folder + "/deepspeed.yaml");
  EXPECT_EQ(recipe.zero_stage, ZeroStage::Zero2);
  EXPECT_DOUBLE_EQ(recipe.adam_beta1, 0.9);
  EXPECT_DOUBLE_EQ(recipe.adam_beta2, 0.95);
  EXPECT_DOUBLE_EQ(recipe.weight_decay, 0.01);
  EXPECT_DOUBLE_EQ(recipe.learning_rate, 1e-4);
  EXPECT_DOUBLE_EQ(recipe.max_grad_norm, 0.5);
  EXPECT_EQ(recipe.gradient_accumulation_steps, 4);
  EXPECT_EQ(recipe.micro_batch_size, 2);
  EXPECT_EQ(recipe.sequence_len, 1024);
  EXPECT_TRUE(recipe.lora_target_linear);
  EXPECT_EQ(recipe.datasets[0].chat_template, "chatml");
  EXPECT_EQ(recipe.datasets[0].field_messages, "conversations");
  EXPECT_EQ(recipe.datasets[0].message_property_mappings.at("content"), "value");
  EXPECT_EQ(recipe.datasets[1].path, folder + "/data");
  EXPECT_THAT(recipe.datasets[1].data_files, ElementsAre("alpaca.jsonl"));
  EXPECT_EQ(recipe.datasets[1].ds_type, "json");
  EXPECT_EQ(recipe.key_places.at("adam_beta2").file, folder + "/zero2.json");
  EXPECT_EQ(recipe.key_places.at("adam_beta2").line, 12);
}

TEST(LoadRecipeTest, ReadsAnAccelerateRecipe) {
  const Recipe recipe = load_recipe(recipes_folder() + "/accelerate.yaml");
  EXPECT_EQ(recipe.zero_stage, ZeroStage::Zero2);
  EXPECT_EQ(recipe.dp_shard_size, 4);
  EXPECT_EQ(recipe.gradient_accumulation_steps, 4);
  EXPECT_EQ(recipe.dtype, ComputeType::Float32);
}

TEST(LoadRecipeTest, TheDumpOfARecipeIsTheSameRecipe) {
  for (const char* name : {"lora", "fsdp2", "deepspeed", "accelerate"}) {
    const Recipe recipe = load_recipe(recipes_folder() + '/' + name + ".yaml");
    const std::string dump = dump_recipe(recipe);
    ::testing::internal::CaptureStderr();
    const Recipe again = parse_recipe(dump, "dump.yaml");
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(dump_recipe(again), dump);
    EXPECT_EQ(again.datasets.size(), recipe.datasets.size());
    EXPECT_EQ(again.learning_rate, recipe.learning_rate);
    EXPECT_EQ(again.zero_stage, recipe.zero_stage);
  }
  const Recipe odd =
      parse_recipe(kMinimal, "r.yaml",
                   {"chat_template_jinja=\"{% if x %}\\n\\t'\\\\ \\u00e9{% endif %}\"",
                    "seed=9007199254740992", "learning_rate=0.1", "adam_epsilon=1e-30", "output_dir='yes'",
                    "lora_target_modules='.*_proj'", "datasets.0.roles_to_train=[]"});
  const Recipe again = parse_recipe(dump_recipe(odd), "dump.yaml");
  EXPECT_EQ(again.chat_template_jinja, "{% if x %}\n\t'\\ \xc3\xa9{% endif %}");
  EXPECT_EQ(again.seed, 9007199254740992);
  EXPECT_EQ(again.learning_rate, 0.1);
  EXPECT_EQ(again.adam_epsilon, 1e-30);
  EXPECT_EQ(again.output_dir, "yes");
  EXPECT_EQ(again.lora_target_regex, ".*_proj");
  ASSERT_TRUE(again.datasets[0].roles_to_train.has_value());
  EXPECT_TRUE(again.datasets[0].roles_to_train->empty());
  EXPECT_EQ(dump_recipe(again), dump_recipe(odd));
}

TEST(LoadRecipeTest, OverridesReplaceAddAndUnset) {
  const Recipe recipe =
      parse_recipe(kMinimal + "max_steps: 5\nspecial_tokens: {pad_token: a}\n", "r.yaml",
                   {"learning_rate=3e-4", "datasets.0.path=other.jsonl", "datasets.1.path=more.jsonl",
                    "datasets.1.type=completion", "special_tokens.eos_token='</s>'",
                    "max_steps=", "lora_target_modules=[q_proj, v_proj]", "adapter=lora", "output_dir=a=b",
                    "seed=1", "seed=2"});
  EXPECT_DOUBLE_EQ(recipe.learning_rate, 3e-4);
  ASSERT_EQ(recipe.datasets.size(), 2U);
  EXPECT_EQ(recipe.datasets[0].path, "other.jsonl");
  EXPECT_EQ(recipe.datasets[0].type, "alpaca");
  EXPECT_EQ(recipe.datasets[1].type, "completion");
  EXPECT_EQ(recipe.special_tokens.at("pad_token"), "a");
  EXPECT_EQ(recipe.special_tokens.at("eos_token"), "</s>");
  EXPECT_EQ(recipe.max_steps, 0);
  EXPECT_THAT(recipe.lora_target_modules, ElementsAre("q_proj", "v_proj"));
  EXPECT_EQ(recipe.output_dir, "a=b");
  EXPECT_EQ(recipe.seed, 2);
  EXPECT_EQ(recipe.key_places.at("learning_rate").line, 0);
  EXPECT_EQ(recipe.key_places.at("learning_rate").file, "command line");
}

TEST(LoadRecipeTest, OverridesWinOverOtherSpellings) {
  const std::string text = kMinimal +
                           "fsdp_config: {reshard_after_forward: true}\n"
                           "warmup_ratio: 0.1\n"
                           "test_datasets: [{path: t.jsonl, type: alpaca}]\n"
                           "bf16: true\n";
  const Recipe recipe =
      parse_recipe(text, "r.yaml", {"zero_stage=1", "warmup_steps=3", "val_set_size=0.1", "dtype=float32"});
  EXPECT_EQ(recipe.zero_stage, ZeroStage::Zero1);
  EXPECT_EQ(recipe.warmup_steps, 3);
  EXPECT_EQ(recipe.warmup_ratio, std::nullopt);
  EXPECT_TRUE(recipe.test_datasets.empty());
  EXPECT_EQ(recipe.dtype, ComputeType::Float32);
  EXPECT_EQ(parse_recipe(text, "r.yaml", {"fsdp_config.reshard_after_forward=false"}).zero_stage,
            ZeroStage::Zero2);
}

TEST(LoadRecipeTest, EndsInARecipeOrAConfigErrorForAnyText) {
  std::string seed_text;
  for (const char* name : {"lora", "fsdp2", "accelerate"}) {
    std::ifstream file(recipes_folder() + '/' + name + ".yaml");
    seed_text.append(std::istreambuf_iterator<char>(file), {});
  }
  std::vector<std::string> lines;
  std::stringstream stream(seed_text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  const std::vector<std::string> values = {
      "-1",   "1e400", "[a]",        "{a: b}",      "~",    "'x'", "yes",    ".nan",
      "auto", "none",  "full_shard", "[{path: x}]", "[[]]", "2",   "[1, 2]", "{enabled: true}"};
  std::mt19937 random(20240612);
  ::testing::internal::CaptureStderr();
  int num_recipes = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string text = round % 4 == 0 ? kMinimal : "";
    for (unsigned i = 0; i < 1 + random() % 6; ++i) {
      std::string line = lines[random() % lines.size()];
      const size_t colon = line.find(": ");
      if (random() % 2 == 0 && colon != std::string::npos)
        line = line.substr(0, colon + 2) + values[random() % values.size()];
      text += line + '\n';
    }
    std::vector<std::string> overrides;
    if (random() % 4 == 0) overrides.push_back("datasets.0.type=" + values[random() % values.size()]);
    try {
      parse_recipe(text, "r.yaml", overrides);
      ++num_recipes;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Config) << error.what() << '\n' << text;
    }
  }
  ::testing::internal::GetCapturedStderr();
  EXPECT_GT(num_recipes, 20);
}

TEST(LoadRecipeTest, RefusesMalformedOverrides) {
  EXPECT_EQ(
      message_of(kMinimal, {"learning_rate"}),
      "error[E-CONFIG-OVERRIDE]: command line: override 'learning_rate': not an override; need key=value");
  EXPECT_THAT(message_of(kMinimal, {"=3"}), HasSubstr("not an override"));
  EXPECT_THAT(message_of(kMinimal, {"a..b=3"}), HasSubstr("an empty name"));
  EXPECT_THAT(message_of(kMinimal, {"datasets.first.path=x"}), HasSubstr("a list is indexed with numbers"));
  EXPECT_THAT(message_of(kMinimal, {"datasets.2.path=x"}),
              HasSubstr("no such list item; got 2, need at most 1"));
  EXPECT_THAT(message_of(kMinimal, {"base_model.x=1"}), HasSubstr("is a key inside a plain value"));
  EXPECT_THAT(message_of(kMinimal, {"seed=[1"}), HasSubstr("E-CONFIG-SYNTAX]: command line"));
  EXPECT_THAT(
      message_of(kMinimal, {"sead=1"}),
      HasSubstr("E-CONFIG-UNKNOWN-KEY]: command line: unknown key 'sead'. hint: did you mean 'seed'?"));
  EXPECT_THAT(message_of(kMinimal, {"seed=x\xff"}), HasSubstr("E-CONFIG-ENCODING"));
  EXPECT_THAT(message_of(kMinimal, {"warmup_steps=3", "warmup_ratio=0.1"}), HasSubstr("E-CONFIG-CONFLICT"));
}

TEST(LoadRecipeTest, AllOverridesThatAreWrongAreToldAtOnce) {
  const std::string message =
      message_of(kMinimal + "sead: 1\n",
                 {"datasets.3.path=x", "lerning_rate=1", "lora_r=0", "foo", "seed=[1", "base_model.x=1"});
  for (const char* part :
       {"override 'datasets.3.path=x': no such list item", "unknown key 'lerning_rate'",
        "key 'lora_r': out of range", "override 'foo': not an override", "E-CONFIG-SYNTAX]: command line",
        "is a key inside a plain value", "r.yaml:4:1: unknown key 'sead'"}) {
    EXPECT_THAT(message, HasSubstr(part));
  }
}

TEST(LoadRecipeTest, WithAbsolutePathsARecipeMeansTheSameFromAnywhere) {
  namespace fs = std::filesystem;
  const fs::path here = fs::current_path();
  Recipe recipe = parse_recipe(
      "base_model: models/./m\nlearning_rate: 1\ntokenizer_config: t/\nlora_model_dir: /a\noutput_dir: out\n"
      "dataset_prepared_path: rows\nchat_template_jinja: c.jinja\n"
      "datasets: [{path: d.jsonl, chat_template_jinja: '{{ x }}'}]\ntest_datasets: [{path: e.jsonl}]\n",
      "r.yaml");
  recipe = with_absolute_paths(std::move(recipe));
  EXPECT_EQ(recipe.base_model, here / "models/m");
  EXPECT_EQ(recipe.tokenizer_config, here / "t");
  EXPECT_EQ(recipe.lora_model_dir, "/a");
  EXPECT_EQ(recipe.output_dir, here / "out");
  EXPECT_EQ(recipe.dataset_prepared_path, here / "rows");
  EXPECT_EQ(recipe.chat_template_jinja, here / "c.jinja");
  EXPECT_EQ(recipe.datasets[0].path, here / "d.jsonl");
  EXPECT_EQ(recipe.datasets[0].chat_template_jinja, "{{ x }}");
  EXPECT_EQ(recipe.test_datasets[0].path, here / "e.jsonl");
  EXPECT_EQ(with_absolute_paths(Recipe()).base_model, "");
}

TEST(LoadRecipeTest, PathsComeFromTheCurrentFolderFirst) {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("tessera-config-" + std::to_string(::getpid()));
  fs::create_directories(root / "here" / "m");
  fs::create_directories(root / "there" / "m");
  for (const char* name : {"here/both.jsonl", "there/both.jsonl", "there/only.jsonl"})
    std::ofstream(root / name) << "{}\n";
  std::ofstream(root / "there" / "t.jinja") << "{{ messages }}";
  std::ofstream(root / "there" / "r.yaml")
      << "base_model: m\nlearning_rate: 1e-4\nchat_template_jinja: t.jinja\n"
         "datasets:\n- {path: both.jsonl}\n- {path: only.jsonl}\n";
  const fs::path before = fs::current_path();
  fs::current_path(root / "here");
  const Recipe recipe = load_recipe("../there/r.yaml");
  const std::string moved = load_message("../there/r.yaml", {"datasets.1.path=none.jsonl"});
  fs::current_path(before);
  fs::remove_all(root);
  EXPECT_EQ(recipe.base_model, "m");
  EXPECT_EQ(recipe.datasets[0].path, "both.jsonl");
  EXPECT_EQ(recipe.datasets[1].path, "../there/only.jsonl");
  EXPECT_EQ(recipe.chat_template_jinja, "../there/t.jinja");
  EXPECT_THAT(
      moved,
      HasSubstr("E-CONFIG-NOT-FOUND]: command line: key 'datasets.1.path': no such file or folder; got "
                "none.jsonl"));
}

TEST(LoadRecipeTest, RefusesPathsThatAreNotThere) {
  const std::string file = recipes_folder() + "/lora.yaml";
  EXPECT_THAT(
      load_message(file, {"base_model=org/name-7b"}),
      ::testing::AllOf(HasSubstr("E-CONFIG-HUB-OFFLINE]: command line: key 'base_model': no such path: model "
                                 "org/name-7b would have to be downloaded, but HF_HUB_OFFLINE"),
                       HasSubstr("on a machine with a network: hf download org/name-7b")));
  EXPECT_THAT(load_message(file, {"base_model=data/text.txt"}), HasSubstr("E-CONFIG-NOT-A-FOLDER"));
  EXPECT_THAT(load_message(file, {"tokenizer_config=nowhere"}),
              HasSubstr("key 'tokenizer_config': no such folder"));
  EXPECT_THAT(load_message(file, {"lora_model_dir=nowhere"}),
              HasSubstr("key 'lora_model_dir': no such folder"));
  EXPECT_THAT(load_message(file, {"datasets.0.path=s3://bucket/x"}),
              HasSubstr("remote data is not supported"));
  EXPECT_THAT(load_message(file, {"datasets.0={path: parquet, data_files: a.parquet}"}),
              HasSubstr("E-CONFIG-NOT-FOUND"));
  EXPECT_THAT(load_message(file, {"datasets.0.path=nowhere/*.jsonl"}),
              HasSubstr("no file matches the pattern"));
  EXPECT_THAT(
      load_message(file, {"datasets.0.path=org/no-such-set"}),
      AllOf(HasSubstr("E-CONFIG-HUB-OFFLINE]: command line: key 'datasets.0.path': no such path: dataset "),
            HasSubstr("hf download --repo-type dataset org/no-such-set")));
  const tessera::testing::TempFolder folder;
  std::ofstream(folder / "config.json") << "{}";
  EXPECT_THAT(load_message(file, {"lora_model_dir=" + folder.path()}),
              AllOf(HasSubstr("E-CONFIG-NOT-AN-ADAPTER"), HasSubstr("key 'lora_model_dir'"),
                    HasSubstr("base_model")));
  std::filesystem::rename(folder / "config.json", folder / "adapter_config.json");
  EXPECT_THAT(load_message(file, {"base_model=" + folder.path()}),
              AllOf(HasSubstr("E-CONFIG-NOT-A-MODEL"), HasSubstr("lora_model_dir: " + folder.path())));
  EXPECT_THAT(
      load_message(file, {"deepspeed=nowhere/zero3.json"}),
      HasSubstr(
          "key 'deepspeed': no such file; got the text 'nowhere/zero3.json', need a DeepSpeed JSON file"));
  EXPECT_THAT(load_message("/nowhere/r.yaml"), HasSubstr("E-CONFIG-NOT-FOUND]: /nowhere/r.yaml"));
  EXPECT_THAT(load_message(recipes_folder()), HasSubstr("got a folder, need a YAML file"));
}

TEST(LoadRecipeTest, NamesOfTheHubAreFoldersOfItsCache) {
  const testing::TempFolder cache;
  cache.write("models--org--name-7b/refs/main", "abc");
  cache.write("models--org--name-7b/snapshots/abc/config.json", "{}");
  cache.write("models--org--name-7b/snapshots/v2/config.json", "{}");
  ::setenv("HF_HUB_CACHE", cache.path().c_str(), 1);
  const std::string file = recipes_folder() + "/lora.yaml";
  const std::string snapshots = cache / "models--org--name-7b/snapshots/";
  const std::vector<std::string> more = {"base_model=org/name-7b",
                                         "datasets.0.path=" + cache / "models--org--name-7b/refs/main"};
  EXPECT_EQ(load_recipe(file, more).base_model, snapshots + "abc");
  EXPECT_EQ(load_recipe(file, {more[0], more[1], "revision_of_model=v2"}).base_model, snapshots + "v2");
  EXPECT_THAT(load_message(file, {more[0], more[1], "revision_of_model=v3"}),
              HasSubstr("hf download org/name-7b --revision v3"));
  ::unsetenv("HF_HUB_CACHE");
}

TEST(LoadRecipeTest, NamesTheLineOfAMissingModel) {
  namespace fs = std::filesystem;
  const fs::path path =
      fs::temp_directory_path() / ("tessera-config-" + std::to_string(::getpid()) + ".yaml");
  std::ofstream(path) << "learning_rate: 1e-4\nbase_model: no/such/folder\ndatasets: [{path: x}]\n";
  const std::string message = load_message(path.string());
  fs::remove(path);
  EXPECT_THAT(message,
              HasSubstr("E-CONFIG-NOT-FOUND]: " + path.string() + ":2:1: key 'base_model': no such folder"));
}

TEST(KnownKeysTest, HoldEverySpellingOnce) {
  std::vector<std::string> keys = known_keys();
  for (const char* key : {"learning_rate", "datasets.0.path", "fsdp_config.reshard_after_forward",
                          "mlflow_tags", "deepspeed.zero_optimization.stage", "special_tokens.pad_token"}) {
    const bool is_prefix_key = std::string(key) == "mlflow_tags";
    EXPECT_EQ(std::find(keys.begin(), keys.end(), key) != keys.end(), !is_prefix_key) << key;
  }
  for (const char* refused : {"peft_layer_replication", "qat"})
    EXPECT_EQ(std::find(keys.begin(), keys.end(), refused), keys.end()) << refused;
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  EXPECT_EQ(twice, keys.end()) << *twice;
}

TEST(DocumentationTest, NamesEveryNativeKeyAndSection) {
  std::ifstream file(testing::source_folder() + "/docs/recipes.md");
  ASSERT_TRUE(file.good());
  std::stringstream text;
  text << file.rdbuf();
  const std::string page = text.str();
  for (const auto& key : recipe_keys()) EXPECT_THAT(page, HasSubstr('`' + std::string(key.name) + '`'));
  const size_t datasets = page.find("## Dataset entries");
  ASSERT_NE(datasets, std::string::npos);
  for (const auto& key : dataset_keys())
    EXPECT_THAT(page.substr(datasets), HasSubstr('`' + std::string(key.name) + '`'));
}

}  // namespace
}  // namespace tessera::config

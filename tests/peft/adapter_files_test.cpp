#include "tessera/peft/adapter_files.h"

#include <filesystem>
#include <fstream>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/io/file.h"
#include "tessera/nn/materialize.h"
#include "tessera/peft/merge.h"

#include "tests/models/reference_models.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_folder.h"
#include "tests/testing/tiny_model.h"

namespace tessera::peft {
namespace {

using models::load_reference_model;
using models::max_difference;
using models::pack_ids;
using models::reference_folder;
using models::reference_tensors;
using models::TensorFile;
using nlohmann::json;
using tessera::testing::TempFolder;
using ::testing::Contains;
using ::testing::HasSubstr;

std::string training(const std::string& name) {
  return testing::source_folder() + "/tests/reference/data/training/" + name;
}

// Gives the factors their initial values, in a model whose other parameters have values.
void initialise_adapters(models::CausalLM& model, uint64_t seed) {
  const auto source = models::random_source(model, seed);
  for (auto& item : model.named_parameters()) {
    if (!is_lora_parameter(item.key())) continue;
    const at::Tensor value = at::empty(item.value().sizes(), item.value().scalar_type());
    source->read(item.key(), checkpoint::whole_box(value.sizes().vec()), value);
    nn::materialize(item.value(), value);
  }
}

using Values = std::vector<std::pair<std::string, at::Tensor>>;

// Writes an adapter as a single process does.
void save_adapter(const std::string& folder, const models::CausalLM& model, const LoraOptions& options,
                  const LoraTargets& targets, const std::string& base, const Values& values) {
  const auto plan = adapter_folder(adapter_table(model, targets), options, targets, base);
  std::vector<io::TensorSpec> specs;
  for (const auto& tensor : plan.table.stored_tensors()) {
    specs.push_back({tensor.name, to_dtype(values.front().second.scalar_type()), tensor.shape});
  }
  io::ShardedSafetensorsWriter writer(folder, specs, plan.weights);
  for (const auto& [name, value] : values) {
    writer.write(to_peft_name(name), 0, value.const_data_ptr(), static_cast<int64_t>(value.nbytes()));
  }
  writer.commit();
  for (const auto& [name, text] : plan.files) io::write_file_atomic(io::join_path(folder, name), text);
}

template <class Run>
std::string code_of(const Run& run, std::string* text = nullptr) {
  try {
    run();
    return "";
  } catch (const Error& error) {
    if (text != nullptr) *text = error.what();
    return error.code();
  }
}

// Returns the factors of all layers, by their names.
std::vector<std::pair<std::string, at::Tensor>> lora_values(const torch::nn::Module& model) {
  std::vector<std::pair<std::string, at::Tensor>> values;
  for (const auto& item : model.named_parameters()) {
    if (is_lora_parameter(item.key())) values.emplace_back(item.key(), item.value());
  }
  return values;
}

TEST(AdapterFiles, NamesMapBothWays) {
  const std::string name = "model.layers.0.self_attn.q_proj.lora_A.weight";
  EXPECT_EQ(to_peft_name(name), "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
  EXPECT_EQ(from_peft_name(to_peft_name(name)), name);
  EXPECT_EQ(from_peft_name(name), std::nullopt);
}

TEST(AdapterFiles, LogitsWithPeftsAdaptersAreThoseOfPeft) {
  const TensorFile file(training("lora_logits.safetensors"));
  for (const std::string which : {"initial", "final"}) {
    const auto model = load_reference_model("llama3", at::kFloat);
    const AdapterConfig config = load_adapter(*model, training("lora_" + which));
    EXPECT_EQ(config.options.rank, 4);
    EXPECT_EQ(config.options.alpha, 8.0);
    model->eval();
    EXPECT_LT(max_difference(model->logits(pack_ids(file.get("ids"))), file.get("logits_" + which)), 1e-4)
        << which;
  }
}

TEST(AdapterFiles, SavedAdaptersLoadAgain) {
  TempFolder folder;
  const auto first = load_reference_model("llama2", at::kDouble);
  LoraOptions options;
  options.rank = 3;
  options.alpha = 5.0;
  options.use_rslora = true;
  options.dropout = 0.25;
  options.target_modules = {"q_proj", "down_proj"};
  options.modules_to_save = {"lm_head", "model.norm"};
  const LoraTargets targets = apply_lora(*first, options);
  initialise_adapters(*first, 3);
  std::vector<std::pair<std::string, at::Tensor>> values;
  at::manual_seed(8);
  auto parameters = first->named_parameters();
  for (const std::string& name : adapter_parameters(*first, targets)) {
    at::NoGradGuard no_grad;
    parameters[name].add_(at::randn_like(parameters[name]), 0.1);
    values.emplace_back(name, parameters[name]);
  }
  EXPECT_EQ(values.size(), 2U * 2U * 2U + 2U);
  save_adapter(folder.path(), *first, options, targets, "the/base", values);

  const auto second = load_reference_model("llama2", at::kDouble);
  const AdapterConfig config = load_adapter(*second, folder.path());
  EXPECT_EQ(config.base_model, "the/base");
  EXPECT_EQ(config.options.dropout, 0.25);
  EXPECT_TRUE(config.options.use_rslora);
  first->eval();
  second->eval();
  const auto batch = pack_ids(at::arange(3, 20));
  EXPECT_TRUE(at::equal(first->logits(batch), second->logits(batch)));
  EXPECT_GT(max_difference(first->logits(batch), load_reference_model("llama2", at::kDouble)->logits(batch)),
            1e-3);
}

TEST(AdapterFiles, ConfigHoldsWhatPeftReads) {
  TempFolder folder;
  const auto model = load_reference_model("llama3", at::kFloat);
  LoraOptions options;
  options.all_linear = true;
  const LoraTargets targets = apply_lora(*model, options);
  initialise_adapters(*model, 3);
  const auto values = lora_values(*model);
  save_adapter(folder.path(), *model, options, targets, "base", values);
  const json config = json::parse(io::read_file(folder / "adapter_config.json", 1 << 20));
  const json reference = json::parse(io::read_file(training("lora_initial/adapter_config.json"), 1 << 20));
  for (const char* key :
       {"peft_type", "task_type", "bias", "fan_in_fan_out", "use_dora", "use_rslora", "inference_mode",
        "init_lora_weights", "rank_pattern", "alpha_pattern", "modules_to_save"}) {
    EXPECT_EQ(config[key], reference[key]) << key;
  }
  EXPECT_TRUE(config["lora_alpha"].is_number_integer());
  json targets_of_file = config["target_modules"];
  std::sort(targets_of_file.begin(), targets_of_file.end());
  EXPECT_EQ(targets_of_file, reference["target_modules"]);
  // Every tensor has the name that PEFT gave it, and its shape except for the LoRA rank.
  const TensorFile ours(folder / "adapter_model.safetensors");
  const io::ModelFiles theirs = open_adapter(training("lora_initial"));
  EXPECT_EQ(theirs.tensors().size(), values.size());
  for (const io::TensorInfo* tensor : theirs.tensors()) EXPECT_TRUE(ours.has(tensor->name)) << tensor->name;
}

// The short names of layers would also be those of layers in the vision tower.
TEST(AdapterFiles, OfATextPartNameItsLayersInFull) {
  TempFolder folder;
  const auto model = load_reference_model("gemma3_multimodal", at::kFloat);
  LoraOptions options;
  options.target_modules = {"q_proj"};
  const LoraTargets targets = apply_lora(*model, options);
  initialise_adapters(*model, 3);
  const auto values = lora_values(*model);
  save_adapter(folder.path(), *model, options, targets, "base", values);
  const json config = json::parse(io::read_file(folder / "adapter_config.json", 1 << 20));
  EXPECT_EQ(config["target_modules"], json({"model.language_model.layers.0.self_attn.q_proj",
                                            "model.language_model.layers.1.self_attn.q_proj"}));
  EXPECT_TRUE(TensorFile(folder / "adapter_model.safetensors")
                  .has("base_model.model.model.language_model.layers.1.self_attn.q_proj.lora_A.weight"));
  const auto again = load_reference_model("gemma3_multimodal", at::kFloat);
  EXPECT_EQ(load_adapter(*again, folder.path()).options.target_modules.size(), 2U);
}

TEST(AdapterFiles, MismatchesAreModelErrors) {
  std::string text;
  // The adapter does not fit another base model, whose sizes differ.
  const auto other = load_reference_model("qwen3", at::kFloat);
  EXPECT_EQ(code_of([&] { load_adapter(*other, training("lora_final")); }, &text), "E-MODEL-ADAPTER");
  EXPECT_THAT(text, HasSubstr("shape"));

  TempFolder folder;
  json config = json::parse(io::read_file(training("lora_final/adapter_config.json"), 1 << 20));
  std::filesystem::copy_file(training("lora_final/adapter_model.safetensors"),
                             folder / "adapter_model.safetensors");
  const auto with = [&](const std::function<void(json&)>& change) {
    json changed = config;
    change(changed);
    io::write_file_atomic(folder / "adapter_config.json", changed.dump());
    const auto model = load_reference_model("llama3", at::kFloat);
    return code_of([&] { load_adapter(*model, folder.path()); }, &text);
  };
  ASSERT_EQ(with([](json&) {}), "");
  EXPECT_EQ(with([](json& c) { c["r"] = 5; }), "E-MODEL-ADAPTER");
  EXPECT_THAT(text, HasSubstr("need [5, "));
  EXPECT_EQ(with([](json& c) { c["target_modules"] = {"q_proj"}; }), "E-MODEL-ADAPTER");
  EXPECT_THAT(text, HasSubstr("no target in its configuration"));
  EXPECT_EQ(with([](json& c) { c["target_modules"] = {"query"}; }), "E-MODEL-ADAPTER");
  EXPECT_EQ(with([](json& c) { c["modules_to_save"] = {"norm"}; }), "E-MODEL-ADAPTER");
  EXPECT_THAT(text, HasSubstr("missing tensors: base_model.model.model.norm.weight"));
  EXPECT_EQ(with([](json& c) { c["use_dora"] = true; }), "E-MODEL-ADAPTER");
  EXPECT_THAT(text, HasSubstr("lora_magnitude_vector"));
  EXPECT_EQ(with([](json& c) { c["rank_pattern"] = {{"q_proj", 2}}; }), "E-MODEL-ADAPTER");
  EXPECT_THAT(text, HasSubstr("need [2, "));
  EXPECT_EQ(with([](json& c) { c["rank_pattern"] = {{"q_proj", 0}}; }), "E-MODEL-CONFIG");
  EXPECT_EQ(with([](json& c) { c["alpha_pattern"] = {{"q_proj", "x"}}; }), "E-MODEL-CONFIG");
  EXPECT_EQ(with([](json& c) { c["rank_pattern"] = {{"(q_proj", 2}}; }), "E-MODEL-ADAPTER");
  EXPECT_EQ(with([](json& c) { c["exclude_modules"] = {"q_proj"}; }), "E-MODEL-ADAPTER");
  EXPECT_THAT(text, HasSubstr("no target in its configuration"));
  EXPECT_EQ(with([](json& c) { c["peft_type"] = "LOHA"; }), "E-MODEL-UNSUPPORTED");
  EXPECT_EQ(with([](json& c) { c["bias"] = "all"; }), "E-MODEL-UNSUPPORTED");
  EXPECT_EQ(with([](json& c) { c["init_lora_weights"] = "pissa"; }), "E-MODEL-UNSUPPORTED");
  EXPECT_EQ(with([](json& c) { c["r"] = 0; }), "E-MODEL-CONFIG");
  EXPECT_EQ(with([](json& c) { c.erase("target_modules"); }), "E-MODEL-CONFIG");
}

// Adds noise to the adapter's parameters and returns them.
Values noisy_values(const models::CausalLM& model, const LoraTargets& targets) {
  const at::NoGradGuard no_grad;
  at::manual_seed(8);
  Values values;
  auto parameters = model.named_parameters();
  for (const std::string& name : adapter_parameters(model, targets)) {
    parameters[name].add_(at::randn_like(parameters[name]), 0.1);
    values.emplace_back(name, parameters[name]);
  }
  return values;
}

at::Tensor logits_of(models::CausalLM& model) {
  const at::NoGradGuard no_grad;
  model.eval();
  return model.logits(pack_ids(at::arange(3, 20)));
}

// The first key of a pattern that matches a layer's name, or its end, says its rank or alpha, as in PEFT.
TEST(AdapterFiles, LayersHaveRanksAndAlphasOfTheirOwn) {
  const TempFolder folder;
  const auto first = load_reference_model("llama_linear", at::kDouble);
  LoraOptions options;
  options.rank = 3;
  options.alpha = 6.0;
  options.target_modules = {"q_proj", "v_proj", "down_proj"};
  options.exclude_modules = {"0.self_attn.v_proj"};
  options.rank_pattern = {{"layers.1.self_attn.q_proj", 5}, {"q_proj", 2}, {"down_.*", 4}};
  options.alpha_pattern = {{"v_proj", 1.5}, {".*proj", 20.0}};
  const LoraTargets targets = apply_lora(*first, options);
  initialise_adapters(*first, 3);
  const auto parameters = first->named_parameters();
  const std::string of_0 = "model.layers.0.", of_1 = "model.layers.1.", a = ".lora_A.weight";
  EXPECT_EQ(parameters[of_0 + "self_attn.q_proj" + a].size(0), 2);
  EXPECT_EQ(parameters[of_1 + "self_attn.q_proj" + a].size(0), 5);
  EXPECT_EQ(parameters[of_1 + "self_attn.v_proj" + a].size(0), 3);
  EXPECT_EQ(parameters[of_1 + "mlp.down_proj" + a].size(0), 4);
  EXPECT_FALSE(parameters.contains(of_0 + "self_attn.v_proj" + a));
  const Values values = noisy_values(*first, targets);
  save_adapter(folder / "adapter", *first, options, targets, "base", values);
  const json config = json::parse(io::read_file(folder / "adapter/adapter_config.json", 1 << 20));
  EXPECT_EQ(config["rank_pattern"], json({{"layers.1.self_attn.q_proj", 5}, {"q_proj", 2}, {"down_.*", 4}}));
  EXPECT_EQ(config["alpha_pattern"], json({{"v_proj", 1.5}, {".*proj", 20}}));

  const auto second = load_reference_model("llama_linear", at::kDouble);
  const AdapterConfig read = load_adapter(*second, folder / "adapter");
  EXPECT_EQ(read.options.rank_pattern, options.rank_pattern) << "the order counts";
  EXPECT_EQ(read.options.alpha_pattern, options.alpha_pattern);
  EXPECT_TRUE(at::equal(logits_of(*first), logits_of(*second)));

  // The merged weight has the layer's own scale: alpha 20 over rank 5.
  merge_adapter(reference_tensors("llama_linear"), folder / "adapter", folder / "merged");
  const std::string q = of_1 + "self_attn.q_proj";
  const at::Tensor base =
                       TensorFile(reference_folder("llama_linear") + "/model.safetensors").get(q + ".weight"),
                   merged = TensorFile(folder / "merged/model.safetensors").get(q + ".weight"),
                   want = base.to(at::kDouble) +
                          4.0 * at::matmul(parameters[q + ".lora_B.weight"], parameters[q + a]).detach();
  EXPECT_TRUE(at::equal(merged, want.to(merged.scalar_type())));
}

// Writes the files of an adapter with more tensors, under PEFT's names.
void add_tensors(const std::string& folder, const std::map<std::string, at::Tensor>& more) {
  const TensorFile file(folder + "/adapter_model.safetensors");
  std::map<std::string, at::Tensor> tensors = more;
  const io::ModelFiles held = open_adapter(folder);
  for (const io::TensorInfo* info : held.tensors()) tensors.emplace(info->name, file.get(info->name));
  std::vector<io::TensorSpec> specs;
  for (const auto& [name, value] : tensors)
    specs.push_back({name, to_dtype(value.scalar_type()), value.sizes().vec()});
  io::SafetensorsWriter writer(folder + "/adapter_model.safetensors", specs);
  for (const auto& [name, value] : tensors)
    writer.write(name, 0, value.const_data_ptr(), static_cast<int64_t>(value.nbytes()));
  writer.commit();
}

// PEFT's save_embedding_layers puts the embeddings beside the factors, a tied one under both of its names.
TEST(AdapterFiles, EmbeddingsThatAnAdapterBringsTakeThePlaceOfTheModels) {
  for (const char* family : {"llama3", "llama2"}) {
    SCOPED_TRACE(family);
    const TempFolder folder;
    const auto first = load_reference_model(family, at::kFloat);
    LoraOptions options;
    options.target_modules = {"q_proj"};
    const LoraTargets targets = apply_lora(*first, options);
    initialise_adapters(*first, 3);
    save_adapter(folder / "adapter", *first, options, targets, "base", noisy_values(*first, targets));
    const std::string embedding = "model.embed_tokens.weight", head = "lm_head.weight";
    auto parameters = first->named_parameters();
    {
      const at::NoGradGuard no_grad;
      parameters[embedding].mul_(1.5);
    }
    const bool is_tied = first->config().tie_word_embeddings;
    const at::Tensor brought = parameters[is_tied ? embedding : head].detach();
    add_tensors(folder / "adapter",
                {{to_peft_name(embedding), parameters[embedding].detach()}, {to_peft_name(head), brought}});

    const auto second = load_reference_model(family, at::kFloat);
    const AdapterConfig config = read_adapter_config(folder / "adapter");
    const auto files = std::make_shared<const io::ModelFiles>(open_adapter(folder / "adapter"));
    const LoraTargets found = apply_adapter(*second, config, *files, second->tied_modules());
    checkpoint::materialize(*second, *adapter_source(*second, found, files));
    EXPECT_TRUE(at::equal(logits_of(*first), logits_of(*second)));
    EXPECT_FALSE(second->named_parameters()[embedding].requires_grad());
    // They belong to what is saved of it, too.
    EXPECT_THAT(adapter_parameters(*second, found), Contains(embedding));

    merge_adapter(reference_tensors(family), folder / "adapter", folder / "merged");
    const auto merged = models::build_model(folder / "merged", at::kFloat);
    models::load_weights(*merged, io::ModelFiles::open(folder / "merged"));
    EXPECT_LT(max_difference(logits_of(*merged), logits_of(*first)), 1e-4);

    const auto text_of = [&](const std::map<std::string, at::Tensor>& more) {
      add_tensors(folder / "adapter", more);
      std::string text;
      const auto model = load_reference_model(family, at::kFloat);
      EXPECT_EQ(code_of([&] { load_adapter(*model, folder / "adapter", model->tied_modules()); }, &text),
                "E-MODEL-ADAPTER");
      return text;
    };
    if (is_tied) {
      EXPECT_THAT(text_of({{to_peft_name(head), brought + 1.0}}),
                  HasSubstr("different values for two weights"));
    }
    const at::Tensor larger = at::zeros({brought.size(0) + 8, brought.size(1)});
    EXPECT_THAT(
        text_of({{to_peft_name(embedding), larger}, {to_peft_name(head), larger}}),
        ::testing::AllOf(HasSubstr("got [" + std::to_string(larger.size(0)) + ", "),
                         HasSubstr("need [" + std::to_string(brought.size(0)) + ", "), HasSubstr("resized")));
  }
}

TEST(AdapterFiles, AnAdapterOfWhichNothingMatchesIsNamed) {
  TempFolder folder;
  std::filesystem::copy_file(training("lora_final/adapter_config.json"), folder / "adapter_config.json");
  io::SafetensorsWriter writer(folder / "adapter_model.safetensors",
                               {{"base_model.model.x.lora_A.weight", DType::F32, {1}}});
  const float zero = 0.0F;
  writer.write("base_model.model.x.lora_A.weight", 0, &zero, 4);
  writer.commit();
  const auto model = load_reference_model("llama3", at::kFloat);
  std::string text;
  EXPECT_EQ(code_of([&] { load_adapter(*model, folder.path()); }, &text), "E-MODEL-ADAPTER");
  EXPECT_THAT(text, HasSubstr("no tensor of the adapter belongs to this model"));
}

TEST(AdapterFiles, PickleIsRefused) {
  TempFolder folder;
  io::write_file_atomic(folder / "adapter_model.bin", "x");
  EXPECT_EQ(code_of([&] { open_adapter(folder.path()); }), "E-MODEL-PICKLE");
}

TEST(Merge, EqualsBaseWithAdapterAndPeftsMerge) {
  TempFolder folder;
  const std::string merged = folder / "merged";
  const MergeReport report = merge_adapter(reference_tensors("llama3"), training("lora_final"), merged);
  EXPECT_EQ(report.num_merged, 3 * 7);
  EXPECT_EQ(report.num_replaced, 0);

  const auto model = models::build_model(merged, at::kFloat);
  models::load_weights(*model, io::ModelFiles::open(merged));
  const TensorFile file(training("lora_logits.safetensors"));
  const auto batch = pack_ids(file.get("ids"));
  EXPECT_LT(max_difference(model->logits(batch), file.get("logits_merged")), 1e-4);
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  EXPECT_LT(max_difference(model->named_parameters()[name], file.get("merged." + name)), 1e-6);

  const auto adapted = load_reference_model("llama3", at::kFloat);
  load_adapter(*adapted, training("lora_final"));
  adapted->eval();
  EXPECT_LT(max_difference(model->logits(batch), adapted->logits(batch)), 1e-4);
}

TEST(Merge, WritesAnotherType) {
  TempFolder folder;
  const std::string wide = folder / "wide", narrow = folder / "narrow";
  merge_adapter(reference_tensors("llama3"), training("lora_final"), wide);
  const MergeReport report =
      merge_adapter(reference_tensors("llama3"), training("lora_final"), narrow, false, DType::BF16);
  const io::ModelFiles files = io::ModelFiles::open(narrow);
  EXPECT_EQ(files.total_bytes(), report.total_bytes);
  EXPECT_EQ(models::read_model_config(narrow)->stored_dtype, DType::BF16);
  const TensorFile have(narrow + "/model.safetensors"), want(wide + "/model.safetensors");
  for (const io::TensorInfo* tensor : files.tensors()) {
    EXPECT_EQ(tensor->dtype, DType::BF16) << tensor->name;
    // The merged weight was rounded once, from float64.
    EXPECT_LE(max_difference(have.get(tensor->name), want.get(tensor->name)),
              want.get(tensor->name).abs().max().item<double>() / 256)
        << tensor->name;
  }
}

TEST(Merge, KeepsTheTypesOfTheBaseAndReplacesWholeModules) {
  TempFolder folder;
  const std::string base_folder = reference_folder("mistral");  // its weights are stored in bfloat16
  const auto model = load_reference_model("mistral", at::kDouble);
  LoraOptions options;
  options.rank = 2;
  options.target_modules = {"v_proj"};
  options.modules_to_save = {"lm_head"};
  const LoraTargets targets = apply_lora(*model, options);
  initialise_adapters(*model, 3);
  at::manual_seed(2);
  std::vector<std::pair<std::string, at::Tensor>> values;
  auto parameters = model->named_parameters();
  for (const std::string& name : adapter_parameters(*model, targets)) {
    at::NoGradGuard no_grad;
    parameters[name].add_(at::randn_like(parameters[name]), 0.3);
    values.emplace_back(name, parameters[name]);
  }
  save_adapter(folder / "adapter", *model, options, targets, "base", values);
  io::write_file_atomic(folder / "adapter/tokenizer.json", "{\"from\": \"adapter\"}");
  const MergeReport report =
      merge_adapter(models::folder_tensors(base_folder), folder / "adapter", folder / "merged");
  EXPECT_EQ(report.num_merged, 3);
  EXPECT_EQ(report.num_replaced, 1);

  const TensorFile merged(folder / "merged/model.safetensors"), base(base_folder + "/model.safetensors");
  const std::string v = "model.layers.1.self_attn.v_proj.";
  const at::Tensor want =
      base.get(v + "weight").to(at::kDouble) +
      8.0 * at::matmul(parameters[v + "lora_B.weight"], parameters[v + "lora_A.weight"]).detach();
  EXPECT_TRUE(at::equal(merged.get(v + "weight"), want.to(at::kBFloat16)));
  EXPECT_TRUE(
      at::equal(merged.get("lm_head.weight"), parameters["lm_head.weight"].detach().to(at::kBFloat16)));
  const std::string untouched = "model.layers.1.self_attn.q_proj.weight";
  EXPECT_TRUE(at::equal(merged.get(untouched), base.get(untouched)));
  EXPECT_EQ(io::read_file(folder / "merged/config.json", 1 << 20),
            io::read_file(base_folder + "/config.json", 1 << 20));
  EXPECT_EQ(io::read_file(folder / "merged/tokenizer.json", 1 << 20), "{\"from\": \"adapter\"}");
}

// Merges an adapter with these tokenizer files into a base that has a tokenizer and a template of its own.
// Returns the files of the result.
std::map<std::string, std::string> merged_files(const std::map<std::string, std::string>& adapter_files) {
  const TempFolder folder;
  std::filesystem::copy(reference_folder("llama3"), folder / "base");
  std::filesystem::copy(training("lora_final"), folder / "adapter");
  for (const char* part : {"base", "adapter"})
    std::filesystem::create_directories(folder / part + "/additional_chat_templates");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                           "additional_chat_templates/tool_use.jinja"})
    std::ofstream(folder / "base/" + name) << "{\"of\": \"the base\"}";
  for (const auto& [name, text] : adapter_files) std::ofstream(folder / "adapter/" + name) << text;
  merge_adapter(models::folder_tensors(folder / "base"), folder / "adapter", folder / "merged");
  std::map<std::string, std::string> found;
  for (const char* name :
       {"tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json", "chat_template.jinja",
        "chat_template.json", "additional_chat_templates/tool_use.jinja",
        "additional_chat_templates/rag.jinja"}) {
    const std::string path = folder / "merged/" + name;
    if (io::exists(path)) found[name] = io::read_file(path, 1 << 20);
  }
  return found;
}

TEST(Merge, TheTemplateThatWasTrainedWithStays) {
  using Files = std::map<std::string, std::string>;
  const std::string base = "{\"of\": \"the base\"}", config = "{\"chat_template\": \"trained\"}";
  const std::string of_tools = "additional_chat_templates/tool_use.jinja";
  const Files of_base = {{"tokenizer.json", base},
                         {"tokenizer_config.json", base},
                         {"chat_template.jinja", base},
                         {of_tools, base}};
  EXPECT_EQ(merged_files({}), of_base);
  // A tokenizer of two files replaces the base's, all of it.
  const Files two_files = {{"vocab.json", "{}"}, {"merges.txt", "a b"}, {"tokenizer_config.json", config}};
  EXPECT_EQ(merged_files(two_files), two_files);
  // The adapter brings a template alone.
  Files want = of_base;
  want["chat_template.jinja"] = "trained";
  want.erase(of_tools);
  EXPECT_EQ(merged_files({{"chat_template.jinja", "trained"}}), want);
  // It brings its named templates too.
  want["additional_chat_templates/rag.jinja"] = "trained too";
  EXPECT_EQ(merged_files(
                {{"chat_template.jinja", "trained"}, {"additional_chat_templates/rag.jinja", "trained too"}}),
            want);
  // The adapter brings a template in its settings. The base's file would take precedence, so it is left out.
  want = of_base;
  want["tokenizer_config.json"] = config;
  want.erase("chat_template.jinja");
  want.erase(of_tools);
  EXPECT_EQ(merged_files({{"tokenizer_config.json", config}}), want);
}

// A base whose config.json ties a head that its file has with other values is untied, and its merge says so.
TEST(Merge, AHeadThatDiffersIsNotTiedAgain) {
  const TempFolder folder;
  std::filesystem::copy(reference_folder("llama3"), folder / "base");
  const TensorFile file(reference_folder("llama3") + "/model.safetensors");
  std::map<std::string, at::Tensor> tensors;
  const io::ModelFiles of_base = io::ModelFiles::open(reference_folder("llama3"));
  for (const io::TensorInfo* info : of_base.tensors()) tensors[info->name] = file.get(info->name);
  const auto config_after = [&](double shift) {
    tensors["lm_head.weight"] = tensors.at("model.embed_tokens.weight") + shift;
    std::vector<io::TensorSpec> specs;
    for (const auto& [name, value] : tensors)
      specs.push_back({name, to_dtype(value.scalar_type()), value.sizes().vec()});
    io::SafetensorsWriter writer(folder / "base/model.safetensors", specs);
    for (const auto& [name, value] : tensors)
      writer.write(name, 0, value.const_data_ptr(), static_cast<int64_t>(value.nbytes()));
    writer.commit();
    merge_adapter(models::folder_tensors(folder / "base"), training("lora_final"), folder / "merged",
                  /*overwrites=*/true);
    return json::parse(io::read_file(folder / "merged/config.json", 1 << 20));
  };
  EXPECT_EQ(config_after(0.0).at("tie_word_embeddings"), true);
  EXPECT_EQ(config_after(0.5).at("tie_word_embeddings"), false);
}

// Transformers stops at the end token that the model was trained with.
TEST(Merge, TheModelKnowsTheSpecialTokensOfTheAdapter) {
  const TempFolder folder;
  std::filesystem::copy(reference_folder("llama3"), folder / "base");
  std::filesystem::copy(training("lora_final"), folder / "adapter");
  testing::write_tiny_tokenizer(folder / "base");
  io::write_file_atomic(folder / "base/generation_config.json", "{\"eos_token_id\": 2}");
  // The vocabulary of this model is smaller than that of the tokenizer, whose first tokens are bytes.
  io::write_file_atomic(folder / "adapter/tokenizer_config.json",
                        R"({"eos_token": "A", "pad_token": "B", "bos_token": "<|im_start|>"})");
  merge_adapter(models::folder_tensors(folder / "base"), folder / "adapter", folder / "merged");
  const auto read = [&](const char* name) {
    return json::parse(io::read_file(folder / (std::string("merged/") + name), 1 << 20));
  };
  EXPECT_EQ(read("config.json").at("eos_token_id"), json({65, 2, 5}));
  EXPECT_EQ(read("config.json").at("pad_token_id"), 66);
  EXPECT_EQ(read("config.json").at("bos_token_id"), 1) << "257 is beyond the model's vocabulary";
  EXPECT_EQ(read("generation_config.json").at("eos_token_id"), json({65, 2}));
}

TEST(Merge, RefusesWhatDoesNotFit) {
  TempFolder folder;
  const std::string out = folder / "out", adapter = training("lora_final");
  EXPECT_EQ(code_of([&] { merge_adapter(reference_tensors("qwen3"), adapter, out); }), "E-MODEL-ADAPTER");
  EXPECT_EQ(code_of([&] { merge_adapter(reference_tensors("smollm2"), adapter, out); }), "E-MODEL-ADAPTER");
  EXPECT_EQ(code_of([&] { merge_adapter(reference_tensors("llama3"), adapter, adapter); }),
            "E-CONFIG-OUTPUT-INPUT");
  EXPECT_EQ(code_of([&] { merge_adapter(reference_tensors("llama3"), adapter, reference_folder("llama3")); }),
            "E-CONFIG-OUTPUT-INPUT");
  EXPECT_FALSE(std::filesystem::exists(out)) << "nothing is written before everything is checked";
}

}  // namespace
}  // namespace tessera::peft

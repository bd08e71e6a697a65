// The verb `tessera models`.
#include <algorithm>
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>

#include "tessera/cli/verbs.h"
#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/models/common/base_model.h"
#include "tessera/models/common/load.h"
#include "tessera/models/registry.h"

namespace tessera::cli {
namespace {

void print_line(const std::string& name, const std::string& text) {
  std::printf("%-12s %s\n", name.c_str(), text.c_str());
}

int list_families() {
  std::printf("model_type of config.json, and the architecture of GGUF files that are read and written\n");
  for (const models::Family& family : models::families()) {
    for (const std::string& type : family.model_types) {
      std::vector<std::string> gguf;
      for (const checkpoint::GgufArchitecture& architecture : family.gguf) {
        if (architecture.model_type == type || std::ranges::count(architecture.also_model_types, type) > 0)
          gguf.push_back(architecture.name);
      }
      std::printf("  %-22s %s\n", type.c_str(), join(gguf, ", ").c_str());
    }
  }
  std::printf("\nmultimodal folders whose text part is read\n");
  for (const auto& [type, text_type] : models::whole_model_types())
    std::printf("  %-22s of %s, unless its text_config names another one\n", type.c_str(), text_type.c_str());
  std::printf(
      "\nDecoders are trained in full and by adapters, with packed rows and under every axis of the mesh, "
      "and\n"
      "generate with a cache. Encoders (bert, distilbert, modernbert, roberta) become classifiers of texts "
      "or\n"
      "tokens or masked language models, and encoder-decoders (t5, mt5, umt5) make targets of sources.\n"
      "`tessera models MODEL` tells about one model.\n");
  return 0;
}

std::string describe_sizes(const models::ModelConfig& config) {
  std::string text = std::to_string(config.num_layers) +
                     (config.is_encoder_decoder ? " layers (of both stacks) of " : " layers of ") +
                     group_digits(config.hidden_size) + ", " + std::to_string(config.num_heads) +
                     " heads of " + std::to_string(config.head_dim) + " (" +
                     std::to_string(config.num_kv_heads) + " of keys and values), MLPs of " +
                     group_digits(config.intermediate_size);
  if (config.num_experts > 0)
    text += ", " + std::to_string(config.num_experts) + " experts of which a token takes " +
            std::to_string(config.experts_per_token);
  return text;
}

// Returns the numbers of parameters, all of them and those that a token meets.
std::string count_parameters(const models::CausalLM& model, const models::ModelConfig& config) {
  int64_t total = 0, of_experts = 0, of_tables = 0;
  const nn::ParameterRoles roles = model.parameter_roles();
  for (const auto& item : model.named_parameters()) {
    const auto role = roles.find(item.key());
    const nn::ParameterRole known = role == roles.end() ? nn::ParameterRole::Other : role->second;
    total += item.value().numel();
    if (known == nn::ParameterRole::Expert) of_experts += item.value().numel();
    if (known == nn::ParameterRole::Embedding || known == nn::ParameterRole::LayerTable ||
        known == nn::ParameterRole::OutputHead)
      of_tables += item.value().numel();
  }
  std::string text = group_digits(total) + ", " + group_digits(of_tables) + " of them in tables of tokens" +
                     (config.tie_word_embeddings ? " (embedding and head are one)" : "");
  if (config.num_experts > 0) {
    const int64_t idle = of_experts / config.num_experts * (config.num_experts - config.experts_per_token);
    text += "; a token meets " + group_digits(total - idle);
  }
  return text;
}

int describe_model(const std::string& path) {
  const models::BaseModel base = models::BaseModel::open(path);
  const models::ModelConfig& config = base.config();
  const auto model = models::build_model(config, at::kFloat);
  print_line("model",
             config.model_type + (config.is_text_part ? ", the text part of a multimodal model" : ""));
  print_line("sizes", describe_sizes(config));
  print_line("parameters", count_parameters(*model, config));
  print_line("tokens", "vocabulary of " + group_digits(config.vocab_size) +
                           (config.is_encoder_decoder
                                ? ", relative positions"
                                : ", positions to " + group_digits(config.max_position_embeddings)));
  if (config.reads_far())
    print_line("layers", std::string(config.shares_keys ? "some read the keys and values of others; " : "") +
                             (config.has_layer_inputs ? "each has an embedding of its own; " : "") +
                             "no pipeline");
  if (!config.training_note.empty()) print_line("note", config.training_note);
  try {
    const auto tensors = base.tensors();
    models::check_tensors(*model, *tensors);
    print_line("weights", std::to_string(tensors->tensors().size()) + " tensors, mostly " +
                              std::string(dtype_name(checkpoint::main_dtype(*tensors))) +
                              ": all that the model needs");
  } catch (const Error& error) {
    print_line("weights", error.what());
  }
  print_line("tokenizer", models::BaseModel::has_tokenizer(path) ? "there" : "none");
  if (models::BaseModel::is_gguf(path)) return 0;
  const auto unread = models::unread_config_keys(base.files().config, config.source_file);
  print_line("not read", unread.empty() ? "no key of config.json" : join(unread, ", "));
  return 0;
}

}  // namespace

void add_models(CLI::App& app, CommandLine& line) {
  auto model = std::make_shared<std::string>();
  CLI::App* verb =
      app.add_subcommand("models", "List the families of models, or describe a model and what is read of it");
  line.add_model(*verb, "model", *model, "A Hugging Face model folder, or a GGUF file");
  line.set_action(*verb, [model] { return model->empty() ? list_families() : describe_model(*model); });
}

}  // namespace tessera::cli

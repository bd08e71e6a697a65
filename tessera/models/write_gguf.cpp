#include "tessera/models/write_gguf.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/io/gguf_writer.h"
#include "tessera/models/common/load.h"
#include "tessera/models/registry.h"

namespace tessera::models {
namespace {

namespace fs = std::filesystem;

// The version of ggml's block formats.
constexpr uint32_t kQuantisationVersion = 2;
// A text with all that tokenizers differ in.
constexpr const char* kSample =
    "Hello World! It's 12345.67 + 089, isn't it?  Two  spaces,\ttab\n\n  new\r\n lines...\n"
    "na\u00efve \u00dcber caf\u00e9 \u00bfqu\u00e9? \u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac "
    "\u0420\u0443\u0441\u0441\u043a\u0438\u0439 \u4f60\u597d\u4e16\u754c \u65e5\u672c\u8a9e "
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \U0001f600\U0001f1e9\U0001f1ea "
    "def f(x_1): return {\"a\": [1, 2]}  # HELLO'LL WE'RE <|end|> </s>";

const checkpoint::GgufArchitecture& architecture_of(const Family& family, const ModelConfig& config) {
  for (const checkpoint::GgufArchitecture& architecture : family.gguf) {
    if (architecture.model_type == config.model_type ||
        std::ranges::count(architecture.also_model_types, config.model_type) > 0) {
      return architecture;
    }
  }
  std::vector<std::string> names;
  for (const checkpoint::GgufArchitecture& architecture : gguf_architectures()) {
    names.push_back(architecture.model_type);
    names.insert(names.end(), architecture.also_model_types.begin(), architecture.also_model_types.end());
  }
  throw Error(ErrorKind::Model, "UNSUPPORTED", "models of this type cannot be written as GGUF files")
      .in(config.source_file + ": key 'model_type'")
      .got(config.model_type)
      .need(join(names, ", "));
}

std::string name_of(const std::string& source) {
  const fs::path path = fs::absolute(source).lexically_normal();
  const std::string name = path.filename().empty() ? path.parent_path().filename() : path.stem();
  return name.empty() ? "model" : name;
}

// Reads the written file as any other. Its path, which is not the final one, does not matter to the reader of
// an error, who can do nothing about it.
void check_written(const std::string& path, const text::Tokenizer& tokenizer) {
  const BaseModel model = BaseModel::open(path);
  check_tensors(*build_model(model.config(), at::kFloat), *model.tensors());
  const text::Tokenizer read = BaseModel::tokenizer(path);
  for (const bool closes : {false, true}) {
    const text::EncodeOptions options{.add_special_tokens = closes};
    const std::vector<int32_t> want = tokenizer.encode(kSample, options),
                               have = read.encode(kSample, options);
    const auto [at, other] = std::ranges::mismatch(want, have);
    if (at == want.end() && other == have.end()) continue;
    throw Error(ErrorKind::Model, "TOKENIZER-GGUF",
                "the tokenizer would produce other tokens after conversion to a GGUF file")
        .got("token " + std::to_string(at - want.begin()) + " of the sample is '" +
             (other == have.end() ? "" : read.id_to_token(*other)) + "'")
        .need("'" + (at == want.end() ? "" : tokenizer.id_to_token(*at)) + "'");
  }
}

}  // namespace

GgufReport write_gguf(const std::string& source, const checkpoint::GgufMixture& mixture,
                      const std::string& path) {
  const BaseModel base = BaseModel::open(source);
  const ModelConfig& config = base.config();
  if (config.is_text_part) {
    throw Error(ErrorKind::Model, "UNSUPPORTED",
                "the text part of a multimodal model is not written as a GGUF file")
        .in(config.source_file + ": key 'text_config'")
        .hint("llama.cpp's converter reads the folder that tessera convert or merge writes");
  }
  if (config.classification) {
    throw Error(ErrorKind::Model, "UNSUPPORTED", "a classifier is not written as a GGUF file")
        .in(config.source_file + ": key 'architectures'");
  }
  if (config.is_masked_lm) {
    throw Error(ErrorKind::Model, "UNSUPPORTED", "a masked language model is not written as a GGUF file")
        .in(config.source_file + ": key 'architectures'");
  }
  const Family& family = *find_family(config.model_type);
  const checkpoint::GgufArchitecture& architecture = architecture_of(family, config);
  const auto model = build_model(config, at::kFloat);
  const auto files = base.tensors();
  check_tensors(*model, *files);
  const text::Tokenizer tokenizer = BaseModel::tokenizer(source);

  io::GgufMetadata metadata;
  metadata.add("general.architecture", architecture.name);
  metadata.add("general.type", "model");
  metadata.add("general.name", name_of(source));
  metadata.add("general.file_type", mixture.file_type);
  metadata.add("general.quantization_version", kQuantisationVersion);
  std::vector<float> rope_factors = family.add_gguf_metadata(config, architecture, metadata);
  tokenizer.add_gguf_metadata(config.vocab_size, metadata);
  const checkpoint::GgufExport plan =
      checkpoint::plan_gguf(architecture, state_dict_adapter(*model), *files, mixture, config.num_layers,
                            config.head_dim, std::move(rope_factors));
  io::GgufWriter writer(path, metadata, plan.specs);
  checkpoint::write_gguf_rope(plan, writer);
  check_written(writer.temporary_path(), tokenizer);
  checkpoint::write_gguf_tensors(plan, *files, writer);
  writer.commit();
  return {static_cast<int64_t>(plan.specs.size()), writer.num_bytes()};
}

}  // namespace tessera::models

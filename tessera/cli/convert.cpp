// The verb `tessera convert`.
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include <CLI/CLI.hpp>

#include "tessera/checkpoint/gguf_import.h"
#include "tessera/cli/model_path.h"
#include "tessera/cli/verbs.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/io/file.h"
#include "tessera/io/result_folder.h"
#include "tessera/models/common/base_model.h"
#include "tessera/models/common/load.h"
#include "tessera/models/registry.h"
#include "tessera/text/tokenizer/tokenizer.h"
#include "tessera/train/run/convert_checkpoint.h"

namespace tessera::cli {

namespace {

// Checks that the written folder is a model that loads: its config can be parsed, and its tensors have the
// shapes that it names.
void check_loads(const std::string& folder, const std::string& source) {
  try {
    const models::BaseModel model = models::BaseModel::open(folder);
    models::check_tensors(*models::build_model(model.config(), at::kFloat), *model.tensors());
    (void)models::BaseModel::tokenizer(folder);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Model) throw;
    std::string text = error.what();
    for (size_t at = text.find(folder + "/"); at != std::string::npos; at = text.find(folder + "/")) {
      text.erase(at, folder.size() + 1);
    }
    throw Error(ErrorKind::Model, "GGUF-RESULT", "what the file holds is no model that loads: " + text)
        .in(source);
  }
}

struct Options {
  std::string input, output, dtype, base;
  bool overwrite = false;
};

io::ResultFolder result_of(const Options& options, const char* what) {
  return io::ResultFolder(options.output, {.overwrites = options.overwrite,
                                           .how_to_overwrite = "--overwrite",
                                           .inputs = {{what, options.input}}});
}

std::optional<DType> dtype_of(const Options& options) {
  if (options.dtype.empty()) return std::nullopt;
  return options.dtype == "bf16" ? DType::BF16 : options.dtype == "fp16" ? DType::F16 : DType::F32;
}

void convert_gguf(const Options& options) {
  io::GgufFile file = io::GgufFile::open(options.input);
  const text::Tokenizer tokenizer = text::Tokenizer::from_gguf(file);
  const checkpoint::GgufModel model(std::move(file), models::gguf_architectures());
  const DType dtype = dtype_of(options).value_or(DType::F32);
  io::ResultFolder result = result_of(options, "the GGUF file");
  result.begin();
  const int64_t weight_bytes = checkpoint::gguf_import_bytes(model, dtype);
  int64_t num_bytes = weight_bytes;
  if (__builtin_add_overflow(num_bytes, tokenizer.saved_bytes(), &num_bytes)) num_bytes = INT64_MAX;
  result.require_space(num_bytes);
  checkpoint::import_gguf(model, result.staging(), dtype);
  tokenizer.save(result.staging());
  check_loads(result.staging(), options.input);
  result.commit();
  log::info(model.model_type() + " model with " + std::to_string(model.weights().size()) + " tensors (" +
            format_bytes(weight_bytes) + ") written to " + options.output);
}

void convert_folder(const Options& options) {
  if (!io::exists(io::join_path(options.input, "manifest.json"))) {
    throw Error(ErrorKind::Config, "CONVERT-INPUT", "the folder is no checkpoint: it has no manifest.json")
        .in(options.input)
        .need("a GGUF file, or a checkpoint's folder")
        .hint("a Hugging Face folder is read as it is; writing one in another type is not built yet");
  }
  io::ResultFolder result = result_of(options, "the checkpoint");
  const auto converted = train::convert_checkpoint(options.input, options.base, dtype_of(options), result);
  log::info(std::string(converted.is_adapter ? "adapter" : "model") + " of step " +
            std::to_string(converted.step) + " (" + format_bytes(converted.weight_bytes) + ") written to " +
            options.output);
}

}  // namespace

void add_convert(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand(
      "convert", "Make a Hugging Face folder out of a checkpoint of a run, or out of a GGUF file");
  verb->add_option("input", options->input, "The checkpoint's folder, or the GGUF file")->required();
  verb->add_option("output", options->output, "The folder to write")->required();
  verb->add_option(
          "--dtype", options->dtype,
          "Type of the weights as they are written; by default that of the checkpoint's run, and fp32 for "
          "a GGUF file")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  verb->add_option("--base", options->base,
                   "The base model's folder or GGUF file, where a checkpoint's run had it elsewhere")
      ->transform(model_path());
  verb->add_flag("--overwrite", options->overwrite, "Take the place of a model that the folder holds");
  verb->footer(
      "Writes config.json, the weights, tokenizer.json and the chat template; of a LoRA run the adapter's "
      "folder.");
  verb->callback([options, &action] {
    action = [options] {
      std::error_code ignored;
      if (std::filesystem::is_directory(options->input, ignored)) {
        convert_folder(*options);
      } else {
        convert_gguf(*options);
      }
      return 0;
    };
  });
}

}  // namespace tessera::cli

// The verb `tessera convert`.
#include <memory>
#include <optional>
#include <utility>

#include <CLI/CLI.hpp>

#include "tessera/checkpoint/gguf_export.h"
#include "tessera/checkpoint/gguf_import.h"
#include "tessera/checkpoint/manifest.h"
#include "tessera/checkpoint/rewrite_folder.h"
#include "tessera/cli/verbs.h"
#include "tessera/cli/weight_dtype.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/generation/load_for_inference.h"
#include "tessera/io/file.h"
#include "tessera/io/gguf.h"
#include "tessera/io/output_file.h"
#include "tessera/io/result_folder.h"
#include "tessera/models/common/base_model.h"
#include "tessera/models/common/load.h"
#include "tessera/models/registry.h"
#include "tessera/models/write_gguf.h"
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
    throw Error(ErrorKind::Model, "GGUF-RESULT",
                "the file does not contain a model that can be loaded: " + text)
        .in(source);
  }
}

struct Options {
  std::string input, output, dtype, base;
  bool overwrite = false;

  bool is_to_gguf() const { return output.ends_with(".gguf"); }
};

std::string check_dtype(const std::string& name) {
  if (find_weight_dtype(name) || checkpoint::find_gguf_mixture(name)) return "";
  return "--dtype: unknown type '" + name + "'; fp32, bf16 or fp16, and for a GGUF file one of " +
         checkpoint::gguf_mixture_names();
}

io::ResultFolder result_of(const Options& options, const char* what) {
  return io::ResultFolder(options.output, {.overwrites = options.overwrite,
                                           .how_to_overwrite = "--overwrite",
                                           .inputs = {{what, options.input, /*reads_all=*/true},
                                                      {"the base model", options.base}}});
}

// Returns the type of a folder that is written, if the user gives one.
std::optional<DType> dtype_of(const Options& options) {
  if (options.dtype.empty()) return std::nullopt;
  const auto type = find_weight_dtype(options.dtype);
  if (type) return type;
  throw Error(ErrorKind::Config, "CONVERT-DTYPE",
              "the weights of a Hugging Face folder cannot have this type")
      .got("--dtype " + options.dtype)
      .need("fp32, bf16 or fp16")
      .hint("a GGUF file can have it: choose an output name that ends in .gguf");
}

// Throws unless the file to write is new, or one that may be replaced. Any part of a GGUF model is an input.
void check_output(const Options& options) {
  std::vector<io::ResultInput> inputs;
  if (models::BaseModel::is_gguf(options.input)) {
    for (const std::string& path : io::GgufFile::open(options.input).paths())
      inputs.push_back({"the input", path});
  }
  io::check_output_file(
      {.path = options.output, .named_by = "the output", .inputs = inputs, .overwrites = options.overwrite});
}

checkpoint::GgufMixture mixture_of(const Options& options) {
  if (options.dtype.empty() && models::BaseModel::is_gguf(options.input)) {
    throw Error(ErrorKind::Config, "CONVERT-DTYPE",
                "converting a GGUF file to a GGUF file needs another type")
        .in(options.input)
        .need("--dtype " + checkpoint::gguf_mixture_names());
  }
  const std::optional<DType> type =
      options.dtype.empty() ? checkpoint::main_dtype(*models::BaseModel::open(options.input).tensors())
                            : find_weight_dtype(options.dtype);
  return *checkpoint::find_gguf_mixture(!type                  ? options.dtype
                                        : *type == DType::BF16 ? "BF16"
                                        : *type == DType::F16  ? "F16"
                                                               : "F32");
}

void convert_to_gguf(const Options& options) {
  check_output(options);
  const checkpoint::GgufMixture mixture = mixture_of(options);
  io::make_directories(io::parent_path(options.output));
  const models::GgufReport report = models::write_gguf(options.input, mixture, options.output);
  log::info(std::string(mixture.name) + " file with " + std::to_string(report.num_tensors) + " tensors (" +
            format_bytes(report.num_bytes) + ") written to " + options.output);
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

void convert_checkpoint(const Options& options) {
  io::ResultFolder result = result_of(options, "the checkpoint");
  const auto converted = train::convert_checkpoint(options.input, options.base, dtype_of(options), result);
  log::info(std::string(converted.is_adapter ? "adapter" : "model") + " of step " +
            std::to_string(converted.step) + " (" + format_bytes(converted.weight_bytes) + ") written to " +
            options.output);
}

void convert_folder(const Options& options) {
  const std::optional<DType> dtype = dtype_of(options);
  if (!dtype) {
    throw Error(ErrorKind::Config, "CONVERT-DTYPE",
                "converting a Hugging Face folder to a folder needs another type")
        .in(options.input)
        .need("--dtype fp32, bf16 or fp16")
        .hint(
            "Tessera can use this folder without conversion; to write a GGUF file, choose an output name "
            "that ends in .gguf");
  }
  io::ResultFolder result = result_of(options, "the model");
  const int64_t weight_bytes =
      checkpoint::rewrite_folder(*models::folder_tensors(options.input), *dtype, result);
  log::info("model (" + format_bytes(weight_bytes) + ") written to " + options.output);
}

void convert(const Options& options) {
  const bool is_folder = io::is_folder(options.input);
  const bool is_checkpoint = is_folder && checkpoint::is_checkpoint(options.input);
  if (is_folder && !is_checkpoint && generation::is_adapter(options.input)) {
    throw Error(ErrorKind::Model, "ADAPTER-CONVERT", "the folder contains an adapter, not a model")
        .in(options.input)
        .hint("tessera merge " + options.input + " FOLDER merges it into its base model; convert the result");
  }
  if (is_checkpoint && options.is_to_gguf()) {
    throw Error(ErrorKind::Config, "CONVERT-INPUT",
                "a checkpoint cannot be converted directly to a GGUF file")
        .in(options.input)
        .hint("tessera convert " + options.input + " FOLDER turns it into a model; convert that");
  }
  if (options.is_to_gguf()) return convert_to_gguf(options);
  if (is_checkpoint) return convert_checkpoint(options);
  is_folder ? convert_folder(options) : convert_gguf(options);
}

}  // namespace

void add_convert(CLI::App& app, CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("convert",
                                      "Convert a checkpoint or a GGUF file to a Hugging Face folder, a "
                                      "folder to another data type, or a folder to a GGUF file");
  line.add_model(*verb, "input", options->input, "Folder of a checkpoint or a model, or a GGUF file")
      ->required();
  verb->add_option("output", options->output, "Folder to write, or GGUF file if the name ends in .gguf")
      ->required();
  verb->add_option(
          "--dtype", options->dtype,
          "Data type of the written weights: fp32, bf16 or fp16, and for a GGUF file also Q8_0, Q4_0 or "
          "Q4_K_M. The default is the type of the model; for a checkpoint, the type of the run's result; for "
          "a folder made from a GGUF file, fp32. Required to convert a GGUF file to a GGUF file")
      ->check(CLI::Validator(check_dtype, "TYPE", "type"));
  line.add_model(
      *verb, "--base", options->base,
      "Folder or GGUF file of the base model, if it is no longer where the checkpoint's run found it");
  verb->add_flag("--overwrite", options->overwrite, "Replace a model at the output");
  verb->footer(
      "Writes config.json, the weights, tokenizer.json and the chat template; for a LoRA run, the adapter's "
      "folder.");
  line.set_action(*verb, [options] {
    convert(*options);
    return 0;
  });
}

}  // namespace tessera::cli

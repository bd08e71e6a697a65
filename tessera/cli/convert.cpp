// tessera convert
#include <memory>

#include <CLI/CLI.hpp>

#include "tessera/checkpoint/gguf_import.h"
#include "tessera/cli/verbs.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/data/tokenizer/tokenizer.h"

namespace tessera::cli {

void add_convert(CLI::App& app, Action& action) {
  struct Options {
    std::string input, output, dtype = "fp32";
  };
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("convert", "Make a Hugging Face model folder out of a GGUF file");
  verb->add_option("input", options->input, "The GGUF file")->required();
  verb->add_option("output", options->output, "The folder to write")->required();
  verb->add_option("--dtype", options->dtype, "Type of the weights written")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  verb->footer("Writes config.json, the weights, tokenizer.json and the chat template.");
  verb->callback([options, &action] {
    action = [options] {
      const io::GgufFile file = io::GgufFile::open(options->input);
      const data::Tokenizer tokenizer = data::Tokenizer::from_gguf(file);
      const DType dtype = options->dtype == "bf16"   ? DType::BF16
                          : options->dtype == "fp16" ? DType::F16
                                                     : DType::F32;
      const auto report = checkpoint::import_gguf(file, options->output, dtype);
      tokenizer.save(options->output);
      log::info(report.model_type + " model with " + std::to_string(report.num_tensors) + " tensors (" +
                format_bytes(report.total_bytes) + ") written to " + options->output);
      return 0;
    };
  });
}

}  // namespace tessera::cli

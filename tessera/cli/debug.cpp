// The verbs `tessera debug logits` and `tokenize`; the others have their own files.
#include <cstdio>
#include <memory>
#include <optional>

#include <ATen/ATen.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tessera/cli/adapters.h"
#include "tessera/cli/verbs.h"
#include "tessera/core/error.h"
#include "tessera/device/host_memory.h"
#include "tessera/generation/load_for_inference.h"
#include "tessera/io/file.h"
#include "tessera/io/output_file.h"
#include "tessera/io/safetensors.h"
#include "tessera/models/common/base_model.h"
#include "tessera/ops/plain.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::cli {
namespace {

struct LogitsOptions {
  AdapterOptions adapters;
  std::string model, out, dtype = "fp32", ops = "plain";
  std::vector<int64_t> ids;
  bool overwrite = false;
};

void check_output(LogitsOptions& options) {
  const auto holds_logits = [](std::string_view begin) {
    constexpr size_t kLengthBytes = 8;  // of the header, which stand before it
    return begin.size() > kLengthBytes &&
           begin.substr(kLengthBytes).starts_with("{\"logits\":{\"dtype\":\"F32\"");
  };
  io::check_output_file({.path = options.out,
                         .named_by = "--out",
                         .inputs = {{"the model", options.model}, {"the adapter", options.adapters.folder()}},
                         .is_earlier_output = holds_logits,
                         .overwrites = options.overwrite});
}

void add_logits(CLI::App& debug, CommandLine& line) {
  auto options = std::make_shared<LogitsOptions>();
  CLI::App* verb =
      debug.add_subcommand("logits", "Write a model's logits for token ids to a safetensors file");
  line.add_model(*verb, "--model", options->model, "A Hugging Face model folder, or a GGUF file")->required();
  add_adapter_options(*verb, line, options->adapters, kAdapterHelp);
  verb->add_option("--ids", options->ids, "Token ids, separated by commas")->required()->delimiter(',');
  verb->add_option("--out", options->out,
                   "File to write; it gets one tensor 'logits' [tokens, vocabulary], F32")
      ->required();
  verb->add_flag("--overwrite", options->overwrite, kOverwriteHelp);
  verb->add_option("--dtype", options->dtype, "Compute dtype")->check(CLI::IsMember({"fp32", "fp64"}));
  verb->add_option("--ops", options->ops,
                   "plain: LibTorch's operations, one by one as in Transformers; fused: Tessera's kernels")
      ->check(CLI::IsMember({"plain", "fused"}));
  line.set_action(*verb, [options] {
    check_output(*options);
    const at::NoGradGuard no_grad;
    std::optional<ops::PlainOps> plain;
    if (options->ops == "plain") plain.emplace();
    const auto model = generation::load_for_inference(options->model, options->adapters.folder(),
                                                      options->dtype == "fp64" ? at::kDouble : at::kFloat);
    const auto count = static_cast<int64_t>(options->ids.size());
    nn::TokenBatch batch;
    batch.input_ids = at::tensor(options->ids, on_host(at::kLong));
    batch.position_ids = at::arange(count, on_host(at::kLong));
    batch.document_starts = {0, count};
    const at::Tensor logits = model->logits(batch).to(at::kFloat).contiguous();
    io::SafetensorsWriter writer(options->out, {{"logits", DType::F32, logits.sizes().vec()}});
    const auto bytes = host_span<const char>(logits);
    writer.write("logits", 0, bytes.data(), static_cast<int64_t>(bytes.size()));
    writer.commit();
    return 0;
  });
}

void add_tokenize(CLI::App& debug, CommandLine& line) {
  struct Options {
    std::string model, file;
    bool no_special = false, add_special = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* verb = debug.add_subcommand(
      "tokenize", "Print the token ids of every line of a file, one JSON array per line");
  line.add_model(*verb, "--model", options->model, "A Hugging Face model folder, or a GGUF file")->required();
  verb->add_option("--file", options->file, "The text file")->required();
  verb->add_flag("--plain", options->no_special, "Do not recognise special tokens in the text");
  verb->add_flag("--add-special-tokens", options->add_special,
                 "Add the special tokens that the tokenizer adds (BOS)");
  line.set_action(*verb, [options] {
    constexpr int64_t kMaxFile = int64_t{4} << 30;
    const text::Tokenizer tokenizer = models::BaseModel::tokenizer(options->model);
    const std::string text = io::read_file(options->file, kMaxFile);
    size_t begin = 0;
    while (begin < text.size()) {
      size_t end = text.find('\n', begin);
      if (end == std::string::npos) end = text.size();
      const auto ids = tokenizer.encode(
          std::string_view(text).substr(begin, end - begin),
          {.parse_special = !options->no_special, .add_special_tokens = options->add_special});
      std::string line = "[";
      for (size_t i = 0; i < ids.size(); ++i) {
        if (i > 0) line += ',';
        line += std::to_string(ids[i]);
      }
      line += "]\n";
      std::fwrite(line.data(), 1, line.size(), stdout);
      begin = end + 1;
    }
    return 0;
  });
}

}  // namespace

void add_debug(CLI::App& app, CommandLine& line) {
  CLI::App* debug =
      app.add_subcommand("debug", "Inspect and compare logits, token ids and pipeline schedules");
  debug->require_subcommand(1);
  add_logits(*debug, line);
  add_tokenize(*debug, line);
  add_debug_compare(*debug, line);
  add_debug_schedule(*debug, line);
}

}  // namespace tessera::cli

// The verb `tessera merge`.
#include "tessera/peft/merge.h"

#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "tessera/cli/adapters.h"
#include "tessera/cli/verbs.h"
#include "tessera/cli/weight_dtype.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/generation/load_for_inference.h"
#include "tessera/models/common/base_model.h"
#include "tessera/peft/combine.h"

namespace tessera::cli {

void add_merge(CLI::App& app, CommandLine& line) {
  struct Options {
    AdapterOptions adapters;
    std::vector<std::string> first;
    std::string output, base, dtype;
    bool overwrite = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("merge", "Merge a LoRA adapter into its base model");
  line.add_adapters(*verb, "adapter", options->first, "The adapter's folder (PEFT format)")
      ->expected(1)
      ->required();
  verb->add_option("output", options->output, "Hugging Face folder to write")->required();
  line.add_model(*verb, "--base", options->base,
                 "Folder of the base model, if it is not the one that the adapter's config names",
                 Takes::Folder);
  verb->add_option("--dtype", options->dtype,
                   "Data type of the written weights; by default each weight keeps the type that it has in "
                   "the base model")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  verb->add_flag("--overwrite", options->overwrite, "Replace a model in the output folder");
  add_adapter_options(*verb, line, options->adapters, "Further adapter that is added to the first");
  line.set_action(*verb, [options] {
    options->adapters.texts.insert(options->adapters.texts.begin(), options->first.front());
    const std::string adapter = options->adapters.folder();
    const std::string base =
        !options->base.empty()
            ? options->base
            : generation::adapter_base(peft::read_weighted_adapter(options->first.front()).folder,
                                       "give the base model's folder with --base");
    if (models::BaseModel::is_gguf(base)) {
      throw Error(ErrorKind::Model, "ADAPTER-BASE", "an adapter cannot be merged into a GGUF file")
          .got(base)
          .need("a model folder")
          .hint("convert the file to a folder with tessera convert, and name that folder with --base");
    }
    const auto experts = generation::expert_base(base, adapter);
    const auto report =
        peft::merge_adapter(models::folder_tensors(base), adapter, options->output, options->overwrite,
                            find_weight_dtype(options->dtype), experts ? &*experts : nullptr);
    log::info(std::to_string(report.num_merged) + " weights merged, " + std::to_string(report.num_replaced) +
              " replaced (" + format_bytes(report.total_bytes) + ") written to " + options->output);
    return 0;
  });
}

}  // namespace tessera::cli

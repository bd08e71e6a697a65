// The verb `tessera upload FOLDER ORG/NAME`.
#include "tessera/hub/upload.h"

#include <memory>

#include <CLI/CLI.hpp>

#include "tessera/cli/verbs.h"

namespace tessera::cli {

void add_upload(CLI::App& app, CommandLine& line) {
  struct Options {
    std::string folder, repository, revision;
    bool is_private = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("upload", "Upload a model or an adapter to the Hugging Face hub");
  verb->add_option("folder", options->folder, "The folder of a result, a model or an adapter")
      ->required()
      ->check(CLI::ExistingDirectory);
  verb->add_option("repository", options->repository,
                   "The repository: org/name. It is made if it is not there")
      ->required();
  verb->add_flag("--private", options->is_private,
                 "Make a repository that others do not see; by default the owner's account decides");
  verb->add_option("--revision", options->revision, "The branch; by default main");
  verb->footer(
      "Weights, configs, tokenizer, README.md and a licence are sent, in one commit; checkpoints, logs and\n"
      "recipe.yaml stay. HF_TOKEN, or hf auth login, says who uploads. Files that the hub has already are\n"
      "not sent again, so the same command goes on after an interruption. See docs/hub.md.");
  line.set_action(*verb, [options] {
    hub::UploadTarget target{options->repository, options->revision};
    if (options->is_private) target.is_private = true;
    hub::check_upload(target);
    std::vector<hub::LocalFile> files = hub::files_to_upload(options->folder);
    hub::prepare_upload(target);
    std::atomic<bool> stop = false;
    hub::upload(std::move(files), target, stop);
    return 0;
  });
}

}  // namespace tessera::cli

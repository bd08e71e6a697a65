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
  verb->add_option("folder", options->folder, "Folder of a result, a model or an adapter")
      ->required()
      ->check(CLI::ExistingDirectory);
  verb->add_option("repository", options->repository,
                   "Repository, as org/name; it is created if it does not exist")
      ->required();
  verb->add_flag("--private", options->is_private,
                 "Create a private repository; the default is set by the owner's account");
  verb->add_option("--revision", options->revision, "Branch (default main)");
  verb->footer(
      "One commit contains the weights, configs, tokenizer, README.md and a licence, but no checkpoints, "
      "logs\n"
      "or recipe.yaml. The access token is HF_TOKEN, or that of hf auth login. Files that the hub already "
      "has\n"
      "are not sent again, so the same command continues an interrupted upload. See docs/hub.md.");
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

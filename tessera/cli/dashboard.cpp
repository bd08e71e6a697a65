// The verb `tessera dashboard`.
#include "tessera/serving/dashboard.h"

#include <memory>

#include <CLI/CLI.hpp>

#include "tessera/cli/listening.h"
#include "tessera/cli/report.h"
#include "tessera/cli/verbs.h"
#include "tessera/core/log.h"

namespace tessera::cli {
namespace {

struct Options {
  std::vector<std::string> folders;
  ListenOptions listen;
  std::string save;
  bool overwrite = false;
};

int run_dashboard(const Options& options) {
  if (!options.save.empty()) return write_report(options.folders, options.save, "--save", options.overwrite);
  const serving::ApiKeys keys = read_keys(options.listen);
  serving::Dashboard dashboard(options.folders, keys);
  const StopSignals signals;
  const serving::HttpServer server(
      options.listen.http, [&](const serving::HttpRequest& head) { return dashboard.check(head); },
      [&](const std::shared_ptr<serving::HttpExchange>& exchange) { dashboard.handle(exchange); });
  warn_of_open_door(options.listen, keys);
  const size_t count = dashboard.runs().size();
  log::info("showing " + std::to_string(count) + (count == 1 ? " run" : " runs") + " at " +
            address_of(options.listen, server) + "/ until Ctrl-C");
  StopSignals::wait();
  return 0;
}

}  // namespace

void add_dashboard(CLI::App& app, CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("dashboard", "Follow running and finished runs in a browser");
  verb->add_option("folders", options->folders,
                   "Output folders of runs, or folders that contain such folders, also of later runs")
      ->required();
  add_listen_options(*verb, options->listen, 8001);
  CLI::Option* save = verb->add_option(
      "--save", options->save, "Write one HTML page that needs no server instead, as tessera report does");
  verb->add_flag("--overwrite", options->overwrite, kOverwriteHelp)->needs(save);
  verb->footer(
      "The page shows losses, learning rate, speed, memory, the time of a step by section, samples, "
      "checkpoints "
      "and\nwarnings of the runs, and grows as they write. It needs no network but this server, and no "
      "model.\n"
      "Routes: /, /runs, /runs/N/metrics, /runs/N/samples, /runs/N/recipe, /health.\nExample:\n  tessera "
      "dashboard outputs "
      "--port 8001\n  curl http://127.0.0.1:8001/runs");
  line.set_action(*verb, [options] { return run_dashboard(*options); });
}

}  // namespace tessera::cli

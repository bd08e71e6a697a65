// The routes of the server that shows how trainings are doing.
//
//   GET /                 the page, which follows the runs by the other routes
//   GET /runs             {"runs": [{"id", "name", "state", "step", "steps", "seconds_left", "quiet_s",
//                         "bytes", "sample_bytes", "checkpoints", "has_hung"}]}; what is not known is null
//   GET /runs/N/metrics   lines of metrics.jsonl: {"begin", "next", "mark", "size", "lines"}.
//   ?after=NEXT&mark=MARK
//                         of an earlier reply asks for what has come since; if the run has begun anew, the
//                         reply begins at 0. A reply holds 1 MiB of lines at most
//   GET /runs/N/samples   lines of samples.jsonl, in the same form
//   GET /runs/N/recipe    the text of its recipe
//   GET /health           {"status": "ok"}
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/report/run_watch.h"
#include "tessera/serving/api_keys.h"
#include "tessera/serving/http_server.h"

namespace tessera::serving {

// A HttpServer calls check() and handle() from its thread, on which the replies are made: each reads 1 MiB of
// files or so.
class Dashboard {
 public:
  // Throws what RunWatch throws.
  explicit Dashboard(const std::vector<std::string>& folders, ApiKeys keys = {});

  std::optional<HttpReply> check(const HttpRequest& head) const;
  void handle(const std::shared_ptr<HttpExchange>& exchange);
  const report::RunWatch& runs() const { return runs_; }

 private:
  HttpReply answer(const HttpRequest& request);
  HttpReply list();
  HttpReply of_run(const std::string& path, const std::string& query) const;

  report::RunWatch runs_;
  const ApiKeys keys_;
};

}  // namespace tessera::serving

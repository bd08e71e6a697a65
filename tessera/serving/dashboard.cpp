#include "tessera/serving/dashboard.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/core/unix_time.h"
#include "tessera/core/utf8.h"
#include "tessera/report/dashboard_page.h"
#include "tessera/report/metrics_piece.h"
#include "tessera/report/run_folders.h"
#include "tessera/serving/api_error.h"
#include "tessera/serving/browser_page.h"

namespace tessera::serving {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kRuns = "/runs";

HttpReply reply_of(const ApiError& error) { return {error.status(), error.body()}; }

HttpReply reply_of(const Json& json) {
  return {200,
          json.dump(-1, ' ', false, Json::error_handler_t::replace),
          "application/json",
          {{"X-Content-Type-Options", "nosniff"}, {"Cache-Control", "no-store"}}};
}

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = error == std::errc() && end == text.data() + text.size() && number >= 0;
  return is_whole ? std::optional(number) : std::nullopt;
}

// Returns the value of a name in a query whose values need no escapes.
std::string value_in(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const size_t equals = pair.find('=');
    if (equals != std::string_view::npos && pair.substr(0, equals) == name)
      return std::string(pair.substr(equals + 1));
  }
  return "";
}

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

HttpReply lines_of(const std::string& path, const std::string& query) {
  report::MetricsPlace after;
  if (const std::string given = value_in(query, "after"); !given.empty()) {
    const auto offset = number_of<int64_t>(given);
    if (!offset) throw ApiError::bad("a number of bytes is needed", "after");
    after = {*offset, value_in(query, "mark")};
  }
  const report::MetricsPiece piece = report::read_metrics_piece(path, after);
  return reply_of(Json{{"begin", piece.begin},
                       {"next", piece.next.offset},
                       {"mark", piece.next.mark},
                       {"size", piece.size},
                       {"lines", piece.lines}});
}

}  // namespace

Dashboard::Dashboard(const std::vector<std::string>& folders, ApiKeys keys)
    : runs_(folders), keys_(std::move(keys)) {}

std::optional<HttpReply> Dashboard::check(const HttpRequest& head) const {
  // The page holds nothing of the runs: it asks for the key that its requests need.
  const bool is_open = head.path == "/" || head.path == "/health";
  if (!is_open && !keys_.allow(head.header("authorization"), head.header("x-api-key")))
    return reply_of(ApiError::no_key());
  if (!is_open && head.path != kRuns && !head.path.starts_with(std::string(kRuns) + "/"))
    return reply_of(ApiError::not_found("there is no route " + head.method + " " + head.path));
  if (head.method == "GET" || head.method == "HEAD") return std::nullopt;
  HttpReply reply = reply_of(ApiError(405, "invalid_request_error", head.path + " takes GET"));
  reply.headers.emplace_back("Allow", "GET");
  return reply;
}

void Dashboard::handle(const std::shared_ptr<HttpExchange>& exchange) {
  HttpReply reply;
  try {
    reply = answer(exchange->request());
  } catch (const ApiError& error) {
    reply = reply_of(error);
  } catch (const Error& error) {
    // The files of a run may be gone for a moment, when its result takes their place.
    reply = reply_of(ApiError::not_found("the run cannot be read now: " + std::string(error.code())));
  } catch (const std::exception& error) {
    log::warn("a request to the dashboard failed: " + first_line(error.what()));
    reply = reply_of(ApiError::failed("the request failed"));
  }
  exchange->reply(std::move(reply));
}

HttpReply Dashboard::answer(const HttpRequest& request) {
  if (request.path == "/") return browser_page(report::dashboard_page());
  if (request.path == "/health") return reply_of(Json{{"status", "ok"}});
  if (request.path == kRuns) return list();
  return of_run(request.path.substr(kRuns.size() + 1), request.query);
}

HttpReply Dashboard::list() {
  runs_.look();
  const std::vector<std::string> names = runs_.names();
  Json runs = Json::array();
  for (size_t i = 0; i < runs_.size(); ++i) {
    Json run = {{"id", i}, {"name", names[i]}};
    try {
      const report::RunStatus status = runs_.status(i, unix_time_s());
      run.update(Json{{"state", report::phase_name(status.phase)},
                      {"step", status.step},
                      {"steps", or_null(status.steps)},
                      {"seconds_left", or_null(status.seconds_left)},
                      {"quiet_s", status.quiet_s},
                      {"bytes", status.bytes},
                      {"sample_bytes", status.sample_bytes},
                      {"checkpoints", status.checkpoints},
                      {"has_hung", status.has_hung}});
    } catch (const Error&) {
      run["state"] = "gone";
    }
    runs.push_back(std::move(run));
  }
  return reply_of(Json{{"runs", std::move(runs)}});
}

// `path` is "N/metrics", "N/samples" or "N/recipe".
HttpReply Dashboard::of_run(const std::string& path, const std::string& query) const {
  const size_t slash = path.find('/');
  const auto run = number_of<size_t>(std::string_view(path).substr(0, slash));
  const std::string what = slash == std::string::npos ? "" : path.substr(slash + 1);
  if (!run || *run >= runs_.size()) throw ApiError::not_found("there is no such run");
  if (what == "metrics") return lines_of(runs_.file(*run, report::kMetrics), query);
  if (what == "samples") return lines_of(runs_.file(*run, report::kSamples), query);
  if (what != "recipe") throw ApiError::not_found("a run has metrics, samples and a recipe");
  return {200,
          repair_utf8(runs_.recipe(*run)),
          "text/plain; charset=utf-8",
          {{"X-Content-Type-Options", "nosniff"}, {"Cache-Control", "no-store"}}};
}

}  // namespace tessera::serving

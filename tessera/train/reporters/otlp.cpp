#include "tessera/train/reporters/otlp.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/core/host_name.h"
#include "tessera/core/unix_time.h"
#include "tessera/core/version.h"

namespace tessera::train {
namespace {

using Json = nlohmann::ordered_json;

Json attribute(const char* key, const std::string& value) {
  return {{"key", key}, {"value", {{"stringValue", value}}}};
}

// JSON has no numbers for NaN and infinity; protobuf's form of JSON has names for them.
Json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "NaN" : value > 0.0 ? "Infinity" : "-Infinity";
}

}  // namespace

std::string otlp_line(const Scalars& scalars, int64_t step, const std::string& run, int64_t unix_ns) {
  std::map<std::string, Json> gauges;
  for (const auto& [name, value] : scalars) {
    const ScalarName names = split_name(name);
    std::string metric = "tessera." + names.metric;
    std::ranges::replace(metric, '/', '.');
    Json point = {{"timeUnixNano", std::to_string(unix_ns)}, {"asDouble", number(value)}};
    point["attributes"] = Json::array({{{"key", "step"}, {"value", {{"intValue", std::to_string(step)}}}}});
    if (names.label) point["attributes"].push_back(attribute(names.label->key, names.label->value));
    gauges[metric]["dataPoints"].push_back(std::move(point));
  }
  Json metrics = Json::array();
  for (auto& [name, gauge] : gauges) metrics.push_back({{"name", name}, {"gauge", std::move(gauge)}});
  Json resource;
  resource["attributes"] = {attribute("service.name", "tessera"),
                            attribute("service.version", program_version()),
                            attribute("host.name", host_name()), attribute("tessera.run", run)};
  Json scope = {{"scope", {{"name", "tessera"}}}, {"metrics", std::move(metrics)}};
  Json of_resource = {{"resource", std::move(resource)}};
  of_resource["scopeMetrics"] = Json::array({std::move(scope)});
  Json request;
  request["resourceMetrics"] = Json::array({std::move(of_resource)});
  return request.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

OtlpFile::OtlpFile(RunLogs& logs, std::string run)
    : logs_(logs), file_(logs.open("otel/metrics.jsonl", "otel")), run_(std::move(run)) {}

void OtlpFile::on_line(const StepMetrics& line) {
  logs_.append(file_, otlp_line(scalars_of(line), line.step, run_, unix_time_ns()));
}

void OtlpFile::on_evaluation(int64_t step, const Evaluated& evaluated) {
  logs_.append(file_, otlp_line(scalars_of_evaluation(evaluated), step, run_, unix_time_ns()));
}

}  // namespace tessera::train

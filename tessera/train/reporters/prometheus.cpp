#include "tessera/train/reporters/prometheus.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/io/file.h"

namespace tessera::train {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string printed(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

}  // namespace

std::string prometheus_text(const Scalars& scalars, const std::string& run) {
  std::map<std::string, std::string> samples;  // by metric, whose type is told once
  for (const auto& [name, value] : scalars) {
    const ScalarName names = split_name(name);
    std::string metric = "tessera_" + names.metric;
    const auto is_other = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; };
    std::replace_if(metric.begin(), metric.end(), is_other, '_');
    std::string labels = "run=" + quoted(run);
    if (names.label) labels += std::string(",") + names.label->key + "=" + quoted(names.label->value);
    samples[metric] += metric + "{" + labels + "} " + printed(value) + "\n";
  }
  std::string text;
  for (const auto& [metric, lines] : samples) text += "# TYPE " + metric + " gauge\n" + lines;
  return text;
}

void PrometheusFile::on_line(const StepMetrics& line) {
  step_ = line.step;
  train_ = scalars_of(line);
  write();
}

void PrometheusFile::on_evaluation(int64_t step, const Evaluated& evaluated) {
  step_ = step;
  evaluation_ = scalars_of_evaluation(evaluated);
  write();
}

void PrometheusFile::write() {
  Scalars all = train_;
  all.insert(all.end(), evaluation_.begin(), evaluation_.end());
  all.emplace_back("train/step", static_cast<double>(step_));
  try {
    io::write_file_atomic(path_, prometheus_text(all, run_));
  } catch (const Error& error) {
    if (!has_warned_) log::warn(std::string(error.what()) + "; training continues");
    has_warned_ = true;
  }
}

}  // namespace tessera::train

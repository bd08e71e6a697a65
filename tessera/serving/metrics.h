// Counts of a server, in the text form that Prometheus reads.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/serving/engine.h"

namespace tessera::serving {

// Counts values in buckets with the given upper ends, as a histogram of Prometheus does.
class Histogram {
 public:
  explicit Histogram(std::vector<double> ends) : ends_(std::move(ends)), counts_(ends_.size() + 1) {}
  void add(double value);
  // Returns its lines, without help and type.
  std::string lines(const std::string& name, const std::string& labels) const;

 private:
  std::vector<double> ends_;
  std::vector<int64_t> counts_;  // one for each end; the last counts values above all ends
  double sum_ = 0.0;
};

// The facts of one answer that has ended; times in seconds, negative where they mean nothing.
struct AnswerFacts {
  std::string reason;  // stop, length, abort or error
  int64_t prompt_tokens = 0, new_tokens = 0;
  double queue_and_prefill_s = -1, decode_s = -1, whole_s = 0;
};

// The names are those of vLLM under the prefix tessera:, so that dashboards can be copied. All functions may
// be called from any thread.
class Metrics {
 public:
  void count_answer(const AnswerFacts& facts);
  void count_token_gap(double s);
  // Counts a request that was refused since too many wait.
  void count_rejection();
  std::string text(const std::string& model, const EngineState& state) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, int64_t> ended_;  // by reason
  int64_t rejected_ = 0;
  Histogram first_token_, token_gap_, whole_, per_token_, decode_, prompt_tokens_, new_tokens_;

 public:
  Metrics();
};

}  // namespace tessera::serving

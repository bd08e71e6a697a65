#include "tessera/serving/metrics.h"

#include <algorithm>
#include <sstream>

namespace tessera::serving {
namespace {

const std::vector<double> kFirstToken = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                         1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const std::vector<double> kGap = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                  .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
const std::vector<double> kWhole = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                    30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const std::vector<double> kTokens = {1,   2,    5,    10,   20,    50,    100,   200,
                                     500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

std::string number(double value) {
  std::ostringstream text;
  text.precision(15);
  text << value;
  return text.str();
}

// Writes a label's value as Prometheus reads it.
std::string quoted(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? ' ' : c;
  }
  return text + '"';
}

// Collects the lines of the page.
class Page {
 public:
  explicit Page(const std::string& model) : labels_("model_name=" + quoted(model) + ",engine=\"0\"") {}

  void head(const std::string& name, const char* type, const char* help) {
    text_ << "# HELP tessera:" << name << ' ' << help << "\n# TYPE tessera:" << name << ' ' << type << '\n';
  }
  void value(const std::string& name, double value, const std::string& more = "") {
    text_ << "tessera:" << name << '{' << labels_ << more << "} " << number(value) << '\n';
  }
  void gauge(const std::string& name, double value_, const char* help) {
    head(name, "gauge", help);
    value(name, value_);
  }
  void counter(const std::string& name, int64_t count, const char* help) {
    head(name, "counter", help);
    value(name, static_cast<double>(count));
  }
  void histogram(const std::string& name, const Histogram& histogram, const char* help) {
    head(name, "histogram", help);
    text_ << histogram.lines("tessera:" + name, labels_);
  }
  std::string text() const { return text_.str(); }

 private:
  std::string labels_;
  std::ostringstream text_;
};

}  // namespace

void Histogram::add(double value) {
  const auto end = std::ranges::lower_bound(ends_, value);
  ++counts_[static_cast<size_t>(end - ends_.begin())];
  sum_ += value;
}

std::string Histogram::lines(const std::string& name, const std::string& labels) const {
  std::string text;
  int64_t count = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    count += counts_[i];
    text += name + "_bucket{" + labels + ",le=\"" + (i < ends_.size() ? number(ends_[i]) : "+Inf") + "\"} " +
            std::to_string(count) + "\n";
  }
  return text + name + "_sum{" + labels + "} " + number(sum_) + "\n" + name + "_count{" + labels + "} " +
         std::to_string(count) + "\n";
}

Metrics::Metrics()
    : first_token_(kFirstToken),
      token_gap_(kGap),
      whole_(kWhole),
      per_token_(kGap),
      decode_(kWhole),
      prompt_tokens_(kTokens),
      new_tokens_(kTokens) {}

void Metrics::count_answer(const AnswerFacts& facts) {
  const std::lock_guard lock(mutex_);
  ++ended_[facts.reason];
  prompt_tokens_.add(static_cast<double>(facts.prompt_tokens));
  new_tokens_.add(static_cast<double>(facts.new_tokens));
  whole_.add(facts.whole_s);
  if (facts.queue_and_prefill_s < 0) return;
  first_token_.add(facts.queue_and_prefill_s);
  decode_.add(facts.decode_s);
  if (facts.new_tokens > 1) per_token_.add(facts.decode_s / static_cast<double>(facts.new_tokens - 1));
}

void Metrics::count_token_gap(double s) {
  const std::lock_guard lock(mutex_);
  token_gap_.add(s);
}

void Metrics::count_rejection() {
  const std::lock_guard lock(mutex_);
  ++rejected_;
}

std::string Metrics::text(const std::string& model, const EngineState& state) const {
  const std::lock_guard lock(mutex_);
  Page page(model);
  page.gauge("num_requests_running", static_cast<double>(state.running), "Answers that are worked on.");
  page.gauge("num_requests_waiting", static_cast<double>(state.waiting), "Answers that wait for a place.");
  page.gauge("kv_cache_usage_perc", state.cache_usage, "Part of the cache in use, 0 to 1.");
  page.counter("prompt_tokens_total", state.prompt_tokens, "Tokens of prompts that were read.");
  page.counter("generation_tokens_total", state.new_tokens, "Tokens that were generated.");
  page.counter("prefix_cache_queries_total", state.looked_up_tokens,
               "Tokens of prompts that were looked up in the prefix cache.");
  page.counter("prefix_cache_hits_total", state.found_tokens, "Tokens of prompts that the prefix cache had.");
  page.counter("prompt_tokens_cached_total", state.found_tokens,
               "Tokens of prompts that were not read since the cache had them.");
  page.counter("num_preemptions_total", state.preemptions, "Answers that were put back to be made again.");
  page.counter("spec_decode_num_drafts_total", state.drafts, "Drafts of several tokens that were checked.");
  page.counter("spec_decode_num_draft_tokens_total", state.drafted_tokens, "Tokens of these drafts.");
  page.counter("spec_decode_num_accepted_tokens_total", state.accepted_tokens,
               "Tokens of drafts that became tokens of answers.");
  page.counter("admission_rejections_total", rejected_, "Requests refused because too many were waiting.");
  page.head("request_success_total", "counter", "Answers that have ended, by their reason.");
  for (const char* reason : {"stop", "tool_calls", "length", "abort", "error"}) {
    const auto found = ended_.find(reason);
    page.value("request_success_total", found == ended_.end() ? 0.0 : static_cast<double>(found->second),
               std::string(",finished_reason=\"") + reason + '"');
  }
  page.histogram("time_to_first_token_seconds", first_token_, "From the request to its first token.");
  page.histogram("inter_token_latency_seconds", token_gap_, "Between two tokens of an answer.");
  page.histogram("request_time_per_output_token_seconds", per_token_, "Mean time of a token of an answer.");
  page.histogram("e2e_request_latency_seconds", whole_, "From the request to the end of its answer.");
  page.histogram("request_decode_time_seconds", decode_, "From the first token to the last.");
  page.histogram("request_prompt_tokens", prompt_tokens_, "Tokens of a prompt.");
  page.histogram("request_generation_tokens", new_tokens_, "Tokens of an answer.");
  return page.text();
}

}  // namespace tessera::serving

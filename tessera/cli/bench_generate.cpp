// The verb `tessera bench generate`.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tessera/cli/answering.h"
#include "tessera/cli/cache_option.h"
#include "tessera/cli/compute_options.h"
#include "tessera/cli/verbs.h"
#include "tessera/core/median.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/rng.h"
#include "tessera/core/strings.h"
#include "tessera/device/device_event.h"
#include "tessera/generation/generate.h"
#include "tessera/generation/inference_ranks.h"
#include "tessera/generation/load_for_inference.h"
#include "tessera/nn/embedding.h"
#include "tessera/ops/read_only.h"

namespace tessera::cli {
namespace {

struct Options {
  std::string model;
  ComputeOptions compute;
  RankOptions ranks;
  int64_t batch = 1, prompt_tokens = 64, new_tokens = 128;
  generation::SamplingOptions sampling;
  generation::CacheType cache_type = generation::CacheType::Model;
  bool as_json = false;
};

struct Result {
  generation::GenerationTimes times;
  double step_s_median = 0.0, step_bytes = 0.0, total_s = 0.0, bytes_per_token = 0.0, read_gb_s = 0.0;
  int64_t load_rss_bytes = 0, peak_rss_bytes = 0;
  std::vector<int64_t> prompt, ids;  // those of the first sequence

  double tokens_per_s() const {
    return times.decode_s > 0.0 ? static_cast<double>(times.decode_tokens) / times.decode_s : 0.0;
  }
  double prefill_tokens_per_s() const { return static_cast<double>(times.prefill_tokens) / times.prefill_s; }
  double bandwidth_gb_s() const { return bytes_per_token * tokens_per_s() * 1e-9; }
  // Compares medians, since other work on the machine comes in bursts.
  double share() const { return step_bytes * 1e-9 / (step_s_median * read_gb_s); }
};

// Returns random ids that are the same for any batch size and on any machine.
std::vector<int64_t> random_prompt(int64_t sequence, const Options& options, int64_t vocab_size) {
  const CounterRng rng(0, stream_of("bench.generate"), static_cast<uint64_t>(sequence));
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < options.prompt_tokens; ++i) {
    ids.push_back(
        static_cast<int64_t>(rng.below(static_cast<uint64_t>(i), static_cast<uint64_t>(vocab_size))));
  }
  return ids;
}

// Returns the bytes that a decode step must read for each of its tokens: every weight once (next to nothing
// of an embedding that is not also the output projection), and each sequence's keys and values at their mean
// length.
double bytes_per_token(const models::CausalLM& model, const Options& options) {
  double weights = 0.0;
  for (const at::Tensor& parameter : model.parameters()) weights += static_cast<double>(parameter.nbytes());
  for (const auto& module : model.modules(/*include_self=*/false)) {
    const auto* table = dynamic_cast<const nn::Embedding*>(module.get());
    const bool is_lookup = table != nullptr && !table->weight.is_same(model.head().weight());
    if (is_lookup) weights -= static_cast<double>(table->weight.nbytes());
  }
  const nn::KvCacheOptions cache = generation::cache_options(model, options.cache_type);
  const double per_token = static_cast<double>(cache.elements_before(cache.num_layers)) /
                           static_cast<double>(nn::KvCache::kPageTokens) *
                           static_cast<double>(c10::elementSize(cache.dtype));
  const double mean_length =
      static_cast<double>(options.prompt_tokens) + static_cast<double>(options.new_tokens) / 2.0;
  return weights / static_cast<double>(options.batch) + per_token * mean_length;
}

// Reads all weights and does nothing else; returns the rate in GB/s.
double read_all(const std::vector<at::Tensor>& weights) {
  double bytes = 0.0;
  const Timer timer;
  for (const at::Tensor& weight : weights) {
    ops::read_only(weight);
    bytes += static_cast<double>(weight.nbytes());
  }
  DeviceEvent is_read(weights.front().device());
  is_read.record();
  is_read.synchronize();
  return bytes / timer.seconds() * 1e-9;
}

// Returns the times of all copies of the model together. Collective over them.
generation::GenerationTimes joined(const generation::GenerationTimes& own, comm::Communicator& copies) {
  generation::GenerationTimes all;
  for (const std::string& bytes :
       copies.all_gather_string({reinterpret_cast<const char*>(&own), sizeof own})) {
    generation::GenerationTimes times;
    std::memcpy(&times, bytes.data(), sizeof times);
    all.join(times);
  }
  return all;
}

Result measure(const Options& options, const generation::InferenceRank& rank) {
  comm::Communicator& copies = *rank.mesh().group(parallel::kAxisDp);
  const auto model =
      generation::load_for_inference(options.model, "", options.compute.resolved(), rank.mesh());
  Result result;
  result.load_rss_bytes = current_rss_bytes();
  const Timer timer;
  generation::Generator generator(*model, {.max_batch = options.batch, .cache_type = options.cache_type});
  std::vector<int64_t> requests;
  for (int64_t i = 0; i < options.batch; ++i) {
    const int64_t sequence = i * copies.size() + copies.rank();
    generation::GenerationRequest request{random_prompt(sequence, options, model->config().vocab_size), {}};
    if (i == 0) result.prompt = request.prompt;
    request.options.max_new_tokens = options.new_tokens;
    request.options.stop_ids = {-1};  // no id ends an answer
    request.options.sampling = options.sampling;
    request.options.sampling.sequence = static_cast<uint64_t>(sequence);
    requests.push_back(generator.add(std::move(request)));
  }
  // Decoding and reading take turns, so that other work on the machine disturbs both alike.
  std::vector<double> reads, steps_s;
  double reading_s = 0.0, decode_s = 0.0;
  const std::vector<at::Tensor> weights = model->parameters();
  const int64_t steps_between = std::max<int64_t>(1, options.new_tokens / 8);
  for (int64_t steps = 1; generator.step(); ++steps) {
    steps_s.push_back(generator.times().decode_s - decode_s);
    decode_s = generator.times().decode_s;
    if (steps % steps_between != 0) continue;
    const Timer reading;
    reads.push_back(read_all(weights));
    reading_s += reading.seconds();
  }
  result.total_s = timer.seconds() - reading_s;
  result.read_gb_s = median(reads);
  result.step_s_median = median(steps_s);
  result.times = joined(generator.times(), copies);
  result.ids = generator.take(requests.front()).value().token_ids;
  result.bytes_per_token = bytes_per_token(*model, options);
  result.step_bytes = result.bytes_per_token * static_cast<double>(options.batch);
  result.peak_rss_bytes = peak_rss_bytes();
  return result;
}

void print_table(const Result& r) {
  std::printf("decode          %.1f tokens/s, all sequences\n", r.tokens_per_s());
  std::printf("prefill         %.3f s (%.1f tokens/s)\n", r.times.prefill_s, r.prefill_tokens_per_s());
  std::printf("total           %.3f s\n", r.total_s);
  std::printf("read            %s a token, %.1f GB/s\n",
              format_bytes(static_cast<int64_t>(r.bytes_per_token)).c_str(), r.bandwidth_gb_s());
  std::printf("memory gives    %.1f GB/s, of which decoding reaches %.0f%%\n", r.read_gb_s,
              100.0 * r.share());
  std::printf("peak memory     %s (%s with the model loaded)\n", format_bytes(r.peak_rss_bytes).c_str(),
              format_bytes(r.load_rss_bytes).c_str());
}

void print_json(const Result& r, const Options& options, const ParallelDims& dims) {
  const nlohmann::ordered_json line = {{"batch", options.batch},
                                       {"prompt_tokens", options.prompt_tokens},
                                       {"new_tokens", options.new_tokens},
                                       {"dtype", options.compute.dtype},
                                       {"temperature", options.sampling.temperature},
                                       {"dp_replicate_size", dims.dp_replicate},
                                       {"tensor_parallel_size", dims.tp},
                                       {"pipeline_parallel_size", dims.pp},
                                       {"tokens_per_s", r.tokens_per_s()},
                                       {"prefill_s", r.times.prefill_s},
                                       {"prefill_tokens_per_s", r.prefill_tokens_per_s()},
                                       {"decode_s", r.times.decode_s},
                                       {"step_s_median", r.step_s_median},
                                       {"total_s", r.total_s},
                                       {"peak_rss_bytes", r.peak_rss_bytes},
                                       {"load_rss_bytes", r.load_rss_bytes},
                                       {"bytes_per_token_read", r.bytes_per_token},
                                       {"bandwidth_gb_s", r.bandwidth_gb_s()},
                                       {"read_gb_s", r.read_gb_s},
                                       {"share_of_bandwidth", r.share()},
                                       {"prompt", r.prompt},
                                       {"ids", r.ids}};
  std::printf("%s\n", line.dump().c_str());
}

}  // namespace

void add_bench_generate(CLI::App& bench, CommandLine& line) {
  auto options = std::make_shared<Options>();
  options->ranks.has_many_prompts = true;
  CLI::App* verb = bench.add_subcommand("generate", "Generate from random prompts, without stopping");
  line.add_model(*verb, "--model", options->model, "A Hugging Face model folder, or a GGUF file")->required();
  verb->add_option("--batch", options->batch, "Sequences generated at once by each copy of the model")
      ->check(CLI::Range(1, 4096));
  verb->add_option("--prompt-tokens", options->prompt_tokens, "Tokens per prompt")
      ->check(CLI::Range(1, 1 << 20));
  verb->add_option("--new-tokens", options->new_tokens, "Tokens to generate per prompt")
      ->check(CLI::Range(2, 1 << 20));
  add_sampling_options(*verb, options->sampling);
  add_compute_options(*verb, options->compute);
  add_cache_option(*verb, options->cache_type);
  add_rank_options(*verb, options->ranks);
  verb->add_flag("--json", options->as_json, "Print one JSON object as the last line");
  line.set_action(*verb, [options, &line] {
    options->sampling.check();
    const at::Device device = options->compute.resolved().device();
    generation::check_cache_type(options->cache_type, device);
    if (const auto code = start_ranks(options->ranks, line)) return *code;
    const generation::InferenceRank rank = join_ranks(options->ranks, device);
    const Result result = measure(*options, rank);
    if (!rank.is_first()) return 0;
    if (options->as_json) {
      print_json(result, *options, rank.mesh().dims());
    } else {
      print_table(result);
    }
    return 0;
  });
}

}  // namespace tessera::cli

#include "tessera/train/run/bench.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include "tessera/config/parallelism.h"
#include "tessera/core/median.h"
#include "tessera/core/memory_ledger.h"
#include "tessera/core/process_stats.h"
#include "tessera/device/cpu_allocator.h"
#include "tessera/device/deterministic.h"
#include "tessera/device/device_ledger.h"
#include "tessera/device/device_memory.h"
#include "tessera/device/host_memory.h"
#include "tessera/measure/speed_of_light.h"
#include "tessera/train/run/bench_steps.h"
#include "tessera/train/setup/recipe_values.h"
#include "tessera/train/setup/setup.h"
#include "tessera/train/step/training.h"

namespace tessera::train {
namespace {

// Puts into `result` the memory of the rank whose peak is the largest. `layer_tokens` is the number of tokens
// of a micro-batch times that of layers. Collective.
void report_peak(comm::Communicator& world, double layer_tokens, BenchResult& result) {
  const memory_ledger::Peak peak = memory_ledger::peak();
  const DeviceMemory device = device_memory(world.device());
  const bool is_on_gpu = world.device().type() != kHost;
  // The row of a rank: its peak, the most of activations, what was kept idle at the peak, its peak on the
  // host, the most of tensors on the device, then the categories at the peak.
  std::vector<int64_t> own = {is_on_gpu ? device.peak_reserved_bytes : peak_rss_bytes(),
                              memory_ledger::most().of(MemoryCategory::Activations),
                              is_on_gpu ? device.peak_reserved_bytes - peak.total() : peak.idle_bytes,
                              peak_rss_bytes(), device.peak_bytes};
  const auto first_part = static_cast<size_t>(own.size());
  own.insert(own.end(), peak.bytes.begin(), peak.bytes.end());
  const auto width = static_cast<int64_t>(own.size());
  const at::Tensor values = at::empty({world.size(), width}, on_host(at::kLong));
  world.all_gather_single(values, at::tensor(own, values.options()));
  const int64_t rank = values.select(1, 0).argmax().item<int64_t>();
  const auto largest = host_span<const int64_t>(values).subspan(static_cast<size_t>(rank * width));

  result.peak_rss_bytes = largest[3];
  result.peak_device_live_bytes = largest[4];
  if (is_on_gpu) result.peak_device_bytes = largest[0];
  result.activation_bytes_per_token_per_layer = static_cast<double>(largest[1]) / layer_tokens;
  int64_t rest = largest[0] - largest[2];
  for (size_t i = 0; i < kNumMemoryCategories; ++i) {
    const int64_t bytes = largest[first_part + i];
    result.peak_parts.push_back({std::string(memory_category_name(static_cast<MemoryCategory>(i))), bytes});
    rest -= bytes;
  }
  result.peak_parts.push_back({"kept for later tensors", largest[2]});
  // The rest is LibTorch's code and data, stacks, buffers of libraries, and overhead of allocators. On a GPU
  // nothing is left, as what its context takes is not counted.
  result.peak_parts.push_back({"program and unaccounted", rest});
}

// The times and counts of the steps of a benchmark.
struct Timing {
  std::vector<double> seconds, rates;    // of each counted step
  int64_t tokens = 0, label_tokens = 0;  // of all counted steps
  std::optional<trace::Recording> recording;
};

// Makes the steps of `training`, which takes them from `data`. Puts their losses and traffic into `result`.
// Collective.
Timing time_steps(Training& training, BenchSteps& data, const parallel::DeviceMesh& mesh,
                  const BenchOptions& options, BenchResult& result) {
  comm::Communicator& world = *mesh.world();
  const int64_t total = options.warmup_steps + options.steps;
  Timing timing;
  std::map<std::string, comm::Traffic> traffic_before;
  int64_t counted = 0;  // steps whose traffic is counted
  for (int64_t step = 0; step < total;) {
    data.make_next();
    std::optional<measure::StepTrace> tracing;
    if (!options.trace_path.empty() && step + 1 == total) tracing.emplace(world);
    if (step == options.warmup_steps && counted == 0) traffic_before = mesh.traffic();
    world.barrier();
    const Timer timer;
    const StepMetrics made = training.step();
    world.barrier();
    if (tracing) timing.recording = tracing->stop();
    if (step >= options.warmup_steps) ++counted;
    // A step that overflowed float16 lacks the update, so another one is made in its place.
    // The scale halves with each, and step() throws where it is at its least.
    if (made.skipped_steps > 0) {
      ++result.skipped_steps;
      continue;
    }
    result.losses.push_back(made.loss);
    if (step++ < options.warmup_steps) continue;
    timing.seconds.push_back(timer.seconds());
    timing.rates.push_back(static_cast<double>(made.tokens) / timing.seconds.back());
    timing.tokens += made.tokens;
    timing.label_tokens += made.label_tokens;
  }
  for (const auto& [axis, traffic] : mesh.traffic()) {
    const comm::Traffic all = traffic - traffic_before[axis];
    result.traffic_per_step[axis] = {all.bytes_sent / counted, all.wait_s / static_cast<double>(counted)};
  }
  return timing;
}

// Puts the times of the GEMMs alone into `result`. Collective.
void time_gemms(const measure::StepGemms& gemms, at::ScalarType type, comm::Communicator& world,
                BenchResult& result) {
  const auto gemm_seconds = [&](measure::GemmPath path) {
    const auto options = at::TensorOptions(world.device()).dtype(type);
    const at::Tensor seconds = at::full({1},
                                        measure::measure_gemms(gemms.layers, options, path) +
                                            measure::measure_gemms(gemms.head, options, path),
                                        options.dtype(at::kDouble));
    world.all_reduce(seconds, false, {.op = comm::ReduceOp::Max});
    return seconds.item<double>();
  };
  result.gemm_s = gemm_seconds(measure::GemmPath::Ours);
  result.library_gemm_s = gemm_seconds(measure::GemmPath::LibTorch);
  result.gemm_gflops =
      (measure::gemm_flops(gemms.layers) + measure::gemm_flops(gemms.head)) / result.gemm_s * 1e-9;
}

}  // namespace

std::string BenchResult::to_json() const {
  nlohmann::ordered_json parts = nlohmann::ordered_json::object();
  for (const MemoryPart& part : peak_parts) parts[part.name] = part.bytes;
  nlohmann::ordered_json traffic = nlohmann::ordered_json::object();
  for (const auto& [axis, of_step] : traffic_per_step) {
    traffic[axis] = {{"bytes_sent", of_step.bytes_sent}, {"wait_s", of_step.wait_s}};
  }
  nlohmann::ordered_json json = {
      {"tokens_per_s", tokens_per_s},
      {"step_s_median", step_s_median},
      {"step_s_min", step_s_min},
      {"step_s_max", step_s_max},
      {"peak_rss_bytes", peak_rss_bytes},
      {"peak_bytes", parts},
      {"activation_bytes_per_token_per_layer", activation_bytes_per_token_per_layer},
      {"gemm_s", gemm_s},
      {"gemm_gflops", gemm_gflops},
      {"sol", sol},
      {"library_gemm_s", library_gemm_s},
      {"library_sol", library_sol},
      {"ranks", ranks},
      {"threads", threads},
      {"tokens_per_step", tokens_per_step},
      {"communication_per_step", traffic},
      {"losses", losses}};
  if (skipped_steps > 0) json["skipped_steps"] = skipped_steps;
  if (peak_device_bytes > 0) {
    json["peak_device_bytes"] = peak_device_bytes;
    json["peak_device_live_bytes"] = peak_device_live_bytes;
  }
  return json.dump();
}

BenchResult bench_train(const BenchOptions& options, const std::shared_ptr<comm::Communicator>& world) {
  config::Recipe recipe = options.recipe;
  recipe.max_steps = std::max(recipe.max_steps, options.warmup_steps + options.steps);
  if (recipe.deterministic) compute_deterministically();
  std::optional<DeviceLedger> of_device;
  if (world->device().type() == kHost) {
    memory_ledger::start();
  } else {
    of_device.emplace(world->device());
    reset_device_peak(world->device());
  }
  const ParallelDims dims = parallel_dims(recipe, world->size());
  recipe = config::with_accumulation(std::move(recipe), dims.dp_replicate * dims.dp_shard);
  const parallel::DeviceMesh mesh(world, dims);
  TrainedModel trained = set_up_model(recipe, mesh);
  auto steps = bench_steps(recipe, options.trains_on_data, trained.model->config(), mesh);
  BenchSteps& data = *steps;
  std::optional<Training> training(std::in_place, recipe, mesh, std::move(steps), std::move(trained));

  BenchResult result;
  result.ranks = world->size();
  result.threads = at::get_num_threads();
  const Timing timing = time_steps(*training, data, mesh, options, result);
  result.tokens_per_step = timing.tokens / options.steps;
  const models::CausalLM& model = *training->trained().model;
  report_peak(*world,
              static_cast<double>(recipe.micro_batch_size * recipe.sequence_len * model.config().num_layers),
              result);
  memory_ledger::stop();
  of_device.reset();

  if (timing.recording) {
    result.trace = measure::summarize(*timing.recording);
    measure::write_trace(options.trace_path, *timing.recording, *world);
  }

  // The GEMMs are those of this rank: of its share of the tokens, and of the layers that it holds.
  const int64_t readers = mesh.size(parallel::kAxisDp) * mesh.size(parallel::kAxisCp);
  const bool has_head = mesh.coordinate(parallel::kAxisPp) + 1 == mesh.size(parallel::kAxisPp);
  const measure::StepGemms gemms = measure::step_gemms(
      model, result.tokens_per_step / readers, has_head ? timing.label_tokens / options.steps / readers : 0);
  // The model and the optimizer are freed first, so that the operands of the GEMMs need no memory beside
  // them.
  training.reset();
  trim_cpu_allocator();
  world->barrier();
  time_gemms(gemms, run_types(recipe).compute, *world, result);

  result.step_s_median = median(timing.seconds);
  result.step_s_min = *std::min_element(timing.seconds.begin(), timing.seconds.end());
  result.step_s_max = *std::max_element(timing.seconds.begin(), timing.seconds.end());
  result.tokens_per_s = median(timing.rates);
  result.sol = result.gemm_s / result.step_s_median;
  result.library_sol = result.library_gemm_s / result.step_s_median;
  return result;
}

}  // namespace tessera::train

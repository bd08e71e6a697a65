// The verb `tessera bench train`.
#include "tessera/train/run/bench.h"

#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tessera/cli/compute_options.h"
#include "tessera/cli/launch.h"
#include "tessera/cli/rank_link.h"
#include "tessera/cli/verbs.h"
#include "tessera/comm/bootstrap.h"
#include "tessera/comm/rank_cores.h"
#include "tessera/config/load_recipe.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/io/output_file.h"
#include "tessera/measure/step_trace.h"
#include "tessera/train/setup/recipe_values.h"

namespace tessera::cli {
namespace {

struct Options {
  std::string recipe, model, adapter = "none", dtype = "fp32", device = "auto", checkpointing = "false",
                             trace, data;
  int64_t micro_batch = 2, seq = 512, steps = 6, nproc = 1, lora_r = 16, zero = 3;
  std::vector<std::string> overrides;
  bool as_json = false, overwrite = false;
};

// Returns the recipe of a training with these options.
config::Recipe recipe_of(const Options& options) {
  if (options.recipe.empty() == options.model.empty())
    throw Error(ErrorKind::Config, "BENCH", "one of --model and --recipe is needed").at("command line");
  if (!options.recipe.empty()) return config::load_recipe(options.recipe, options.overrides, "");
  nlohmann::ordered_json keys = {{"base_model", options.model},
                                 {"datasets", {{{"path", options.data.empty() ? "random" : options.data}}}},
                                 {"learning_rate", 1e-4},
                                 {"lr_scheduler", "constant"},
                                 {"micro_batch_size", options.micro_batch},
                                 {"sequence_len", options.seq},
                                 {"gradient_checkpointing", options.checkpointing},
                                 {"zero_stage", options.zero},
                                 {"dtype", options.dtype}};
  if (options.adapter == "lora") {
    keys["adapter"] = "lora";
    keys["lora_target_linear"] = true;
    keys["lora_r"] = options.lora_r;
    keys["lora_alpha"] = 2 * options.lora_r;
  }
  config::Recipe recipe = config::parse_recipe(keys.dump(), "bench", options.overrides);
  if (!options.data.empty() && recipe.streaming) {
    throw Error(ErrorKind::Config, "STREAMING", "the rows of --data cannot be streamed")
        .at("command line")
        .got("streaming=true")
        .need("streaming=false");
  }
  return recipe;
}

void print_table(const train::BenchResult& result) {
  std::printf("tokens/s            %.1f\n", result.tokens_per_s);
  std::printf("step (median)       %.3f s   (min %.3f, max %.3f)\n", result.step_s_median, result.step_s_min,
              result.step_s_max);
  if (result.skipped_steps > 0)
    std::printf("overflowed          %lld steps more, not counted\n",
                static_cast<long long>(result.skipped_steps));
  std::printf("GEMMs alone         %.3f s   (%.0f GFLOP/s)\n", result.gemm_s, result.gemm_gflops);
  std::printf("of the roofline     %.0f%%\n", 100.0 * result.sol);
  std::printf("the same in LibTorch %.3f s   (%.0f%% of the step)\n", result.library_gemm_s,
              100.0 * result.library_sol);
  std::printf("peak memory a rank  %s%s\n", format_bytes(result.peak_bytes()).c_str(),
              result.peak_device_bytes > 0 ? " of its GPU" : "");
  for (const train::MemoryPart& part : result.peak_parts) {
    if (part.bytes == 0) continue;
    std::printf("  %-24s %10s %5.1f%%\n", part.name.c_str(), format_bytes(part.bytes).c_str(),
                100.0 * static_cast<double>(part.bytes) / static_cast<double>(result.peak_bytes()));
  }
  std::printf("activations         %.0f bytes for a token and layer\n",
              result.activation_bytes_per_token_per_layer);
}

// Prints where the time of rank 0's step went, and names the file with the timeline of all ranks.
void print_trace(const train::BenchResult& result, const std::string& path, std::FILE* stream) {
  constexpr size_t kLines = 15;
  std::fprintf(stream,
               "\nstep of rank 0 by self time                                share  seconds   count\n");
  double rest_s = 0.0, rest_share = 0.0;
  for (size_t i = 0; i < result.trace.size(); ++i) {
    const measure::TraceLine& line = result.trace[i];
    if (i >= kLines && i + 1 < result.trace.size()) {
      rest_s += line.self_s;
      rest_share += line.share;
      continue;
    }
    std::fprintf(stream, "  %-54.54s %6.1f%% %8.4f %7ld\n", line.name.c_str(), 100.0 * line.share,
                 line.self_s, static_cast<long>(line.count));
  }
  std::fprintf(stream, "  %-54.54s %6.1f%% %8.4f\n", "everything else", 100.0 * rest_share, rest_s);
  std::fprintf(stream, "timeline of all ranks: %s (open it with ui.perfetto.dev)\n", path.c_str());
}

int measure_training(const Options& options, const CommandLine& line) {
  const bool has_recipe = !options.recipe.empty();
  const config::Recipe recipe = recipe_of(options);
  const at::Device device =
      has_recipe ? train::device_of(recipe.device, recipe) : device_named(options.device);
  if (!options.trace.empty()) {
    io::check_output_file({.path = options.trace,
                           .named_by = "--trace",
                           .inputs = {{"the model", options.model}, {"the rows", options.data}},
                           .is_earlier_output = io::begins_with(measure::kTraceBegin),
                           .overwrites = options.overwrite});
  }
  if (const auto code = relaunch(options.nproc, line.arguments)) return *code;
  const train::BenchOptions bench_options = {.recipe = recipe,
                                             .trains_on_data = !options.data.empty(),
                                             .steps = options.steps,
                                             .trace_path = options.trace};
  const comm::Bootstrap bootstrap(device, own_start_timeout_s());
  comm::share_cores(*bootstrap.world());
  tell_started();
  const train::BenchResult result = train::bench_train(bench_options, bootstrap.world());
  if (bootstrap.world()->rank() != 0) return 0;
  if (options.as_json) {
    std::printf("%s\n", result.to_json().c_str());
  } else {
    print_table(result);
  }
  if (!result.trace.empty()) print_trace(result, options.trace, options.as_json ? log::stream() : stdout);
  return 0;
}

void add_training(CLI::App& bench, CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = bench.add_subcommand("train", "Run training steps on random tokens");
  line.add_model(*verb, "--model", options->model, "A Hugging Face model folder, or a GGUF file");
  verb->add_option(
          "--recipe", options->recipe,
          "Train as this recipe says, on full documents of random tokens. Of the other options, only "
          "--steps, --nproc, --trace and --json then count")
      ->excludes("--model");
  verb->add_option("--micro-batch", options->micro_batch, "Documents per rank and step")
      ->check(CLI::Range(1, 65536));
  verb->add_option("--seq", options->seq, "Tokens per document")->check(CLI::Range(2, 1 << 24));
  verb->add_option(
      "--data", options->data,
      "Rows of token ids (input_ids, attention_mask, labels; JSON Lines) to use instead of random tokens; "
      "keys such as sample_packing=true and shuffle_merged_datasets=false control how steps use them");
  verb->add_option("--steps", options->steps, "Steps to measure, after one warm-up step")
      ->check(CLI::Range(1, 100000));
  verb->add_option("--adapter", options->adapter, "none, or lora (on all linear layers)")
      ->check(CLI::IsMember({"none", "lora"}));
  verb->add_option("--lora-r", options->lora_r, "Rank of the adapter")->check(CLI::Range(1, 4096));
  verb->add_option("--dtype", options->dtype, "Compute dtype")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16", "fp64"}));
  add_device(*verb, options->device);
  verb->add_option("--zero", options->zero, "ZeRO stage: 0 (DDP), 1, 2 or 3")->check(CLI::Range(0, 3));
  verb->add_option("--nproc", options->nproc, "Ranks to start on this machine")->check(CLI::Range(1, 4096));
  verb->add_option("--gradient-checkpointing", options->checkpointing,
                   "Activations to recompute in the backward pass: false (none), mlp (the two largest "
                   "tensors of every block) or true (all of every block)")
      ->check(CLI::IsMember({"false", "mlp", "true"}));
  verb->add_option(
      "--trace", options->trace,
      "Record the last measured step of all ranks in this file, for Perfetto, and print where its time went");
  verb->add_flag("--overwrite", options->overwrite, kOverwriteHelp);
  verb->add_flag("--json", options->as_json, "Print one JSON object as the last line");
  verb->add_option("overrides", options->overrides,
                   "Recipe keys as key=value: tensor_parallel_size=2 gradient_accumulation_steps=4");
  line.set_action(*verb, [options, &line] { return measure_training(*options, line); });
}

}  // namespace

void add_bench(CLI::App& app, CommandLine& line) {
  CLI::App* bench = app.add_subcommand("bench", "Measure speed and memory");
  bench->require_subcommand(1);
  add_bench_tokenize(*bench, line);
  add_bench_generate(*bench, line);
  add_training(*bench, line);
}

}  // namespace tessera::cli

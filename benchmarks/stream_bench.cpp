// Measures how fast a stream deals tokens, how long steps that compute wait for them, and how long a stream
// takes to resume at a place. Runs on one rank, or under mpirun on several, each of which takes its part of
// every step. The arguments are a recipe that streams, and a number of steps. Prints one JSON object.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include "tessera/comm/bootstrap.h"
#include "tessera/config/load_recipe.h"
#include "tessera/core/error.h"
#include "tessera/core/process_stats.h"
#include "tessera/data/steps_ahead.h"
#include "tessera/models/registry.h"
#include "tessera/train/setup/recipe_data.h"

namespace {

using tessera::Timer;
using tessera::comm::Communicator;
using tessera::data::Cursor;
using tessera::data::Step;
using tessera::data::StepsAhead;
using tessera::data::StreamLoader;

// The rates at which a run's steps take tokens, as fractions of the rate at which the stream alone deals
// them.
constexpr double kLoads[] = {0.25, 0.5, 0.75, 0.9};

class Bench {
 public:
  Bench(const std::string& recipe, Communicator& world)
      : world_(world),
        recipe_(tessera::config::load_recipe(recipe)),
        model_(tessera::models::read_model_config(recipe_.base_model)) {
    tessera::config::Problems problems;
    tokenizer_ = tessera::train::load_recipe_tokenizer(recipe_, problems);
    problems.settle();
    tessera::train::read_recipe_data(recipe_, *model_, tokenizer_, at::get_num_threads());
  }

  std::unique_ptr<StreamLoader> open() const {
    return tessera::train::open_recipe_stream(recipe_, *model_, tokenizer_, world_.rank(), world_.size(),
                                              at::get_num_threads(), std::nullopt,
                                              world_.split(0, world_.rank(), "stream"));
  }
  std::unique_ptr<StepsAhead> open_ahead() const {
    return std::make_unique<StepsAhead>(open(), 2, world_.size() * tessera::data::kTokensAhead);
  }

  // Returns the seconds from opening the stream to its first step.
  double first_step_s() const {
    const Timer timer;
    open()->next_step();
    return timer.seconds();
  }

  // Returns the largest value over the ranks. Collective.
  double most(double value) const {
    double largest = 0.0;
    for (const std::string& text : world_.all_gather_string(std::to_string(value)))
      largest = std::max(largest, std::atof(text.c_str()));
    return largest;
  }

 private:
  Communicator& world_;
  const tessera::config::Recipe recipe_;
  const std::shared_ptr<const tessera::models::ModelConfig> model_;
  std::optional<tessera::text::Tokenizer> tokenizer_;
};

// Returns the share of the time that steps spend waiting for their rows, if each step computes for
// `compute_s`.
double share_waited(StepsAhead& source, int64_t steps, double compute_s) {
  source.next_step();
  const Timer all;
  double waited_s = 0.0;
  for (int64_t i = 1; i < steps; ++i) {
    std::this_thread::sleep_for(std::chrono::duration<double>(compute_s));
    const Timer wait;
    source.next_step();
    waited_s += wait.seconds();
  }
  return waited_s / all.seconds();
}

bool is_same(const Step& a, const Step& b) {
  return std::ranges::equal(a.micro_batches, b.micro_batches, [](const auto& x, const auto& y) {
    return x.input_ids == y.input_ids && x.labels == y.labels && x.document_starts == y.document_starts;
  });
}

void run(const std::string& recipe, int64_t steps, Communicator& world) {
  const Bench bench(recipe, world);
  const double first_step_s = bench.most(bench.first_step_s());

  // Cursors to resume at, each with the step that comes next.
  std::vector<std::pair<Cursor, Step>> places;
  int64_t tokens = 0;
  double seconds = 0.0;
  {
    const auto source = bench.open_ahead();
    Cursor cursor = source->cursor();
    world.barrier();
    const Timer timer;
    for (int64_t i = 0, due = 1; i < steps; ++i) {
      const Step step = source->next_step();
      tokens += step.tokens;
      if (i == due || i + 1 == steps) {
        places.emplace_back(cursor, step);
        due *= 4;
      }
      cursor = step.next;
    }
    seconds = bench.most(timer.seconds());
  }
  nlohmann::ordered_json result = {{"ranks", world.size()},
                                   {"threads", at::get_num_threads()},
                                   {"steps", steps},
                                   {"tokens", tokens},
                                   {"seconds", seconds},
                                   {"tokens_per_s", static_cast<double>(tokens) / seconds},
                                   {"first_step_s", first_step_s}};
  const double step_s = seconds / static_cast<double>(steps);
  for (const double load : kLoads) {
    const auto source = bench.open_ahead();
    const double share = bench.most(share_waited(*source, steps, step_s / load));
    result["waits"].push_back({{"load", load}, {"share", share}});
  }
  for (const auto& [cursor, wanted] : places) {
    world.barrier();
    const Timer timer;
    const auto source = bench.open();
    source->seek(cursor);
    const bool is_exact = is_same(source->next_step(), wanted);
    result["resumes"].push_back({{"sequences", cursor.sample},
                                 {"seconds", bench.most(timer.seconds())},
                                 {"is_exact", bench.most(is_exact ? 0.0 : 1.0) == 0.0}});
  }
  result["peak_rss_bytes"] = bench.most(static_cast<double>(tessera::peak_rss_bytes()));
  if (world.rank() == 0) std::puts(result.dump().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("stream_bench RECIPE STEPS\n", stderr);
    return 2;
  }
  try {
    const tessera::comm::Bootstrap bootstrap;
    run(argv[1], std::atoll(argv[2]), *bootstrap.world());
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "stream_bench: %s\n", error.what());
    tessera::comm::Bootstrap::abort(tessera::exit_code(error.kind()));
  }
  return 0;
}

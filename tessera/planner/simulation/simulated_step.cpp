#include "tessera/planner/simulation/simulated_step.h"

#include <algorithm>
#include <numeric>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"

namespace tessera::planner {
namespace {

// Some 50 bytes each.
constexpr int64_t kMostItems = 40'000'000;

std::string event_name(const Item& item) {
  std::string name(activity_name(item.activity));
  if (item.block >= 0) name += ", block " + std::to_string(item.block);
  if (item.micro_batch >= 0) name += ", micro-batch " + std::to_string(item.micro_batch);
  return name;
}

std::string metadata(const char* what, int64_t rank, size_t row, const char* key,
                     const nlohmann::json& value) {
  return nlohmann::ordered_json(
             {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", row}, {"args", {{key, value}}}})
             .dump() +
         ",\n";
}

}  // namespace

SimulatedStep simulate_step(const ModelWork& work, const Cluster& cluster, const Job& job,
                            const Choice& choice, const Disturbances& disturbances,
                            const Software& software) {
  const StepParts parts = step_parts(work, cluster, job, choice, software);
  const std::vector<int64_t> ranks =
      representatives(choice, parts.groups, disturbances.ranks(cluster.devices_per_node, choice.ranks()));
  // A pass through a block is a handful of items.
  const int64_t items = std::ssize(ranks) * choice.accumulation * (work.layers / choice.pp + 1) * 8;
  if (items > kMostItems) {
    throw Error(ErrorKind::Config, "SIMULATION", "the step has too many events to simulate")
        .got(std::to_string(std::ssize(ranks)) + " ranks that differ, with " +
             group_digits(choice.accumulation) + " micro-batches each")
        .hint("name fewer slow ranks and nodes, or a step of fewer micro-batches");
  }
  SimulatedStep step;
  step.programs = make_programs(parts, choice, work.layers);
  step.ranks = run_programs(step.programs, ranks, parts.groups, cluster.devices_per_node, disturbances);
  for (const RankTrace& trace : step.ranks) step.seconds = std::max(step.seconds, trace.end);
  return step;
}

double RankTimes::total() const {
  return std::accumulate(busy.begin(), busy.end(), peers) + std::accumulate(waits.begin(), waits.end(), 0.0);
}

RankTimes times_of(const SimulatedStep& step, const RankTrace& trace) {
  RankTimes times;
  const Program& program = step.programs[static_cast<size_t>(trace.place)];
  double before = 0.0;
  for (const int32_t number : program.streams[static_cast<size_t>(Stream::Compute)]) {
    const Item& item = program.items[static_cast<size_t>(number)];
    const Span& span = trace.spans[static_cast<size_t>(number)];
    times.waits[static_cast<size_t>(span.held_by)] += span.ready - before;
    times.peers += span.begin - span.ready;
    times.busy[static_cast<size_t>(item.activity)] += span.end - span.begin;
    before = span.end;
  }
  times.peers += step.seconds - before;
  return times;
}

std::string timeline_json(const SimulatedStep& step, size_t most_ranks) {
  std::string text = "{\"traceEvents\":[\n";
  for (size_t i = 0; i < std::min(most_ranks, step.ranks.size()); ++i) {
    const RankTrace& trace = step.ranks[i];
    const Program& program = step.programs[static_cast<size_t>(trace.place)];
    text += metadata("process_name", trace.rank, 0, "name", "rank " + std::to_string(trace.rank));
    for (size_t row = 0; row < kNumStreams; ++row) {
      if (program.streams[row].empty()) continue;
      text += metadata("thread_name", trace.rank, row, "name", stream_name(static_cast<Stream>(row)));
      text += metadata("thread_sort_index", trace.rank, row, "sort_index", row);
    }
    for (size_t number = 0; number < program.items.size(); ++number) {
      const Item& item = program.items[number];
      const Span& span = trace.spans[number];
      char times[96];
      std::snprintf(times, sizeof times, "\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f", span.begin * 1e6,
                    (span.end - span.begin) * 1e6);
      text += "{\"name\":\"" + event_name(item) + times + ",\"pid\":" + std::to_string(trace.rank) +
              ",\"tid\":" + std::to_string(static_cast<int>(item.stream)) + "},\n";
    }
  }
  text.erase(text.size() - 2);
  return text + "\n]}\n";
}

}  // namespace tessera::planner

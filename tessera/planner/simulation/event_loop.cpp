#include "tessera/planner/simulation/event_loop.h"

#include <algorithm>
#include <array>
#include <map>
#include <queue>
#include <set>
#include <unordered_map>
#include <utility>

#include "tessera/core/error.h"

namespace tessera::planner {
namespace {

Group group_of(const AxisGroups& groups, Axis axis) {
  switch (axis) {
    case Axis::None: return {};
    case Axis::Tensor: return groups.tensor;
    case Axis::Context: return groups.context;
    case Axis::Experts: return groups.experts;
    case Axis::Shards: return groups.shards;
    case Axis::NearShards: return groups.near_shards;
    case Axis::Copies: return groups.copies;
    case Axis::World: return groups.world;
    case Axis::Pipeline: return groups.pipeline;
  }
  return {};
}

// A place in the pipeline: its ranks have this in common.
struct Stage {
  const Program* program = nullptr;
  std::vector<int32_t> num_before;               // of each item: the items and messages that it waits for
  std::vector<std::vector<int32_t>> successors;  // of each item
  std::map<parallel::Message, int32_t> receivers;
};

Stage stage_of(const Program& program) {
  Stage stage{&program,
              std::vector<int32_t>(program.items.size(), 0),
              std::vector<std::vector<int32_t>>(program.items.size()),
              {}};
  for (size_t i = 0; i < program.items.size(); ++i) {
    const Item& item = program.items[i];
    stage.num_before[i] = static_cast<int32_t>(item.after.size()) + (item.receives ? 1 : 0);
    for (const int32_t before : item.after)
      stage.successors[static_cast<size_t>(before)].push_back(static_cast<int32_t>(i));
    if (item.receives) stage.receivers[*item.receives] = static_cast<int32_t>(i);
  }
  return stage;
}

constexpr int kNodeLink = 0, kNetworkLink = 1;

// One of a rank's two links, with the transfers that use it now. A load of 1 is its full rate.
struct Link {
  double load = 0.0;
  std::vector<int32_t> flows;
};

struct Worker {
  RankTrace trace;
  const Stage* stage = nullptr;
  std::vector<int32_t> num_before;
  std::array<size_t, kNumStreams> next{};  // of each stream, the item that has not begun or not ended
  std::array<bool, kNumStreams> is_busy{};
  double slowness = 1.0, network_slowness = 1.0;
  std::array<Link, 2> links;
  std::array<int32_t, kNumAxes> meeting{};  // its group of each axis, in Loop::meetings_
};

// The ranks that do a transfer together, and the item of each.
struct Flow {
  std::vector<int32_t> workers;
  std::vector<int32_t> items;
  std::array<double, 2> demand{};  // of the links, while it runs undisturbed
  double remaining = 0.0;          // seconds, undisturbed
  double rate = 1.0, since = 0.0;
  int64_t version = 0;  // of its last event
};

struct Event {
  double time = 0.0;
  int64_t order = 0;  // events of one time come as they were made
  int32_t worker = -1, item = -1;
  int32_t flow = -1;
  int64_t version = 0;
  bool operator>(const Event& other) const {
    return std::pair(time, order) > std::pair(other.time, other.order);
  }
};

class Loop {
 public:
  Loop(const std::vector<Program>& programs, const std::vector<int64_t>& ranks, const AxisGroups& groups,
       int64_t devices_per_node, const Disturbances& disturbances);

  std::vector<RankTrace> run();

 private:
  const Item& item_of(int32_t worker, int32_t item) const {
    return workers_[static_cast<size_t>(worker)].stage->program->items[static_cast<size_t>(item)];
  }
  Worker& at(int32_t worker) { return workers_[static_cast<size_t>(worker)]; }
  void push(Event event) {
    event.order = num_events_++;
    events_.push(event);
  }
  void join_groups(const AxisGroups& groups);
  // Begins the next item of a stream if nothing holds it.
  void advance(int32_t worker, Stream stream);
  void meet(int32_t worker, int32_t item);
  void begin_flow(std::vector<int32_t> workers, std::vector<int32_t> items, const Transfer& transfer);
  void end_flow(int32_t number);
  // Gives the transfers that share a link with these ranks their new rates.
  void share_links(const std::vector<int32_t>& workers);
  void end_item(int32_t worker, int32_t item);
  void release(int32_t worker, int32_t item, Activity by);

  std::vector<Stage> stages_;
  std::vector<Worker> workers_;
  std::vector<std::vector<int32_t>> meetings_;                 // the workers of each group
  std::unordered_map<int64_t, std::vector<int32_t>> arrived_;  // by group and item
  std::map<std::pair<int64_t, int64_t>, int32_t> at_place_;    // by the rank in its stage, and the stage
  int64_t stage_stride_ = 1;
  std::vector<Flow> flows_;
  std::vector<int32_t> free_flows_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  double now_ = 0.0;
  int64_t num_events_ = 0;
};

Loop::Loop(const std::vector<Program>& programs, const std::vector<int64_t>& ranks, const AxisGroups& groups,
           int64_t devices_per_node, const Disturbances& disturbances)
    : stage_stride_(groups.pipeline.stride) {
  for (const Program& program : programs) stages_.push_back(stage_of(program));
  const auto factor = [](const std::map<int64_t, double>& factors, int64_t key) {
    const auto found = factors.find(key);
    return found == factors.end() ? 1.0 : found->second;
  };
  for (const int64_t rank : ranks) {
    Worker worker;
    const int64_t place = rank / stage_stride_;
    worker.trace.rank = rank;
    worker.trace.place = place;
    worker.stage = &stages_[static_cast<size_t>(place)];
    worker.num_before = worker.stage->num_before;
    worker.trace.spans.resize(worker.num_before.size());
    worker.slowness = factor(disturbances.slow_ranks, rank);
    worker.network_slowness = factor(disturbances.slow_networks, rank / devices_per_node);
    at_place_[{rank % stage_stride_, place}] = static_cast<int32_t>(workers_.size());
    workers_.push_back(std::move(worker));
  }
  join_groups(groups);
}

void Loop::join_groups(const AxisGroups& groups) {
  for (size_t axis = 1; axis < kNumAxes; ++axis) {
    const Group group = group_of(groups, static_cast<Axis>(axis));
    // Ranks meet by the number of their group and their place within it.
    std::map<std::pair<int64_t, int64_t>, int32_t> known;
    for (size_t i = 0; i < workers_.size(); ++i) {
      const int64_t rank = workers_[i].trace.rank;
      const auto [found, is_new] = known.try_emplace(
          {rank / (group.stride * group.size), rank % group.stride}, static_cast<int32_t>(meetings_.size()));
      if (is_new) meetings_.emplace_back();
      workers_[i].meeting[axis] = found->second;
      meetings_[static_cast<size_t>(found->second)].push_back(static_cast<int32_t>(i));
    }
  }
}

std::vector<RankTrace> Loop::run() {
  for (size_t worker = 0; worker < workers_.size(); ++worker) {
    for (size_t stream = 0; stream < kNumStreams; ++stream)
      advance(static_cast<int32_t>(worker), static_cast<Stream>(stream));
  }
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    if (event.flow >= 0) {
      if (flows_[static_cast<size_t>(event.flow)].version != event.version) continue;
      now_ = event.time;
      end_flow(event.flow);
    } else {
      now_ = event.time;
      end_item(event.worker, event.item);
    }
  }
  std::vector<RankTrace> traces;
  for (Worker& worker : workers_) {
    for (size_t stream = 0; stream < kNumStreams; ++stream) {
      if (worker.next[stream] == worker.stage->program->streams[stream].size()) continue;
      throw Error(ErrorKind::Internal, "SIMULATION",
                  "rank " + std::to_string(worker.trace.rank) + " waits for ever in its stream of " +
                      std::string(stream_name(static_cast<Stream>(stream))));
    }
    traces.push_back(std::move(worker.trace));
  }
  return traces;
}

void Loop::advance(int32_t number, Stream stream) {
  Worker& worker = at(number);
  const auto s = static_cast<size_t>(stream);
  const std::vector<int32_t>& items = worker.stage->program->streams[s];
  if (worker.is_busy[s] || worker.next[s] == items.size()) return;
  const int32_t item = items[worker.next[s]];
  if (worker.num_before[static_cast<size_t>(item)] > 0) return;
  worker.is_busy[s] = true;
  Span& span = worker.trace.spans[static_cast<size_t>(item)];
  span.ready = span.begin = now_;
  const Item& what = item_of(number, item);
  if (what.axis == Axis::None) {
    const double slowness = what.activity == Activity::Host ? 1.0 : worker.slowness;
    push({.time = now_ + what.seconds * slowness, .worker = number, .item = item});
  } else if (what.axis == Axis::Pipeline) {
    // The sender alone begins a message; the link of the receiver takes part.
    const int64_t to = what.sends->stage % static_cast<int64_t>(stages_.size());
    const int32_t receiver = at_place_.at({worker.trace.rank % stage_stride_, to});
    begin_flow({number, receiver}, {item, -1}, what.transfer);
  } else {
    meet(number, item);
  }
}

void Loop::meet(int32_t worker, int32_t item) {
  const Item& what = item_of(worker, item);
  const int32_t meeting = at(worker).meeting[static_cast<size_t>(what.axis)];
  const std::vector<int32_t>& members = meetings_[static_cast<size_t>(meeting)];
  // All members run one program, but for the meeting of all ranks, of which there is one.
  const int64_t key = what.axis == Axis::World ? -1 : (static_cast<int64_t>(meeting) << 32 | item);
  std::vector<int32_t>& arrived = arrived_[key];
  arrived.push_back(worker);
  if (arrived.size() < members.size()) return;
  std::vector<int32_t> workers = std::move(arrived), items;
  arrived_.erase(key);
  for (const int32_t member : workers) {
    Worker& each = at(member);
    const auto s = static_cast<size_t>(what.stream);
    items.push_back(each.stage->program->streams[s][each.next[s]]);
    each.trace.spans[static_cast<size_t>(items.back())].begin = now_;
  }
  begin_flow(std::move(workers), std::move(items), what.transfer);
}

void Loop::begin_flow(std::vector<int32_t> workers, std::vector<int32_t> items, const Transfer& transfer) {
  double slowest = 1.0;
  for (const int32_t worker : workers) slowest = std::max(slowest, at(worker).network_slowness);
  const Transfer slowed{transfer.node_s, transfer.network_s * slowest, transfer.latency_s};
  int32_t number = static_cast<int32_t>(flows_.size());
  if (free_flows_.empty()) {
    flows_.emplace_back();
  } else {
    number = free_flows_.back();
    free_flows_.pop_back();
  }
  Flow& flow = flows_[static_cast<size_t>(number)];
  flow.workers = std::move(workers);
  flow.items = std::move(items);
  flow.remaining = slowed.seconds();
  flow.since = now_;
  flow.rate = 1.0;
  flow.demand = {};
  if (flow.remaining > 0.0) flow.demand = {slowed.node_s / flow.remaining, slowed.network_s / flow.remaining};
  for (const int32_t worker : flow.workers) {
    Worker& each = at(worker);
    each.trace.node_link_s += slowed.node_s;
    each.trace.network_link_s += slowed.network_s;
    for (const int link : {kNodeLink, kNetworkLink}) {
      const auto l = static_cast<size_t>(link);
      if (flow.demand[l] <= 0.0) continue;
      each.links[l].load += flow.demand[l];
      each.links[l].flows.push_back(number);
    }
  }
  push({.time = now_ + flow.remaining, .flow = number, .version = ++flow.version});
  share_links(std::vector<int32_t>(flow.workers));
}

void Loop::share_links(const std::vector<int32_t>& workers) {
  std::set<int32_t> affected;
  for (const int32_t worker : workers) {
    for (const Link& link : at(worker).links) affected.insert(link.flows.begin(), link.flows.end());
  }
  for (const int32_t number : affected) {
    Flow& flow = flows_[static_cast<size_t>(number)];
    double load = 1.0;
    for (const int32_t worker : flow.workers) {
      for (size_t link = 0; link < 2; ++link) {
        if (flow.demand[link] > 0.0) load = std::max(load, at(worker).links[link].load);
      }
    }
    const double rate = 1.0 / load;
    if (rate == flow.rate) continue;
    flow.remaining = std::max(0.0, flow.remaining - (now_ - flow.since) * flow.rate);
    flow.since = now_;
    flow.rate = rate;
    push({.time = now_ + flow.remaining / rate, .flow = number, .version = ++flow.version});
  }
}

void Loop::end_flow(int32_t number) {
  Flow& flow = flows_[static_cast<size_t>(number)];
  ++flow.version;
  for (const int32_t worker : flow.workers) {
    for (size_t l = 0; l < 2; ++l) {
      if (flow.demand[l] <= 0.0) continue;
      Link& link = at(worker).links[l];
      std::erase(link.flows, number);
      // An empty link has no load, to the last bit.
      link.load = link.flows.empty() ? 0.0 : link.load - flow.demand[l];
    }
  }
  const std::vector<int32_t> workers = std::move(flow.workers), items = std::move(flow.items);
  free_flows_.push_back(number);
  share_links(workers);
  for (size_t i = 0; i < workers.size(); ++i) {
    if (items[i] >= 0) end_item(workers[i], items[i]);
  }
}

void Loop::end_item(int32_t number, int32_t item) {
  Worker& worker = at(number);
  const Item& what = item_of(number, item);
  worker.trace.spans[static_cast<size_t>(item)].end = now_;
  worker.trace.end = std::max(worker.trace.end, now_);
  const auto s = static_cast<size_t>(what.stream);
  worker.is_busy[s] = false;
  ++worker.next[s];
  for (const int32_t next : worker.stage->successors[static_cast<size_t>(item)])
    release(number, next, what.activity);
  if (what.sends) {
    const int64_t to = what.sends->stage % static_cast<int64_t>(stages_.size());
    const int32_t receiver = at_place_.at({worker.trace.rank % stage_stride_, to});
    release(receiver, at(receiver).stage->receivers.at(*what.sends), Activity::StageMessage);
  }
  advance(number, what.stream);
}

void Loop::release(int32_t number, int32_t item, Activity by) {
  Worker& worker = at(number);
  --worker.num_before[static_cast<size_t>(item)];
  worker.trace.spans[static_cast<size_t>(item)].held_by = by;
  advance(number, item_of(number, item).stream);
}

}  // namespace

std::vector<RankTrace> run_programs(const std::vector<Program>& programs, const std::vector<int64_t>& ranks,
                                    const AxisGroups& groups, int64_t devices_per_node,
                                    const Disturbances& disturbances) {
  return Loop(programs, ranks, groups, devices_per_node, disturbances).run();
}

}  // namespace tessera::planner

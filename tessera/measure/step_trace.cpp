#include "tessera/measure/step_trace.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/host_name.h"
#include "tessera/device/device_event.h"
#include "tessera/device/host_memory.h"
#include "tessera/io/file.h"

namespace tessera::measure {
namespace {

struct OpenOperation : at::ObserverContext {
  trace::OpenEvent event;
};

const char* category_of(at::RecordScope scope) {
  switch (scope) {
    case at::RecordScope::FUNCTION: return "aten";
    case at::RecordScope::BACKWARD_FUNCTION: return "autograd";
    default: return "user";
  }
}

std::unique_ptr<at::ObserverContext> begin_operation(const at::RecordFunction& function) {
  auto open = std::make_unique<OpenOperation>();
  open->event = trace::begin(function.name(), category_of(function.scope()));
  return open;
}

void end_operation(const at::RecordFunction&, at::ObserverContext* context) {
  const auto& event = static_cast<OpenOperation*>(context)->event;
  if (event.buffer != nullptr) trace::end(event);
}

// Returns the value of this machine's steady clock at which every rank's recording is taken to begin: that of
// the machine's first rank. Collective.
int64_t common_begin(const trace::Recording& recording, comm::Communicator& world) {
  const std::string host = host_name();
  const auto all = world.all_gather_string(std::to_string(recording.begin_ns) + " " + host);
  for (const std::string& other : all) {
    const size_t space = other.find(' ');
    if (other.substr(space + 1) == host) return std::stoll(other.substr(0, space));
  }
  return recording.begin_ns;
}

// Rows of the timeline, by the number by which Perfetto sorts them. Threads have rows of their own, since
// only the events of one thread nest.
constexpr int kComputeRow = 0, kDeviceRow = 1, kDeviceCommunicationRow = 2, kFirstCommunicationRow = 1000,
              kFirstWaitRow = 2000, kFirstWorkerRow = 3000;

bool is_of_device(const trace::Event& event) { return event.thread >= kDeviceThreads; }

int row_of(const trace::Event& event) {
  const bool is_communication = event.row == trace::Row::Communication;
  if (is_of_device(event)) return is_communication ? kDeviceCommunicationRow : kDeviceRow;
  switch (event.row) {
    case trace::Row::Communication: return kFirstCommunicationRow + event.thread;
    case trace::Row::Wait: return kFirstWaitRow + event.thread;
    default: return event.thread == 0 ? kComputeRow : kFirstWorkerRow + event.thread;
  }
}

std::string row_name(int row) {
  if (row == kComputeRow) return "compute";
  if (row == kDeviceRow) return "device";
  if (row == kDeviceCommunicationRow) return "device: communication";
  if (row < kFirstWaitRow) return "communication";
  if (row < kFirstWorkerRow) return "wait";
  return "worker " + std::to_string(row - kFirstWorkerRow);
}

std::string metadata(const char* what, int64_t rank, int row, const char* key, const nlohmann::json& value) {
  return nlohmann::ordered_json(
             {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", row}, {"args", {{key, value}}}})
      .dump();
}

// Returns this rank's events, each followed by a comma and a newline.
std::string events_text(const trace::Recording& recording, int64_t origin_ns, int64_t rank) {
  std::set<int> rows = {kComputeRow};
  for (const trace::Event& event : recording.events) rows.insert(row_of(event));
  std::string text = metadata("process_name", rank, 0, "name", "rank " + std::to_string(rank)) + ",\n" +
                     metadata("process_sort_index", rank, 0, "sort_index", rank) + ",\n";
  for (const int row : rows) {
    text += metadata("thread_name", rank, row, "name", row_name(row)) + ",\n" +
            metadata("thread_sort_index", rank, row, "sort_index", row) + ",\n";
  }
  for (const trace::Event& event : recording.events) {
    // Whole nanoseconds are written as microseconds: that is exact, so nested events stay nested.
    char times[128];
    const int64_t begin = std::max<int64_t>(0, event.begin_ns - origin_ns);
    const int64_t duration = std::max<int64_t>(0, event.end_ns - origin_ns - begin);
    std::snprintf(times, sizeof times, "\"ts\":%ld.%03ld,\"dur\":%ld.%03ld", static_cast<long>(begin / 1000),
                  static_cast<long>(begin % 1000), static_cast<long>(duration / 1000),
                  static_cast<long>(duration % 1000));
    text += "{\"name\":" + nlohmann::json(readable_name(event.name)).dump() + ",\"cat\":\"" + event.category +
            "\",\"ph\":\"X\"," + times + ",\"pid\":" + std::to_string(rank) +
            ",\"tid\":" + std::to_string(row_of(event));
    if (event.bytes > 0 || !event.detail.empty()) {
      nlohmann::ordered_json args = nlohmann::ordered_json::object();
      if (event.bytes > 0) args["bytes"] = event.bytes;
      if (!event.detail.empty()) args["detail"] = event.detail;
      text += ",\"args\":" + args.dump();
    }
    text += "},\n";
  }
  return text;
}

// Writes the file on rank 0: its own text and then those of the others, one after another, so that it holds
// two texts at most.
void write_all(const std::string& path, std::string text, const trace::Recording& recording,
               comm::Communicator& world) {
  std::unique_ptr<io::AtomicFile> file;
  std::exception_ptr error;
  // The other ranks send in any case, so rank 0 receives in any case: a failed write must not leave them
  // waiting.
  const auto append = [&](std::string_view part) {
    if (error != nullptr) return;
    try {
      if (file == nullptr) file = std::make_unique<io::AtomicFile>(path);
      file->append(part);
    } catch (const Error&) {
      error = std::current_exception();
    }
  };
  append(std::string_view(kTraceBegin).substr(0, std::string_view(kTraceBegin).find('\n') + 1));
  int64_t num_dropped = recording.num_dropped;
  for (int64_t rank = 0; rank < world.size(); ++rank) {
    if (rank > 0) {
      const at::Tensor sizes = at::empty({2}, on_host(at::kLong));
      world.recv(sizes, rank);
      const at::Tensor bytes = at::empty({sizes[0].item<int64_t>()}, on_host(at::kByte));
      world.recv(bytes, rank);
      const auto characters = host_span<const char>(bytes);
      text.assign(characters.data(), characters.size());
      num_dropped += sizes[1].item<int64_t>();
    }
    const bool is_last = rank + 1 == world.size();
    append(is_last ? std::string_view(text).substr(0, text.size() - 2) : std::string_view(text));
  }
  nlohmann::ordered_json other = {{"tool", "tessera"}, {"ranks", world.size()}};
  if (num_dropped > 0) {
    other["dropped_events"] = num_dropped;
    other["note"] = "a rank records " + std::to_string(StepTrace::kMaxEvents) +
                    " events; later ones were dropped, so the timeline ends early";
  }
  append("\n],\"displayTimeUnit\":\"ms\",\"otherData\":" + other.dump() + "}\n");
  if (error != nullptr) std::rethrow_exception(error);
  file->commit();
}

void send_text(const std::string& text, int64_t num_dropped, comm::Communicator& world) {
  const auto size = static_cast<int64_t>(text.size());
  world.send(at::tensor({size, num_dropped}, on_host(at::kLong)), 0);
  world.send(at::from_blob(const_cast<char*>(text.data()), {size}, on_host(at::kByte)), 0);
}

// Adds the device's spans to the recording, with the times at which the device came to their marks. A span
// that has no second mark ends with the recording.
void add_device_events(const std::vector<int64_t>& times_ns, trace::Recording& recording) {
  for (const int64_t time : times_ns) recording.end_ns = std::max(recording.end_ns, time);
  for (const trace::StreamSpan& span : trace::take_stream_spans()) {
    if (span.begin < 0) continue;
    trace::Event event;
    event.name = span.name;
    event.category = "device";
    event.row = span.is_communication ? trace::Row::Communication : trace::Row::Compute;
    event.thread = kDeviceThreads + span.thread;
    event.begin_ns = times_ns[static_cast<size_t>(span.begin)];
    event.end_ns = span.end < 0 ? recording.end_ns : times_ns[static_cast<size_t>(span.end)];
    recording.events.push_back(std::move(event));
  }
}

}  // namespace

StepTrace::StepTrace(comm::Communicator& world) {
  world.barrier();
  if (has_streams(world.device())) marks_ = std::make_unique<DeviceMarks>(world.device());
  trace::set_stream_marks(marks_.get());
  trace::start(kMaxEvents);
  callback_ =
      at::addGlobalCallback(at::RecordFunctionCallback(begin_operation, end_operation)
                                .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
                                         at::RecordScope::USER_SCOPE}));
}

StepTrace::~StepTrace() {
  if (is_recording_) stop();
}

trace::Recording StepTrace::stop() {
  is_recording_ = false;
  at::removeCallback(callback_);
  trace::Recording recording = trace::stop();
  trace::set_stream_marks(nullptr);
  if (marks_ != nullptr) add_device_events(marks_->times_ns(), recording);
  return recording;
}

void write_trace(const std::string& path, const trace::Recording& recording, comm::Communicator& world) {
  const int64_t origin = common_begin(recording, world);
  std::string text = events_text(recording, origin, world.rank());
  if (world.rank() == 0) {
    write_all(path, std::move(text), recording, world);
  } else {
    send_text(text, recording.num_dropped, world);
  }
}

std::string readable_name(const std::string& name) {
  constexpr std::string_view kNode = "torch::autograd::CppNode<",
                             kEngine = "autograd::engine::evaluate_function: ";
  if (name.starts_with(kEngine)) return "engine: " + readable_name(name.substr(kEngine.size()));
  const auto last_part = [](const std::string& path) {
    const size_t colons = path.rfind("::");
    return colons == std::string::npos ? path : path.substr(colons + 2);
  };
  if (name.starts_with(kNode)) {
    std::string inner = name.substr(kNode.size());
    inner.resize(std::min(inner.size(), inner.rfind('>')));
    return last_part(inner) + " backward";
  }
  if (name.starts_with("tessera::") || name.starts_with("torch::")) return last_part(name);
  return name;
}

namespace {

// Returns events that nest, in the order of their begin: those of the recording thread, or those of the
// stream on which a device computes, whichever threads have filled it.
std::vector<const trace::Event*> summed_events(const trace::Recording& recording) {
  std::vector<const trace::Event*> own, of_device;
  for (const trace::Event& event : recording.events) {
    if (event.thread == 0) own.push_back(&event);
    if (is_of_device(event) && event.row != trace::Row::Communication) of_device.push_back(&event);
  }
  if (of_device.empty()) return own;
  std::stable_sort(of_device.begin(), of_device.end(), [](const trace::Event* a, const trace::Event* b) {
    return a->begin_ns != b->begin_ns ? a->begin_ns < b->begin_ns : a->end_ns > b->end_ns;
  });
  return of_device;
}

}  // namespace

std::vector<TraceLine> summarize(const trace::Recording& recording) {
  struct Total {
    int64_t self_ns = 0, count = 0;
  };
  std::map<std::string, Total> totals;
  struct Open {
    const trace::Event* event;
    Total* total;
  };
  std::vector<Open> stack;
  int64_t outside = recording.end_ns - recording.begin_ns;
  for (const trace::Event* event : summed_events(recording)) {
    while (!stack.empty() && stack.back().event->end_ns <= event->begin_ns) stack.pop_back();
    const int64_t duration = event->end_ns - event->begin_ns;
    Total& total = totals[readable_name(event->name)];
    total.self_ns += duration;
    ++total.count;
    (stack.empty() ? outside : stack.back().total->self_ns) -= duration;
    stack.push_back({event, &total});
  }
  const auto whole = static_cast<double>(std::max<int64_t>(1, recording.end_ns - recording.begin_ns));
  std::vector<TraceLine> lines;
  for (const auto& [name, total] : totals) {
    const auto self = static_cast<double>(total.self_ns);
    lines.push_back({name, 1e-9 * self, self / whole, total.count});
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const TraceLine& a, const TraceLine& b) { return a.self_s > b.self_s; });
  lines.push_back(
      {"(no event)", 1e-9 * static_cast<double>(outside), static_cast<double>(outside) / whole, 1});
  return lines;
}

}  // namespace tessera::measure

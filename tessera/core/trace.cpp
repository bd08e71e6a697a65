#include "tessera/core/trace.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

#include "tessera/core/stream_trace.h"

namespace tessera::trace {
namespace detail {

std::atomic<bool> g_is_on{false};

// The events of one thread. Its thread and stop() lock it.
struct Buffer {
  std::mutex mutex;
  std::vector<Event> events;
  std::vector<int64_t> open;  // innermost last
  // The spans of events whose work runs on a stream, with the index of the event.
  std::vector<std::pair<int64_t, StreamSpan>> spans;
  uint64_t recording = 0;
  int32_t thread = -1;  // number of the thread in this recording
};

}  // namespace detail

namespace {

using detail::Buffer;

struct Recorder {
  std::mutex mutex;
  std::vector<std::shared_ptr<Buffer>> buffers;
  std::atomic<uint64_t> recording{0};
  std::atomic<int64_t> num_events{0};
  std::atomic<int32_t> num_threads{0};
  int64_t max_events = 0;
  int64_t begin_ns = 0;
  std::atomic<StreamMarks*> marks{nullptr};
  std::vector<StreamSpan> spans;  // of the last recording
};

// Never destroyed: threads may end after main().
Recorder& recorder() {
  static auto* instance = new Recorder;
  return *instance;
}

// Gives the buffer of the calling thread: events are of the thread that runs them, whoever gave it the work.
Buffer& own_buffer() {
  thread_local const std::shared_ptr<Buffer> buffer = [] {
    auto made = std::make_shared<Buffer>();
    const std::lock_guard<std::mutex> lock(recorder().mutex);
    recorder().buffers.push_back(made);
    return made;
  }();
  return *buffer;
}

// Makes the buffer part of the current recording, and drops what it has of earlier ones.
void join_recording(Buffer& buffer, uint64_t recording) {
  if (buffer.recording == recording) return;
  buffer.recording = recording;
  buffer.events.clear();
  buffer.open.clear();
  buffer.spans.clear();
  buffer.thread = recorder().num_threads++;
}

bool runs_on_stream(const Event& event) {
  const std::string_view category = event.category;
  return event.row != Row::Wait && (category == "tessera" || category == "communication");
}

}  // namespace

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void start(int64_t max_events) {
  Recorder& all = recorder();
  const uint64_t recording = ++all.recording;
  all.num_events = 0;
  all.num_threads = 0;
  all.max_events = max_events;
  Buffer& buffer = own_buffer();
  const std::lock_guard<std::mutex> lock(buffer.mutex);
  join_recording(buffer, recording);
  all.begin_ns = now_ns();
  detail::g_is_on.store(true);
}

Recording stop() {
  detail::g_is_on.store(false);
  Recorder& all = recorder();
  Recording result;
  result.begin_ns = all.begin_ns;
  result.end_ns = now_ns();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::vector<std::shared_ptr<Buffer>> still_used;
  all.spans.clear();
  for (const auto& buffer : all.buffers) {
    const std::lock_guard<std::mutex> buffer_lock(buffer->mutex);
    if (buffer->recording == all.recording) {
      for (Event& event : buffer->events) {
        if (event.end_ns == 0) event.end_ns = result.end_ns;
        event.thread = buffer->thread;
        result.events.push_back(std::move(event));
      }
      for (auto& [index, span] : buffer->spans) {
        span.thread = buffer->thread;
        all.spans.push_back(std::move(span));
      }
    }
    buffer->events = {};
    buffer->spans = {};
    buffer->open.clear();
    buffer->recording = 0;
    if (buffer.use_count() > 1) still_used.push_back(buffer);
  }
  all.buffers = std::move(still_used);
  result.num_dropped = std::max<int64_t>(0, all.num_events - all.max_events);
  ++all.recording;  // scopes that are still open end in no recording
  return result;
}

OpenEvent begin(std::string_view name, const char* category, Row row, std::string_view detail) {
  Recorder& all = recorder();
  Buffer& buffer = own_buffer();
  const std::lock_guard<std::mutex> lock(buffer.mutex);
  if (!is_on() || all.num_events++ >= all.max_events) return {};
  join_recording(buffer, all.recording);
  Event event;
  event.name = name;
  event.detail = detail;
  event.category = category;
  event.row = row;
  if (row == Row::Inherit) {
    event.row = buffer.open.empty() ? Row::Compute : buffer.events[buffer.open.back()].row;
  }
  const OpenEvent open{&buffer, buffer.recording, static_cast<int64_t>(buffer.events.size())};
  if (StreamMarks* const marks = all.marks; marks != nullptr && runs_on_stream(event))
    buffer.spans.emplace_back(open.index,
                              StreamSpan{event.name, 0, event.row == Row::Communication, marks->mark(), -1});
  event.begin_ns = now_ns();
  buffer.events.push_back(std::move(event));
  buffer.open.push_back(open.index);
  return open;
}

void end(const OpenEvent& open) noexcept {
  const int64_t now = now_ns();
  const std::lock_guard<std::mutex> lock(open.buffer->mutex);
  if (open.buffer->recording != open.recording) return;
  open.buffer->events[open.index].end_ns = now;
  if (StreamMarks* const marks = recorder().marks; marks != nullptr) {
    // Scopes end in the reverse order of their begin, so the span is among the last.
    auto& spans = open.buffer->spans;
    const auto own = std::find_if(spans.rbegin(), spans.rend(),
                                  [&](const auto& span) { return span.first <= open.index; });
    if (own != spans.rend() && own->first == open.index) own->second.end = marks->mark();
  }
  if (!open.buffer->open.empty() && open.buffer->open.back() == open.index) open.buffer->open.pop_back();
}

void set_stream_marks(StreamMarks* marks) { recorder().marks = marks; }

std::vector<StreamSpan> take_stream_spans() {
  const std::lock_guard<std::mutex> lock(recorder().mutex);
  return std::exchange(recorder().spans, {});
}

void add_bytes(int64_t bytes) noexcept {
  if (!is_on()) return;
  Buffer& buffer = own_buffer();
  const std::lock_guard<std::mutex> lock(buffer.mutex);
  if (buffer.recording != recorder().recording || buffer.open.empty()) return;
  Event& innermost = buffer.events[buffer.open.back()];
  if (innermost.row == Row::Communication) innermost.bytes += bytes;
}

}  // namespace tessera::trace

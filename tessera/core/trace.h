// A recording of what this process does and when: nested scopes of every thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::trace {

// The row in which an event is drawn. Inherit is the row of the scope around it, and Compute for an outermost
// one.
enum class Row : uint8_t { Inherit, Compute, Communication, Wait };

struct Event {
  std::string name;
  std::string detail;  // may be empty
  const char* category = "";
  int64_t begin_ns = 0, end_ns = 0;  // on the machine's steady clock
  int64_t bytes = 0;                 // moved, where known
  Row row = Row::Compute;
  int32_t thread = 0;  // 0: the one that called start(); others in the order of their first event
};

struct Recording {
  int64_t begin_ns = 0, end_ns = 0;
  // The events of a thread are in the order of their begin; within a thread they nest.
  std::vector<Event> events;
  int64_t num_dropped = 0;  // events that came after the bound was reached
};

namespace detail {
extern std::atomic<bool> g_is_on;
struct Buffer;
}  // namespace detail

inline bool is_on() { return detail::g_is_on.load(std::memory_order_relaxed); }
int64_t now_ns();

// Records the scopes of every thread from now on, at most `max_events`. Call while no other thread is in a
// scope; one recording at a time.
void start(int64_t max_events);
// Ends the recording. Scopes that are still open end here.
Recording stop();

// An event from begin() to end(), for callers that cannot use a Scope. `category` must be a literal.
struct OpenEvent {
  detail::Buffer* buffer = nullptr;
  uint64_t recording = 0;
  int64_t index = -1;
};
OpenEvent begin(std::string_view name, const char* category, Row row = Row::Inherit,
                std::string_view detail = {});
void end(const OpenEvent& event) noexcept;
// Adds to the bytes of the innermost open event of this thread, if that is drawn as communication.
void add_bytes(int64_t bytes) noexcept;

// The event of a C++ scope; costs one load of a flag when nothing is recorded.
class Scope {
 public:
  explicit Scope(std::string_view name, const char* category = "tessera", Row row = Row::Inherit,
                 std::string_view detail = {}) {
    if (is_on()) event_ = begin(name, category, row, detail);
  }
  ~Scope() {
    if (event_.buffer != nullptr) end(event_);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  OpenEvent event_;
};

}  // namespace tessera::trace

#include "tessera/core/trace.h"

#include <atomic>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "tessera/core/stream_trace.h"

namespace tessera::trace {
namespace {

TEST(TraceTest, NothingIsRecordedWhileOff) {
  { const Scope scope("before"); }
  start(100);
  { const Scope scope("during"); }
  const Recording recording = stop();
  { const Scope scope("after"); }
  ASSERT_EQ(recording.events.size(), 1u);
  EXPECT_EQ(recording.events[0].name, "during");
  EXPECT_LE(recording.begin_ns, recording.events[0].begin_ns);
  EXPECT_LE(recording.events[0].end_ns, recording.end_ns);
  start(100);
  EXPECT_TRUE(stop().events.empty());
}

TEST(TraceTest, ScopesNestAndInheritTheirRow) {
  start(100);
  {
    const Scope outer("outer", "tessera", Row::Communication, "why");
    add_bytes(3);
    add_bytes(4);
    { const Scope inner("inner"); }
    const Scope waiting("waiting", "wait", Row::Wait);
  }
  {
    const Scope next("next");
    add_bytes(5);
  }
  const Recording recording = stop();
  ASSERT_EQ(recording.events.size(), 4u);
  const Event &outer = recording.events[0], &inner = recording.events[1], &waiting = recording.events[2];
  EXPECT_EQ(outer.bytes, 7);
  EXPECT_EQ(outer.detail, "why");
  EXPECT_EQ(inner.row, Row::Communication);
  EXPECT_EQ(waiting.row, Row::Wait);
  EXPECT_EQ(recording.events[3].row, Row::Compute);
  EXPECT_EQ(recording.events[3].bytes, 0);
  for (const Event* part : {&inner, &waiting}) {
    EXPECT_LE(outer.begin_ns, part->begin_ns);
    EXPECT_LE(part->begin_ns, part->end_ns);
    EXPECT_LE(part->end_ns, outer.end_ns);
  }
  EXPECT_LE(inner.end_ns, waiting.begin_ns);
}

TEST(TraceTest, ThreadsAreToldApart) {
  start(100);
  { const Scope scope("main"); }
  std::thread([] { const Scope scope("other"); }).join();
  const Recording recording = stop();
  ASSERT_EQ(recording.events.size(), 2u);
  EXPECT_EQ(recording.events[0].thread, 0);
  EXPECT_EQ(recording.events[1].name, "other");
  EXPECT_EQ(recording.events[1].thread, 1);
}

TEST(TraceTest, TheNumberOfEventsIsBounded) {
  start(10);
  for (int i = 0; i < 25; ++i) const Scope scope("event");
  const Recording recording = stop();
  EXPECT_EQ(recording.events.size(), 10u);
  EXPECT_EQ(recording.num_dropped, 15);
}

TEST(TraceTest, AScopeMayOutliveTheRecording) {
  {
    start(10);
    const Scope scope("open");
    const Recording recording = stop();
    ASSERT_EQ(recording.events.size(), 1u);
    EXPECT_EQ(recording.events[0].end_ns, recording.end_ns);
    start(10);
  }
  EXPECT_TRUE(stop().events.empty());
}

// Gives marks that are numbered in the order in which they are asked for.
class CountingMarks : public StreamMarks {
 public:
  int64_t mark() noexcept override { return next_++; }

 private:
  std::atomic<int64_t> next_{0};
};

TEST(TraceTest, ScopesOnAStreamAreBetweenTwoMarks) {
  CountingMarks marks;
  set_stream_marks(&marks);
  start(100);
  {
    const Scope outer("outer");                             // 0
    const OpenEvent operation = begin("aten::mm", "aten");  // LibTorch's own make no marks
    { const Scope inner("inner"); }                         // 1, 2
    end(operation);
    { const Scope waiting("waiting", "wait", Row::Wait); }              // none
    { const Scope sent("sent", "communication", Row::Communication); }  // 3, 4
  }                                                                     // 5
  std::thread([] { const Scope elsewhere("elsewhere"); }).join();       // 6, 7
  const Scope open("open");                                             // 8, and no end
  const Recording recording = stop();
  set_stream_marks(nullptr);
  EXPECT_EQ(recording.events.size(), 7u);
  const std::vector<StreamSpan> spans = take_stream_spans();
  ASSERT_EQ(spans.size(), 5u);
  const std::vector<std::tuple<std::string, int64_t, int64_t>> expected = {
      {"outer", 0, 5}, {"inner", 1, 2}, {"sent", 3, 4}, {"open", 8, -1}, {"elsewhere", 6, 7}};
  for (size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(std::tuple(spans[i].name, spans[i].begin, spans[i].end), expected[i]);
    EXPECT_EQ(spans[i].is_communication, spans[i].name == "sent");
    EXPECT_EQ(spans[i].thread, spans[i].name == "elsewhere" ? 1 : 0);
  }
  EXPECT_TRUE(take_stream_spans().empty()) << "given once";

  start(100);
  { const Scope scope("on the host alone"); }
  stop();
  EXPECT_TRUE(take_stream_spans().empty());
}

}  // namespace
}  // namespace tessera::trace

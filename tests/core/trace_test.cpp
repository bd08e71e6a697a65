#include "tessera/core/trace.h"

#include <thread>

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tessera::trace

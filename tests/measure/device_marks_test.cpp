// Tests of a device's times in the timeline of a step, with a device whose clock the test moves.
#include "tessera/measure/device_marks.h"

#include <algorithm>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/io/file.h"
#include "tessera/measure/step_trace.h"

#include "tests/testing/clock_device.h"
#include "tests/testing/temp_folder.h"

namespace tessera::measure {
namespace {

using testing::kClockDevice;
using testing::run_on_clock_device;

TEST(DeviceMarksTest, TimesAreOnTheHostsClock) {
  testing::install_clock_device();
  const int64_t before = trace::now_ns();
  DeviceMarks marks(kClockDevice);
  const int64_t after = trace::now_ns();
  EXPECT_EQ(marks.mark(), 0);
  run_on_clock_device(3.0);
  EXPECT_EQ(marks.mark(), 1);
  run_on_clock_device(0.25);
  EXPECT_EQ(marks.mark(), 2);
  const std::vector<int64_t> times = marks.times_ns();
  ASSERT_EQ(times.size(), 3u);
  EXPECT_GE(times[0], before);
  EXPECT_LE(times[0], after);
  EXPECT_EQ(times[1] - times[0], 3'000'000);
  EXPECT_EQ(times[2] - times[1], 250'000);
}

// Records a step as a GPU sees it: one thread launches the forward, another one the backward.
trace::Recording recorded_step(comm::Communicator& world) {
  StepTrace tracing(world);
  run_on_clock_device(1000.0);  // if the clock stood still, it would be behind the host's
  {
    const trace::Scope step("step");
    {
      const trace::Scope forward("forward");
      run_on_clock_device(2.0);
      const trace::Scope block("block");
      run_on_clock_device(5.0);
    }
    std::thread([] {
      const trace::Scope backward("backward");
      run_on_clock_device(12.0);
      const trace::Scope sum("sum", "communication", trace::Row::Communication);
      run_on_clock_device(1.0);
    }).join();
  }
  return tracing.stop();
}

TEST(DeviceMarksTest, AStepsTimelineHasTheDevicesTimes) {
  testing::install_clock_device();
  const auto world = comm::Communicator::single(kClockDevice);
  const int64_t events = testing::g_clock_device.num_events;
  const trace::Recording recording = recorded_step(*world);
  EXPECT_EQ(testing::g_clock_device.num_events, events) << "the marks end with the recording";

  const auto milliseconds_of = [&](const std::string& name) {
    const auto found = std::find_if(
        recording.events.begin(), recording.events.end(),
        [&](const trace::Event& event) { return event.name == name && event.thread >= kDeviceThreads; });
    return found == recording.events.end() ? -1.0
                                           : 1e-6 * static_cast<double>(found->end_ns - found->begin_ns);
  };
  EXPECT_NEAR(milliseconds_of("step"), 20.0, 1e-3);
  EXPECT_NEAR(milliseconds_of("forward"), 7.0, 1e-3);
  EXPECT_NEAR(milliseconds_of("block"), 5.0, 1e-3);
  EXPECT_NEAR(milliseconds_of("backward"), 13.0, 1e-3);
  EXPECT_NEAR(milliseconds_of("sum"), 1.0, 1e-3);

  // Lines are sorted by self time, whichever thread launched the work. Exchanges between ranks run beside the
  // computation.
  const std::vector<TraceLine> lines = summarize(recording);
  ASSERT_GE(lines.size(), 4u);
  EXPECT_EQ(lines[0].name, "backward");
  EXPECT_NEAR(lines[0].self_s, 13e-3, 1e-6);
  EXPECT_EQ(lines[1].name, "block");
  EXPECT_EQ(lines[2].name, "forward");
  EXPECT_NEAR(lines[2].self_s, 2e-3, 1e-6);

  const testing::TempFolder here;
  write_trace(here / "t.json", recording, *comm::Communicator::single());
  const auto json = nlohmann::json::parse(io::read_file(here / "t.json", 1 << 20));
  std::vector<std::string> rows;
  double forward_us = 0.0;
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("name") == "thread_name") rows.push_back(event.at("args").at("name"));
    if (event.at("name") == "forward" && event.at("cat") == "device") forward_us = event.at("dur");
  }
  EXPECT_EQ(std::count(rows.begin(), rows.end(), "device"), 1);
  EXPECT_EQ(std::count(rows.begin(), rows.end(), "device: communication"), 1);
  EXPECT_NEAR(forward_us, 7000.0, 1.0);
}

}  // namespace
}  // namespace tessera::measure

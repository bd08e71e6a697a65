#include "tessera/measure/step_trace.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/io/file.h"

#include "tests/testing/temp_folder.h"

namespace tessera::measure {
namespace {

trace::Event event(const std::string& name, int64_t begin, int64_t end, int32_t thread = 0) {
  trace::Event made;
  made.name = name;
  made.begin_ns = begin;
  made.end_ns = end;
  made.thread = thread;
  return made;
}

TEST(StepTraceTest, SelfTimeIsWithoutTheEventsInside) {
  trace::Recording recording;
  recording.begin_ns = 0;
  recording.end_ns = 1000;
  recording.events = {event("a", 0, 500),   event("b", 100, 300), event("c", 150, 200),
                      event("b", 300, 400), event("a", 500, 600), event("x", 0, 1000, 1)};
  const auto lines = summarize(recording);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].name, "a");
  EXPECT_NEAR(lines[0].self_s, 300e-9, 1e-15);
  EXPECT_EQ(lines[0].count, 2);
  EXPECT_EQ(lines[1].name, "b");
  EXPECT_NEAR(lines[1].share, 0.25, 1e-12);
  EXPECT_EQ(lines[2].name, "c");
  EXPECT_EQ(lines[3].name, "(no event)");
  EXPECT_NEAR(lines[3].share, 0.4, 1e-12);
  double sum = 0.0;
  for (const auto& line : lines) sum += line.share;
  EXPECT_NEAR(sum, 1.0, 1e-12);
}

TEST(StepTraceTest, Names) {
  EXPECT_EQ(readable_name("aten::mm"), "aten::mm");
  EXPECT_EQ(readable_name("torch::autograd::CppNode<tessera::ops::(anonymous namespace)::LinearFunction>"),
            "LinearFunction backward");
  EXPECT_EQ(readable_name("autograd::engine::evaluate_function: MulBackward0"), "engine: MulBackward0");
  EXPECT_EQ(readable_name("tessera::nn::TransformerBlock"), "TransformerBlock");
}

TEST(StepTraceTest, RecordsOperationsOnlyWhileItLives) {
  const auto world = comm::Communicator::single();
  const at::Tensor a = at::ones({8, 8});
  at::mm(a, a);
  trace::Recording recording;
  {
    StepTrace tracing(*world);
    const trace::Scope scope("outer", "tessera", trace::Row::Inherit, "a \"quoted\" detail");
    at::mm(a, a);
    recording = tracing.stop();
  }
  at::mm(a, a);
  const auto is_product = [](const trace::Event& e) { return e.name == "aten::mm"; };
  EXPECT_EQ(std::count_if(recording.events.begin(), recording.events.end(), is_product), 1);
  { StepTrace tracing(*world); }  // the destructor ends it
  EXPECT_FALSE(trace::is_on());

  testing::TempFolder here;
  recording.num_dropped = 5;
  write_trace(here / "t.json", recording, *world);
  const auto json = nlohmann::json::parse(io::read_file(here / "t.json", 1 << 20));
  EXPECT_EQ(json.at("otherData").at("dropped_events"), 5);
  EXPECT_TRUE(json.at("otherData").contains("note"));
  EXPECT_NE(json.dump().find("quoted"), std::string::npos);
}

}  // namespace
}  // namespace tessera::measure

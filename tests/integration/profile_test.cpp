// Tests of the time and memory that `bench train` reports.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tests/integration/fixture.h"

namespace tessera::testing {
namespace {

using ProfileTest = ProgramTest;
using Row = std::pair<int, int>;  // rank, row

Words bench(const Words& more) {
  Words arguments = {"bench", "train", "--model", "model", "--micro-batch", "1",
                     "--seq", "16",    "--steps", "2",     "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

int64_t nanoseconds(const nlohmann::json& microseconds) {
  return static_cast<int64_t>(std::llround(microseconds.get<double>() * 1000.0));
}

// Expects that events of a row lie inside each other or apart.
void expect_nesting(std::vector<nlohmann::json>& events) {
  std::stable_sort(events.begin(), events.end(), [](const auto& a, const auto& b) {
    if (a.at("ts") != b.at("ts"))
      return a.at("ts").template get<double>() < b.at("ts").template get<double>();
    return a.at("dur").template get<double>() > b.at("dur").template get<double>();
  });
  std::vector<int64_t> ends;
  for (const auto& event : events) {
    const int64_t begin = nanoseconds(event.at("ts")), end = begin + nanoseconds(event.at("dur"));
    ASSERT_GE(end, begin);
    while (!ends.empty() && ends.back() <= begin) ends.pop_back();
    if (!ends.empty()) {
      ASSERT_LE(end, ends.back()) << event;
    }
    ends.push_back(end);
  }
}

TEST_F(ProfileTest, TraceHoldsTheStepOfEveryRank) {
  for (const int ranks : {1, 2, 3}) {
    const ProgramResult result = run_well(bench({"--trace", "trace.json", "--nproc", std::to_string(ranks)}));
    for (const char* part : {"self time", "aten::", "trace.json"}) {
      EXPECT_NE(result.err.find(part), std::string::npos) << part << "\n" << result.told();
    }
    const auto trace = nlohmann::json::parse(read_text(here / "trace.json"));
    EXPECT_EQ(trace.at("otherData").at("ranks"), ranks);
    EXPECT_FALSE(trace.at("otherData").contains("dropped_events"));

    std::map<Row, std::string> row_names;
    std::map<Row, std::vector<nlohmann::json>> rows;
    std::map<int, std::set<std::string>> names;
    std::map<int, int64_t> bytes_moved;
    for (const auto& event : trace.at("traceEvents")) {
      const Row row = {event.at("pid"), event.at("tid")};
      if (event.at("ph") == "M") {
        if (event.at("name") == "thread_name") row_names[row] = event.at("args").at("name");
        continue;
      }
      ASSERT_EQ(event.at("ph"), "X");
      rows[row].push_back(event);
      names[row.first].insert(event.at("name").get<std::string>());
      if (event.contains("args")) bytes_moved[row.first] += event.at("args").value("bytes", int64_t{0});
    }
    ASSERT_EQ(names.size(), static_cast<size_t>(ranks));
    for (auto& [row, events] : rows) {
      ASSERT_TRUE(row_names.count(row)) << row.second;
      // An operation inside a parallel region stands in the row of the worker that ran it, so each row nests.
      expect_nesting(events);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      for (const char* name : {"forward", "backward", "optimizer", "TransformerBlock", "linear_cross_entropy",
                               "LinearFunction backward", "aten::mm"}) {
        EXPECT_TRUE(names[rank].count(name)) << name << " on rank " << rank;
      }
      std::set<std::string> filled;
      for (const auto& [row, events] : rows) {
        if (row.first == rank) filled.insert(row_names[row]);
      }
      EXPECT_TRUE(filled.count("compute"));
      EXPECT_EQ(filled.count("communication"), ranks > 1 ? 1u : 0u);
      EXPECT_EQ(filled.count("wait"), ranks > 1 ? 1u : 0u);
      EXPECT_EQ(bytes_moved[rank] > 0, ranks > 1) << rank;
    }
  }
}

TEST_F(ProfileTest, TraceThatCannotBeWritten) {
  for (const char* ranks : {"1", "2"}) {
    const ProgramResult result = run(bench({"--trace", "no/such/folder/t.json", "--nproc", ranks}));
    EXPECT_EQ(result.exit_code, 6) << result.told();
    EXPECT_EQ(result.error_lines().size(), 1u) << result.told();
    EXPECT_NE(result.err.find("no/such/folder"), std::string::npos) << result.told();
  }
}

TEST_F(ProfileTest, StepsFollowTheRecipesSchedule) {
  const ProgramResult result = run_well(bench({"lr_scheduler=constant_with_warmup", "warmup_steps=2"}));
  const auto losses = nlohmann::json::parse(ProgramResult::lines(result.out).back()).at("losses");
  ASSERT_EQ(losses.size(), 3U);
  EXPECT_EQ(losses[1], losses[0]) << "the first step of a warm-up has learning rate 0";
  EXPECT_LT(losses[2].get<double>(), losses[1].get<double>());
}

TEST_F(ProfileTest, MemoryOfThePeakAddsUp) {
  int64_t weights = 0;
  for (const TinyTensor& tensor : tiny_tensors(TinyModel())) {
    weights += static_cast<int64_t>(tensor.values.size());
  }
  for (const Words& more :
       {Words{}, Words{"--adapter", "lora"}, Words{"--nproc", "2"}, Words{"optimizer=sgd"}}) {
    const ProgramResult result = run_well(bench(more));
    const auto json = nlohmann::json::parse(ProgramResult::lines(result.out).back());
    const auto& parts = json.at("peak_bytes");
    int64_t sum = 0;
    for (const auto& part : parts.items()) {
      EXPECT_GE(part.value().get<int64_t>(), 0) << part.key();
      sum += part.value().get<int64_t>();
    }
    EXPECT_EQ(sum, json.at("peak_rss_bytes").get<int64_t>()) << result.told();
    EXPECT_GT(json.at("activation_bytes_per_token_per_layer").get<double>(), 0.0);
    if (more == Words{"--nproc", "2"}) {
      EXPECT_GT(parts.at("gathered parameters").get<int64_t>(), 0) << result.told();
    }
    if (more == Words{"optimizer=sgd"}) {
      EXPECT_LE(parts.at("optimizer state").get<int64_t>(), 4096) << "gradient descent keeps no states";
    }
    if (more.empty()) {
      // The optimizer keeps two moments for each weight, and a step count for each parameter.
      EXPECT_EQ(parts.at("parameters").get<int64_t>(), 4 * weights);
      EXPECT_GE(parts.at("optimizer state").get<int64_t>(), 2 * 4 * weights);
      EXPECT_LE(parts.at("optimizer state").get<int64_t>(), 2 * 4 * weights + 4096);
      EXPECT_EQ(parts.at("gathered parameters").get<int64_t>(), 0);
    }
  }
}

}  // namespace
}  // namespace tessera::testing

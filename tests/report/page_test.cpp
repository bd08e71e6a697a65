#include "tessera/report/page.h"

#include <algorithm>
#include <cstdlib>

#include <gtest/gtest.h>

#include "tessera/report/run_clock.h"
#include "tessera/report/run_marks.h"
#include "tessera/report/run_summary.h"

namespace tessera::report {
namespace {

RunRecord run_of(const std::string& name, int64_t num_steps, double loss) {
  RunRecord run;
  run.name = name;
  for (int64_t step = 1; step <= num_steps; ++step) {
    run.steps.push_back({step,
                         {{"loss", loss / static_cast<double>(step)},
                          {"lr", 1e-3},
                          {"tokens", 100},
                          {"step_s", 0.5},
                          {"tokens_per_s", 200},
                          {"losses/chats", loss},
                          {"losses/books", loss},
                          {"traffic/tp/wait_s", 0.125},
                          {"traffic/tp/bytes_sent", 4096},
                          {"brand_new", 7}}});
  }
  run.evaluations.push_back({num_steps, {{"eval_loss", 0.75}, {"eval_losses/chats", 0.5}}});
  run.recipe = "base_model: m\nlearning_rate: " + std::to_string(loss) + "\ndatasets:\n  - path: a.jsonl\n";
  return run;
}

std::vector<std::string> titles(const std::string& html) {
  std::vector<std::string> found;
  const std::string tag = "<figcaption>";
  for (size_t at = html.find(tag); at != std::string::npos; at = html.find(tag, at + 1)) {
    const size_t begin = at + tag.size();
    found.push_back(html.substr(begin, html.find('<', begin) - begin));
  }
  return found;
}

size_t count(const std::string& text, const std::string& part) {
  size_t number = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++number;
  return number;
}

TEST(Page, OneRun) {
  const std::string html = page({run_of("only", 5, 2.0)});
  EXPECT_EQ(titles(html),
            (std::vector<std::string>{"Loss", "Loss by dataset", "Learning rate", "Tokens per second",
                                      "Time per step", "Time per step by section: only",
                                      "Bytes sent per step, first rank", "brand_new"}));
  EXPECT_TRUE(html.starts_with(kPageBegin));
  EXPECT_EQ(html.find("http://", html.find("</script>")), std::string::npos);
  for (const char* outside : {"src=", "href=", "@import", "url("}) {
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  }
  EXPECT_EQ(count(html, "<figure>"), count(html, "</figure>"));
  EXPECT_EQ(html.find("Where the recipes differ"), std::string::npos);
}

TEST(Page, TheReaderChoosesAxesIfThereIsAScript) {
  RunRecord run = run_of("a<i>\"", 3, 2.0);
  for (Record& record : run.steps) record.numbers["tokens_seen"] = 100.0 * static_cast<double>(record.step);
  const std::string html = page({run, run_of("b", 1, 2.0)});
  EXPECT_NE(html.find("<form class=\"choices\" hidden>"), std::string::npos);
  EXPECT_NE(html.find("data-name=\"a&lt;i&gt;&quot;\" data-tokens=\"1,100 2,200 3,300\" "
                      "data-seconds=\"1,0.5 2,1 3,1.5\""),
            std::string::npos);
  EXPECT_NE(html.find("data-name=\"b\" data-tokens=\"\" data-seconds=\"1,0.5\""), std::string::npos);
  EXPECT_EQ(count(html, "<script>"), 1U);
  EXPECT_EQ(count(html, "</script>"), 1U);
}

TEST(Page, CheckpointsAndWarningsAreMarks) {
  RunRecord run = run_of("a", 5, 2.0);
  run.checkpoints = {2, 4};
  run.steps[1].numbers["skipped_steps"] = 1;
  run.steps[2].missing.insert("loss");
  for (const size_t i : {3U, 4U}) run.steps[i].numbers["straggler/rank"] = 7;
  std::vector<std::string> told;
  for (const Mark& mark : marks_of(run))
    told.push_back(std::to_string(mark.step) + (mark.is_warning ? " ! " : " ") + mark.text);
  EXPECT_EQ(told, (std::vector<std::string>{"2 ! 1 step without an update", "2 checkpoint",
                                            "3 ! the loss is not finite", "4 ! rank 7 slows the others down",
                                            "4 checkpoint"}));
  EXPECT_NE(page({run}).find("data-marks=\"[{&quot;step&quot;:2,&quot;kind&quot;:&quot;warning&quot;"),
            std::string::npos);
}

TEST(Page, SeveralRunsAreCompared) {
  const std::string html = page({run_of("a", 5, 2.0), run_of("b<i>", 100, 3.0)});
  const std::vector<std::string> charts = titles(html);
  for (const char* title : {"Loss of chats", "Loss of books", "Time per step by section: a"}) {
    EXPECT_NE(std::find(charts.begin(), charts.end(), title), charts.end()) << title;
  }
  EXPECT_EQ(html.find("b<i>"), std::string::npos);
  EXPECT_NE(html.find("b&lt;i&gt;"), std::string::npos);
  EXPECT_NE(html.find("Where the recipes differ"), std::string::npos);
}

TEST(Page, WaitingForDataIsASectionWhereItIsKnown) {
  RunRecord run = run_of("a", 5, 2.0);
  EXPECT_EQ(page({run}).find("wait for data"), std::string::npos);
  for (Record& record : run.steps) record.numbers["data_wait_s"] = 0.25;
  const std::string html = page({run});
  EXPECT_NE(html.find("wait for data"), std::string::npos);
  EXPECT_NE(html.find("wait for tp"), std::string::npos);
}

TEST(Page, OneOfSeveralRunsIsNamedWhereItAloneHasPoints) {
  RunRecord first = run_of("a", 5, 2.0), second = run_of("b", 5, 2.0);
  for (Record& record : second.steps) record.numbers["own"] = 1;
  const auto legend_of_own = [](const std::string& html) {
    const size_t begin = html.find("<figcaption>own");
    return html.substr(begin, html.find("<svg", begin) - begin);
  };
  EXPECT_NE(legend_of_own(page({first, second})).find(">b<"), std::string::npos);
  EXPECT_EQ(legend_of_own(page({second})).find("legend"), std::string::npos);
}

TEST(Page, SamplesOfTheNewestEvaluationAreOpenAndTextsAreNoHtml) {
  RunRecord run = run_of("a<i>", 5, 2.0);
  EXPECT_EQ(page({run}).find("<section class=\"samples\">"), std::string::npos);
  for (int64_t step = 1; step <= 50; ++step) {
    run.samples.push_back(
        {step, {{"", "<b>Hi", "\x1b[1m</td>", "<script>alert(1)</script>", step == 50 ? "length" : "stop"}}});
  }
  run.samples.back().rows.push_back({"d&", std::string(2000, 'x'), "", "", "not finite"});
  const std::string html = page({run});
  EXPECT_EQ(count(html, "<script>"), 1U);
  EXPECT_EQ(html.find("<b>Hi"), std::string::npos);
  EXPECT_NE(html.find("Samples of a&lt;i&gt;"), std::string::npos);
  EXPECT_NE(html.find("<details open><summary>after step 50</summary>"), std::string::npos);
  // The page shows every third of 50 evaluations.
  EXPECT_EQ(count(html, "<summary>after step "), 17U);
  EXPECT_NE(html.find("<details><summary>after step 47</summary>"), std::string::npos);
  EXPECT_NE(html.find("&lt;script&gt;alert(1)&lt;/script&gt;<span class=\"note\"> … cut</span></td>"),
            std::string::npos);
  EXPECT_NE(html.find("<th scope=\"row\">2 d&amp;</th><td data-name=\"prompt\"><div tabindex=\"0\">xxx"),
            std::string::npos);
  EXPECT_NE(html.find("<span class=\"note\"> not finite</span>"), std::string::npos);
}

TEST(Page, ARunWithoutALineYet) {
  RunRecord run;
  run.name = "young";
  const std::string html = page({run});
  EXPECT_TRUE(titles(html).empty());
  EXPECT_NE(html.find("young"), std::string::npos);
}

TEST(RunSummary, ColumnsThatSomeRunHas) {
  const Table table = summary({run_of("a", 4, 2.0)});
  ASSERT_EQ(table.size(), 2U);
  ASSERT_EQ(table[0].size(), table[1].size());
  const auto cell = [&](const std::string& column) {
    const auto at = std::find(table[0].begin(), table[0].end(), column);
    return at == table[0].end() ? "none" : table[1][static_cast<size_t>(at - table[0].begin())];
  };
  EXPECT_EQ(cell("run"), "a");
  EXPECT_EQ(cell("steps"), "4");
  EXPECT_EQ(cell("tokens"), "400");
  EXPECT_EQ(cell("time of all steps"), "2s");
  EXPECT_EQ(cell("final loss"), "0.5");
  EXPECT_EQ(cell("best evaluation"), "0.75 (step 4)");
  EXPECT_EQ(cell("MFU, median"), "none");
}

TEST(RunClock, TimeHasTheStepsBetweenLinesAndStalls) {
  RunRecord run;
  run.steps = {{10, {{"step_s", 0.5}, {"tokens_seen", 100}}},
               {20, {{"save_stall_s", 2}}},
               {30, {{"step_s", 1}, {"save_stall_s", 1}, {"tokens_seen", 300}}},
               {25, {{"tokens_seen", 250}}},
               {40, {{"step_s", 1}, {"tokens_seen", 400}}}};
  const RunClock clock = clock_of(run);
  EXPECT_EQ(clock.tokens, (Points{{10, 100}, {30, 300}, {40, 400}}));
  EXPECT_EQ(clock.seconds, (Points{{10, 5}, {30, 28}, {40, 38}}));
  EXPECT_TRUE(clock_of({}).seconds.empty());
}

TEST(RunSummary, KeysOfRecipesThatDiffer) {
  RunRecord first = run_of("a", 1, 2.0), second = run_of("b", 1, 3.0);
  second.recipe += "seed: 3\n";
  RunRecord without;
  const Table table = recipe_differences({first, second, without});
  EXPECT_EQ(table, (Table{{"key", "a", "b"}, {"learning_rate", "2.000000", "3.000000"}, {"seed", "", "3"}}));
}

}  // namespace
}  // namespace tessera::report

#include "tessera/report/line_chart.h"

#include <cmath>
#include <regex>

#include <gtest/gtest.h>

#include "tessera/report/points.h"

namespace tessera::report {
namespace {

// Returns all numbers that the attribute holds in any element.
std::vector<double> numbers(const std::string& svg, const std::string& attribute) {
  std::vector<double> found;
  const std::regex pattern(" " + attribute + "=\"([^\"]*)\"");
  for (std::sregex_iterator at(svg.begin(), svg.end(), pattern), end; at != end; ++at) {
    const std::string text = (*at)[1];
    const std::regex number("[-0-9.e+]+");
    for (std::sregex_iterator one(text.begin(), text.end(), number); one != end; ++one) {
      found.push_back(std::stod((*one)[0]));
    }
  }
  return found;
}

TEST(LineChart, NumbersForPeople) {
  EXPECT_EQ(format_number(0.3125), "0.3125");
  EXPECT_EQ(format_number(9999), "9999");
  EXPECT_EQ(format_number(1234567), "1.235M");
  EXPECT_EQ(format_number(2e-5), "2e-05");
  EXPECT_EQ(format_number(1.5 * 1024 * 1024 * 1024, Unit::Bytes), "1.5 GiB");
  EXPECT_EQ(format_number(0.0125, Unit::Seconds), "12.5 ms");
  EXPECT_EQ(format_number(2, Unit::Seconds), "2 s");
}

// A run that diverges does not make the other runs unreadable.
TEST(LineChart, FewValuesFarAboveAreCut) {
  Chart chart{"Loss"};
  Points usual, diverging;
  for (int step = 1; step <= 100; ++step) {
    usual.emplace_back(step, 3.0 - step * 0.02);
    diverging.emplace_back(step, step < 98 ? 2.0 : 1e9);
  }
  chart.series = {{"usual", usual}, {"diverging", diverging, 1}};
  const auto height_of_usual = [&](const std::string& svg) {
    const std::regex pattern("data-name=\"usual\"[^>]* points=\"[0-9.]+,([0-9.]+) .*? [0-9.]+,([0-9.]+)\"");
    std::smatch found;
    EXPECT_TRUE(std::regex_search(svg, found, pattern));
    return std::stod(found[2]) - std::stod(found[1]);
  };
  EXPECT_LT(height_of_usual(figure(chart)), 1.0);
  chart.cuts_outliers = true;
  const std::string svg = figure(chart);
  EXPECT_GT(height_of_usual(svg), 100.0);
  EXPECT_NE(svg.find("Loss<span class=\"note\"> (cut above; the highest is 1G)"), std::string::npos);
  for (const double at : numbers(svg, "points")) EXPECT_GE(at, 0.0);
  chart.series.pop_back();
  EXPECT_EQ(figure(chart).find("cut above"), std::string::npos);
}

TEST(LineChart, HigherValuesLieHigherWithinTheFrame) {
  for (const bool is_log : {false, true}) {
    Chart chart{"Loss"};
    chart.is_log = is_log;
    chart.series.push_back({"run", {{1, 4.0}, {10, 2.0}, {20, 1.0}}});
    const std::vector<double> points = numbers(figure(chart), "points");
    ASSERT_EQ(points.size(), 6U);
    EXPECT_LT(points[0], points[2]);
    EXPECT_LT(points[2], points[4]);
    EXPECT_LT(points[1], points[3]);
    EXPECT_LT(points[3], points[5]);
    // Steps are placed linearly. Values are too, unless the axis is logarithmic: halving one is then one
    // distance.
    EXPECT_NEAR((points[4] - points[0]) / (points[2] - points[0]), 19.0 / 9.0, 1e-2);
    const double share = (points[5] - points[3]) / (points[3] - points[1]);
    EXPECT_NEAR(share, is_log ? 1.0 : 0.5, 1e-2);
    for (size_t i = 0; i < points.size(); i += 2) {
      EXPECT_TRUE(points[i] >= 0 && points[i] <= 560 && points[i + 1] >= 0 &&
                  points[i + 1] <= Frame::kHeight);
    }
  }
}

TEST(LineChart, AnyValuesMakeAChart) {
  const std::vector<Points> cases = {{{1, 0.0}},
                                     {{5, 3.0}},
                                     {{1, 1e-300}, {2, 1e300}},
                                     {{0, -2}, {1, -2}},
                                     {{1000000, 1}, {1000001, 2}},
                                     {{1, 200.0}, {2, std::nextafter(200.0, 300.0)}}};
  for (const Points& points : cases) {
    for (const bool is_log : {false, true}) {
      if (is_log && points.front().second <= 0.0) continue;
      Chart chart{"x"};
      chart.is_log = is_log;
      chart.series.push_back({"run", points});
      const std::string svg = figure(chart);
      EXPECT_EQ(svg.find("nan"), std::string::npos) << svg;
      EXPECT_EQ(svg.find("inf"), std::string::npos) << svg;
      EXPECT_LT(svg.size(), 20000U);
    }
  }
}

TEST(LineChart, AreasStandOnEachOther) {
  Chart chart{"Time", Unit::Seconds};
  chart.is_stacked = true;
  chart.series = {{"compute", {{1, 3}, {2, 3}}}, {"wait", {{1, 1}, {2, 1}}, 1}};
  const std::string svg = figure(chart);
  const std::vector<double> points = numbers(svg, "points");
  // Each area has two points of its top, then two of its floor.
  ASSERT_EQ(points.size(), 16U);
  EXPECT_DOUBLE_EQ(points[1], points[15]);  // the top of the first is the floor of the second
  const double per_second = (points[7] - points[1]) / 3;
  EXPECT_NEAR(points[15] - points[9], per_second, 0.2);
  EXPECT_NE(svg.find("data-name=\"wait\" data-run=\"0\" data-values=\"1,1 2,1\""), std::string::npos) << svg;
}

TEST(LineChart, AxesHaveNamesWithUnits) {
  struct Case {
    Unit unit;
    const char* axis;
    double value;
    const char* told;
  };
  const Case cases[] = {{Unit::None, "learning rate", 0.01, ">learning rate<"},
                        {Unit::None, "", 0.01, ">Title<"},
                        {Unit::None, "a<b", 0.01, ">a&lt;b<"},
                        {Unit::Seconds, "time", 0.0125, ">time (ms)<"},
                        {Unit::Seconds, "time", 90, ">time (s)<"},
                        {Unit::Seconds, "time", 9000, ">time (h)<"},
                        {Unit::Bytes, "memory", 3e9, ">memory (GiB)<"}};
  for (const Case& one : cases) {
    Chart chart{"Title", one.unit, one.axis};
    chart.series = {{"run", {{1, one.value}, {2, one.value / 2}}}};
    const std::string svg = figure(chart);
    EXPECT_NE(svg.find("rotate(-90)\"" + std::string(one.told)), std::string::npos) << one.told << svg;
    EXPECT_NE(svg.find(">step<"), std::string::npos) << svg;
  }
}

TEST(LineChart, ANarrowLogarithmicAxisHasTicks) {
  EXPECT_EQ(log_ticks(0.9, 110), (std::vector<double>{1, 2, 5, 10, 20, 50, 100}));
  EXPECT_GE(log_ticks(2.1, 2.9).size(), 3U);
  EXPECT_LE(log_ticks(1e-300, 1e300).size(), 10U);
}

// The page's script draws from these attributes: every series once, with means where points were left out.
TEST(LineChart, TheScriptFindsWhatIsDrawn) {
  Points few, many;
  for (int step = 1; step <= 3000; ++step) (step <= 100 ? few : many).emplace_back(step, step % 7);
  Chart chart{"Loss"};
  chart.series = {{.name = "few", .points = few, .run = 1, .is_noisy = true},
                  {.name = "many", .points = many, .run = 2, .num_missing = 3}};
  const std::string svg = figure(chart);
  const std::string few_drawn =
      svg.substr(svg.find("<polyline"), svg.find("data-run=\"2\"") - svg.find("<polyline"));
  EXPECT_EQ(few_drawn.find(
                "<polyline class=\"color-0 faint\" data-name=\"few\" data-run=\"1\" data-values=\"1,1 2,2 "),
            0U);
  EXPECT_NE(few_drawn.find("/><polyline class=\"color-0\" points="), std::string::npos);
  EXPECT_EQ(few_drawn.find("data-means"), std::string::npos);
  EXPECT_EQ(numbers(svg, "data-means").size(), 2 * 290U);
  EXPECT_NE(svg.find("<span class=\"missing\"> (3 values that are not finite left out)"), std::string::npos);
  EXPECT_EQ(numbers(svg, "data-box"),
            (std::vector<double>{Frame::kLeft, Frame::kRight, Frame::kTop, Frame::kBottom}));
}

TEST(LineChart, WithoutPointsThereIsNoFigure) {
  for (const bool is_stacked : {false, true}) {
    Chart chart{"Loss"};
    chart.is_stacked = is_stacked;
    EXPECT_EQ(figure(chart), "");
    chart.series = {{"empty", {}}, {"empty too", {}, 1}};
    EXPECT_EQ(figure(chart), "");
  }
}

TEST(LineChart, NamesAreText) {
  Chart chart{"<b>"};
  chart.series = {{"a\"b", {{1, 1}}}, {"</svg>", {{1, 2}}, 1}};
  const std::string svg = figure(chart);
  EXPECT_EQ(svg.find("<b>"), std::string::npos);
  EXPECT_EQ(svg.find("a\"b"), std::string::npos);
  EXPECT_EQ(svg.find("</svg>"), svg.rfind("</svg>"));
}

TEST(LineChart, ThinningKeepsExtremes) {
  Points points;
  for (int i = 0; i < 10000; ++i) points.emplace_back(i, std::sin(i * 0.001));
  points[777].second = 9.0;
  points[5555].second = -9.0;
  const Points thinned = thin(points, 100);
  EXPECT_LE(thinned.size(), 100U);
  EXPECT_NE(std::find(thinned.begin(), thinned.end(), points[777]), thinned.end());
  EXPECT_NE(std::find(thinned.begin(), thinned.end(), points[5555]), thinned.end());
  for (size_t i = 1; i < thinned.size(); ++i) EXPECT_LT(thinned[i - 1].first, thinned[i].first);
  EXPECT_EQ(thin(points, 20000), points);
}

TEST(LineChart, SamplesKeepTheLastPoint) {
  Points points;
  for (int i = 0; i < 1000; ++i) points.emplace_back(i, i);
  const Points kept = sample(points, 100);
  EXPECT_LE(kept.size(), 101U);
  EXPECT_EQ(kept.front(), points.front());
  EXPECT_EQ(kept.back(), points.back());
  EXPECT_EQ(sample(points, 1000), points);
}

TEST(LineChart, SmoothingIsAMeanWithHalfLife) {
  Points steps(100, {0, 1.0});
  for (const auto& [step, value] : smooth(steps, 3)) EXPECT_NEAR(value, 1.0, 1e-12);
  // A change is half seen after one half-life, once the past is long.
  Points change(200, {0, 0.0});
  for (int i = 0; i < 4; ++i) change.emplace_back(0, 1.0);
  EXPECT_NEAR(smooth(change, 4).back().second, 0.5, 1e-9);
}

}  // namespace
}  // namespace tessera::report

#include "tessera/report/line_chart.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>

#include "tessera/core/html_text.h"
#include "tessera/report/points.h"

namespace tessera::report {
namespace {

constexpr int kNumColors = 10;
// A series of fewer points than this is shown as it is.
constexpr size_t kMinToSmooth = 60;

// Widens a range that is no more than rounding.
void widen(double& low, double& high) {
  const double largest = std::max(std::abs(low), std::abs(high));
  if (high - low > 1e-9 * largest) return;
  const double margin = largest == 0.0 ? 1.0 : largest * 0.5;
  low -= margin;
  high += margin;
}

Frame frame_of(const std::vector<Series>& series, bool is_log, bool from_zero) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Frame frame{kInfinity, -kInfinity, kInfinity, -kInfinity, is_log};
  for (const Series& one : series) {
    for (const auto& [step, value] : one.points) {
      frame.first_step = std::min(frame.first_step, step);
      frame.last_step = std::max(frame.last_step, step);
      frame.low = std::min(frame.low, value);
      frame.high = std::max(frame.high, value);
    }
  }
  if (from_zero) frame.low = std::min(frame.low, 0.0);
  if (frame.last_step <= frame.first_step) frame.last_step = frame.first_step + 1;
  if (is_log) {
    frame.low *= 0.9;
    frame.high *= 1.1;
  } else {
    widen(frame.low, frame.high);
    const double margin = (frame.high - frame.low) * 0.05;
    frame.high += margin;
    if (frame.low != 0.0) frame.low -= margin;
  }
  return frame;
}

// Gives a limit that nearly all values are below, if a few values are far above it; else nothing.
std::optional<double> outlier_limit(const std::vector<Series>& series) {
  constexpr double kMostOthers = 0.95, kFar = 10.0, kRoom = 1.5;
  std::vector<double> values;
  for (const Series& one : series) {
    for (const auto& [step, value] : one.points) values.push_back(value);
  }
  if (values.empty()) return std::nullopt;
  std::ranges::sort(values);
  const double low = values.front();
  const double usual =
      values[static_cast<size_t>(kMostOthers * static_cast<double>(values.size() - 1))] - low;
  const bool is_far = usual > 0.0 && values.back() - low > kFar * usual;
  return is_far ? std::optional(low + kRoom * usual) : std::nullopt;
}

std::string coordinates(const Frame& frame, const Points& points) {
  std::string text;
  for (const auto& [step, value] : points) {
    text +=
        (text.empty() ? "" : " ") + printed("%.1f", frame.x(step)) + "," + printed("%.1f", frame.y(value));
  }
  return text;
}

std::string color_class(const Series& series) { return "color-" + std::to_string(series.color % kNumColors); }

// Writes the attributes from which the page's script draws a series and tells its values.
std::string series_data(const Series& series, const Points& shown) {
  std::string text = " data-name=\"" + html_text(series.name) + "\" data-run=\"" +
                     std::to_string(series.run) + "\" data-values=\"" + data_text(shown) + "\"";
  // Extremes would mislead a mean.
  if (shown.size() < series.points.size()) {
    text += " data-means=\"" + data_text(average(series.points, kMaxPoints / 2)) + "\"";
  }
  return text;
}

std::string polyline(const std::string& classes, const std::string& attributes, const Frame& frame,
                     const Points& points) {
  return "<polyline class=\"" + classes + "\"" + attributes + " points=\"" + coordinates(frame, points) +
         "\"/>";
}

std::string drawn(const Series& series, const Frame& frame) {
  const Points points = thin(series.points, kMaxPoints);
  const std::string color = color_class(series);
  if (series.is_noisy && series.points.size() >= kMinToSmooth) {
    const Points means = smooth(series.points, static_cast<double>(series.points.size()) / 50);
    return polyline(color + " faint", series_data(series, points), frame, points) +
           polyline(color, "", frame, thin(means, kMaxPoints));
  }
  std::string svg =
      polyline(color + (series.is_dashed ? " dashed" : ""), series_data(series, points), frame, points);
  // Few points get circles: a line of one point would not be seen, nor points that lie apart.
  if (points.size() > 40) return svg;
  for (const auto& [step, value] : points) {
    svg += "<circle class=\"" + color + "\" cx=\"" + printed("%.1f", frame.x(step)) + "\" cy=\"" +
           printed("%.1f", frame.y(value)) + "\" r=\"2.5\"/>";
  }
  return svg;
}

// Draws the series as areas, each from the top of the one before.
std::string drawn_stack(const std::vector<Series>& series, const Frame& frame,
                        const std::vector<Points>& tops) {
  std::string svg;
  for (size_t i = 0; i < series.size(); ++i) {
    Points outline = tops[i];
    for (size_t j = outline.size(); j-- > 0;) {
      outline.emplace_back(tops[i][j].first, i == 0 ? 0.0 : tops[i - 1][j].second);
    }
    svg += "<polygon class=\"" + color_class(series[i]) + " area\"" +
           series_data(series[i], series[i].points) + " points=\"" + coordinates(frame, outline) + "\"/>";
  }
  return svg;
}

std::string legend(const std::vector<Series>& series) {
  std::string html;
  for (const Series& one : series) {
    html += "<span class=\"key " + color_class(one) + (one.is_dashed ? " dashed" : "") + "\">" +
            html_text(one.name) + "</span>";
  }
  return "<div class=\"legend\">" + html + "</div>";
}

// Takes means of the series of a stack, and gives the tops of their areas.
std::vector<Points> stack(std::vector<Series>& series) {
  std::vector<Points> tops;
  for (Series& one : series) {
    one.points = average(one.points, kMaxPoints / 2);
    tops.push_back(one.points);
    if (tops.size() == 1) continue;
    for (size_t j = 0; j < one.points.size(); ++j) tops.back()[j].second += tops[tops.size() - 2][j].second;
  }
  return tops;
}

// Cuts the values of `extent` at the limit, and gives the highest that there was.
double cut(std::vector<Series>& extent, double limit) {
  double highest = limit;
  for (Series& one : extent) {
    for (auto& [step, value] : one.points) {
      highest = std::max(highest, value);
      value = std::min(value, limit);
    }
  }
  return highest;
}

std::string missing_note(const Chart& chart) {
  size_t count = 0;
  for (const Series& one : chart.series) count += one.num_missing;
  if (count == 0) return "";
  return "<span class=\"missing\"> (" + std::to_string(count) +
         (count == 1 ? " value that is" : " values that are") + " not finite left out)</span>";
}

// Writes the attributes of the plot that the page's script needs; `limit` is one of them, or empty.
std::string plot_data(const Chart& chart, const std::string& axis, const std::string& limit) {
  return "data-axis=\"" + html_text(axis) + "\" data-unit=\"" + unit_name(chart.unit) + "\"" +
         (chart.is_log ? " data-log" : "") + limit + " data-box=\"" + printed("%g ", Frame::kLeft) +
         printed("%g ", Frame::kRight) + printed("%g ", Frame::kTop) + printed("%g", Frame::kBottom) + "\"";
}

}  // namespace

std::string data_text(const Points& points) {
  std::string text;
  for (const auto& [step, value] : points) {
    text += (text.empty() ? "" : " ") + printed("%.10g", step) + "," + printed("%.6g", value);
  }
  return text;
}

bool Chart::is_empty() const {
  return std::all_of(series.begin(), series.end(), [](const Series& one) { return one.points.empty(); });
}

std::string figure(const Chart& chart) {
  std::vector<Series> series;
  for (const Series& one : chart.series) {
    if (!one.points.empty()) series.push_back(one);
  }
  if (series.empty()) return "";
  const std::vector<Points> tops = chart.is_stacked ? stack(series) : std::vector<Points>();
  std::vector<Series> extent = series;
  if (chart.is_stacked) extent.back().points = tops.back();
  const auto limit = chart.cuts_outliers ? outlier_limit(series) : std::nullopt;
  std::string note, limit_data;
  if (limit) {
    limit_data = " data-limit=\"" + printed("%.6g", *limit) + "\"";
    note = "<span class=\"note\"> (cut above; the highest is " +
           format_number(cut(extent, *limit), chart.unit) + ")</span>";
  }
  note += missing_note(chart);
  const Frame frame = frame_of(extent, chart.is_log, chart.is_stacked);
  const std::string title = html_text(chart.title), axis = chart.axis.empty() ? chart.title : chart.axis;
  std::string plot = axes(frame, axis, chart.unit);
  if (chart.is_stacked) plot += drawn_stack(series, frame, tops);
  for (const Series& one : series) {
    if (!chart.is_stacked) plot += drawn(one, frame);
  }
  // If one series alone has points, the legend still says which one of several it is.
  return "<figure><figcaption>" + title + note + "</figcaption>" +
         (chart.series.size() > 1 ? legend(series) : "") + "<svg role=\"img\" aria-label=\"" + title +
         "\" viewBox=\"0 0 " + printed("%g", Frame::kWidth) + " " + printed("%g", Frame::kHeight) + "\" " +
         plot_data(chart, axis, limit_data) + ">" + plot + "</svg></figure>\n";
}

}  // namespace tessera::report

#include "tessera/report/line_chart.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <optional>

#include "tessera/core/html_text.h"

namespace tessera::report {
namespace {

constexpr double kWidth = 560, kHeight = 260;
constexpr double kLeft = 76, kRight = 20, kTop = 10, kBottom = 28;
constexpr size_t kMaxPoints = 600;
constexpr int kNumColors = 10;

std::string printed(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string scaled(double value, double base, const std::vector<const char*>& suffixes) {
  size_t place = 0;
  while (place + 1 < suffixes.size() && std::abs(value) >= base) {
    value /= base;
    ++place;
  }
  return printed("%.4g", value) + suffixes[place];
}

// The plot's rectangle, and the place of a value in it.
struct Frame {
  double first_step, last_step, low, high;
  bool is_log;

  double x(double step) const {
    return kLeft + (step - first_step) / (last_step - first_step) * (kWidth - kLeft - kRight);
  }
  double y(double value) const {
    value = std::min(value, high);
    const double share = is_log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    return kHeight - kBottom - share * (kHeight - kTop - kBottom);
  }
};

// Gives round numbers within [low, high], about `count` of them.
std::vector<double> ticks(double low, double high, int count) {
  const double raw = (high - low) / count, power = std::pow(10.0, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= raw) step = factor * power;
  }
  std::vector<double> found;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) {
    found.push_back(i == 0.0 ? 0.0 : i * step);  // not -0
  }
  return found;
}

// Gives ticks that are round in the unit in which they are written.
std::vector<double> ticks(double low, double high, int count, Unit unit) {
  const double largest = std::max(std::abs(low), std::abs(high));
  const double scale = unit == Unit::Bytes ? std::pow(1024.0, std::floor(std::log2(largest) / 10)) : 1.0;
  std::vector<double> found = ticks(low / scale, high / scale, count);
  for (double& tick : found) tick *= scale;
  return found;
}

std::vector<double> log_ticks(double low, double high) {
  std::vector<double> found;
  const bool is_wide = high / low > 1e3;
  for (double power = std::pow(10.0, std::floor(std::log10(low))); power <= high; power *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * power;
      if (tick >= low && tick <= high && (factor == 1.0 || !is_wide)) found.push_back(tick);
    }
  }
  return found;
}

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

std::string line(double x1, double y1, double x2, double y2, const char* kind) {
  return "<line class=\"" + std::string(kind) + "\" x1=\"" + printed("%.1f", x1) + "\" y1=\"" +
         printed("%.1f", y1) + "\" x2=\"" + printed("%.1f", x2) + "\" y2=\"" + printed("%.1f", y2) + "\"/>";
}

std::string label(double x, double y, const char* kind, const std::string& text) {
  return "<text class=\"" + std::string(kind) + "\" x=\"" + printed("%.1f", x) + "\" y=\"" +
         printed("%.1f", y) + "\">" + html_text(text) + "</text>";
}

std::string axes(const Frame& frame, Unit unit) {
  std::string svg;
  const auto levels = frame.is_log ? log_ticks(frame.low, frame.high) : ticks(frame.low, frame.high, 5, unit);
  for (const double value : levels) {
    svg += line(kLeft, frame.y(value), kWidth - kRight, frame.y(value), "grid");
    svg += label(kLeft - 6, frame.y(value) + 4, "left", format_number(value, unit));
  }
  for (const double step : ticks(frame.first_step, frame.last_step, 6)) {
    if (step != std::floor(step)) continue;
    svg += line(frame.x(step), kHeight - kBottom, frame.x(step), kHeight - kBottom + 4, "axis");
    svg += label(frame.x(step), kHeight - kBottom + 17, "below", format_number(step));
  }
  return svg + line(kLeft, kHeight - kBottom, kWidth - kRight, kHeight - kBottom, "axis");
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

// Writes the attributes from which the page's script tells the values under the pointer.
std::string values(const Series& series, const Points& points) {
  std::string text;
  for (const auto& [step, value] : points) {
    text += (text.empty() ? "" : " ") + printed("%.10g", step) + "," + printed("%.6g", value);
  }
  return " data-name=\"" + html_text(series.name) + "\" data-values=\"" + text + "\"";
}

std::string drawn(const Series& series, const Frame& frame) {
  const Points points = thin(series.points, kMaxPoints);
  const bool is_faint = series.style == Series::Style::Faint;
  const std::string kind = color_class(series) + (is_faint                                ? " faint"
                                                  : series.style == Series::Style::Dashed ? " dashed"
                                                                                          : "");
  const std::string told = is_faint ? "" : values(series, points);
  // Few points get circles: a line of one point would not be seen, nor points that lie apart.
  std::string svg;
  if (points.size() <= 40 && !is_faint) {
    for (const auto& [step, value] : points) {
      svg += "<circle class=\"" + color_class(series) + "\" cx=\"" + printed("%.1f", frame.x(step)) +
             "\" cy=\"" + printed("%.1f", frame.y(value)) + "\" r=\"2.5\"/>";
    }
  }
  return "<polyline class=\"" + kind + "\"" + told + " points=\"" + coordinates(frame, points) + "\"/>" + svg;
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
    svg += "<polygon class=\"" + color_class(series[i]) + " area\"" + values(series[i], series[i].points) +
           " points=\"" + coordinates(frame, outline) + "\"/>";
  }
  return svg;
}

std::string legend(const std::vector<Series>& series) {
  std::string html;
  for (const Series& one : series) {
    if (one.style == Series::Style::Faint) continue;
    const bool is_dashed = one.style == Series::Style::Dashed;
    html += "<span class=\"key " + color_class(one) + (is_dashed ? " dashed" : "") + "\">" +
            html_text(one.name) + "</span>";
  }
  return "<div class=\"legend\">" + html + "</div>";
}

// Gives the mean of each of at most `count` stretches of points. All series of a stack have the same steps,
// and so get the same stretches.
Points average(const Points& points, size_t count) {
  const size_t stride = (points.size() + count - 1) / count;
  Points means;
  for (size_t begin = 0; begin < points.size(); begin += stride) {
    const size_t end = std::min(begin + stride, points.size());
    double sum = 0.0;
    for (size_t i = begin; i < end; ++i) sum += points[i].second;
    means.emplace_back(points[end - 1].first, sum / static_cast<double>(end - begin));
  }
  return means;
}

}  // namespace

std::string format_number(double value, Unit unit) {
  if (unit == Unit::Bytes) return scaled(value, 1024, {" B", " KiB", " MiB", " GiB", " TiB"});
  if (unit == Unit::Seconds) {
    if (value == 0.0 || std::abs(value) >= 1.0) return printed("%.4g", value) + " s";
    return std::abs(value) >= 1e-3 ? printed("%.4g", value * 1e3) + " ms"
                                   : printed("%.4g", value * 1e6) + " \u00b5s";
  }
  return std::abs(value) < 1e4 ? printed("%.4g", value) : scaled(value, 1000, {"", "k", "M", "G", "T", "P"});
}

bool Chart::is_empty() const {
  return std::all_of(series.begin(), series.end(), [](const Series& one) { return one.points.empty(); });
}

Points thin(const Points& points, size_t count) {
  if (points.size() <= count || count < 2) return points;
  Points kept;
  const size_t num_stretches = count / 2;
  const auto by_value = [](const auto& a, const auto& b) { return a.second < b.second; };
  for (size_t i = 0; i < num_stretches; ++i) {
    const auto begin = points.begin() + static_cast<ptrdiff_t>(points.size() * i / num_stretches);
    const auto end = points.begin() + static_cast<ptrdiff_t>(points.size() * (i + 1) / num_stretches);
    const auto [low, high] = std::minmax_element(begin, end, by_value);
    kept.push_back(*std::min(low, high));
    if (low != high) kept.push_back(*std::max(low, high));
  }
  return kept;
}

Points smooth(const Points& points, double half_life) {
  const double keep = std::exp2(-1.0 / half_life);
  Points means;
  double sum = 0.0, weight = 0.0;
  for (const auto& [step, value] : points) {
    sum = keep * sum + value;
    weight = keep * weight + 1.0;
    means.emplace_back(step, sum / weight);
  }
  return means;
}

std::string figure(const Chart& chart) {
  std::vector<Series> series;
  for (const Series& one : chart.series) {
    if (!one.points.empty()) series.push_back(one);
  }
  std::vector<Points> tops;
  if (chart.is_stacked) {
    for (Series& one : series) {
      one.points = average(one.points, kMaxPoints / 2);
      tops.push_back(one.points);
      if (tops.size() == 1) continue;
      for (size_t j = 0; j < one.points.size(); ++j) tops.back()[j].second += tops[tops.size() - 2][j].second;
    }
  }
  std::vector<Series> extent = series;
  if (chart.is_stacked) extent.back().points = tops.back();
  std::string title = html_text(chart.title);
  if (const auto limit = chart.cuts_outliers ? outlier_limit(series) : std::nullopt) {
    double highest = *limit;
    for (Series& one : extent) {
      for (auto& [step, value] : one.points) {
        highest = std::max(highest, value);
        value = std::min(value, *limit);
      }
    }
    title += " (cut above; the highest is " + format_number(highest, chart.unit) + ")";
  }
  const Frame frame = frame_of(extent, chart.is_log, chart.is_stacked);
  std::string plot = axes(frame, chart.unit);
  if (chart.is_stacked) plot += drawn_stack(series, frame, tops);
  for (const Series& one : series) {
    if (!chart.is_stacked) plot += drawn(one, frame);
  }
  // If one series alone has points, the legend still says which one of several it is.
  const auto num_told = std::ranges::count_if(
      chart.series, [](const Series& one) { return one.style != Series::Style::Faint; });
  return "<figure><figcaption>" + title + "</figcaption>" + (num_told > 1 ? legend(series) : "") +
         "<svg role=\"img\" aria-label=\"" + title + "\" viewBox=\"0 0 " + printed("%g", kWidth) + " " +
         printed("%g", kHeight) + "\" data-left=\"" + printed("%g", kLeft) + "\" data-right=\"" +
         printed("%g", kWidth - kRight) + "\" data-first=\"" + printed("%.10g", frame.first_step) +
         "\" data-last=\"" + printed("%.10g", frame.last_step) + "\">" + plot + "</svg></figure>\n";
}

}  // namespace tessera::report

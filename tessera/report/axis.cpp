#include "tessera/report/axis.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tessera/core/html_text.h"

namespace tessera::report {
namespace {

std::string scaled(double value, double base, const std::vector<const char*>& suffixes) {
  size_t place = 0;
  while (place + 1 < suffixes.size() && std::abs(value) >= base) {
    value /= base;
    ++place;
  }
  return printed("%.4g", value) + suffixes[place];
}

std::string line(double x1, double y1, double x2, double y2, const char* kind) {
  return "<line class=\"" + std::string(kind) + "\" x1=\"" + printed("%.1f", x1) + "\" y1=\"" +
         printed("%.1f", y1) + "\" x2=\"" + printed("%.1f", x2) + "\" y2=\"" + printed("%.1f", y2) + "\"/>";
}

std::string label(double x, double y, const char* kind, const std::string& text) {
  return "<text class=\"" + std::string(kind) + "\" x=\"" + printed("%.1f", x) + "\" y=\"" +
         printed("%.1f", y) + "\">" + html_text(text) + "</text>";
}

}  // namespace

const char* unit_name(Unit unit) {
  constexpr const char* kNames[] = {"none", "bytes", "seconds"};
  return kNames[static_cast<size_t>(unit)];
}

std::string printed(const char* format, double value) {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string format_number(double value, Unit unit) {
  if (unit == Unit::Bytes) return scaled(value, 1024, {" B", " KiB", " MiB", " GiB", " TiB"});
  if (unit == Unit::Seconds) {
    if (value == 0.0 || std::abs(value) >= 1.0) return printed("%.4g", value) + " s";
    return std::abs(value) >= 1e-3 ? printed("%.4g", value * 1e3) + " ms"
                                   : printed("%.4g", value * 1e6) + " \u00b5s";
  }
  return std::abs(value) < 1e4 ? printed("%.4g", value) : scaled(value, 1000, {"", "k", "M", "G", "T", "P"});
}

// The page's script has the same units and ticks (report/chart_script.h).
Scale scale_of(Unit unit, double largest) {
  struct Step {
    double from;
    Scale scale;
  };
  static const std::vector<Step> kBytes = {{1, {1, "B"}},
                                           {0x1p10, {0x1p10, "KiB"}},
                                           {0x1p20, {0x1p20, "MiB"}},
                                           {0x1p30, {0x1p30, "GiB"}},
                                           {0x1p40, {0x1p40, "TiB"}}};
  static const std::vector<Step> kSeconds = {
      {1e-6, {1e-6, "\u00b5s"}}, {1e-3, {1e-3, "ms"}}, {1, {1, "s"}},
      {120, {60, "min"}},        {7200, {3600, "h"}},  {172800, {86400, "d"}}};
  if (unit == Unit::None) return {};
  const std::vector<Step>& steps = unit == Unit::Bytes ? kBytes : kSeconds;
  Scale found = steps.front().scale;
  for (const Step& step : steps) {
    if (largest >= step.from) found = step.scale;
  }
  return found;
}

double Frame::x(double step) const {
  return kLeft + (step - first_step) / (last_step - first_step) * (kRight - kLeft);
}

double Frame::y(double value) const {
  value = std::min(value, high);
  const double share = is_log ? (std::log(value) - std::log(low)) / (std::log(high) - std::log(low))
                              : (value - low) / (high - low);
  return kBottom - share * (kBottom - kTop);
}

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

std::vector<double> log_ticks(double low, double high) {
  const double decades = std::log10(high) - std::log10(low), stride = std::ceil(decades / 8);
  std::vector<double> found;
  for (double power = std::floor(std::log10(low)); power <= std::log10(high); power += stride) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * std::pow(10.0, power);
      if (tick >= low && tick <= high && (factor == 1.0 || decades <= 3)) found.push_back(tick);
    }
  }
  return found.size() < 3 ? ticks(low, high, 5) : found;
}

std::string axes(const Frame& frame, const std::string& name, Unit unit, const std::string& x_name) {
  const Scale scale = scale_of(unit, std::max(std::abs(frame.low), std::abs(frame.high)));
  const double low = frame.low / scale.size, high = frame.high / scale.size;
  std::string svg;
  for (const double value : frame.is_log ? log_ticks(low, high) : ticks(low, high, 5)) {
    const double y = frame.y(value * scale.size);
    svg += line(Frame::kLeft, y, Frame::kRight, y, "grid");
    svg += label(Frame::kLeft - 6, y + 4, "left", format_number(value));
  }
  for (const double step : ticks(frame.first_step, frame.last_step, 6)) {
    if (step != std::floor(step)) continue;
    svg += line(frame.x(step), Frame::kBottom, frame.x(step), Frame::kBottom + 4, "axis");
    svg += label(frame.x(step), Frame::kBottom + 17, "below", format_number(step));
  }
  svg += line(Frame::kLeft, Frame::kBottom, Frame::kRight, Frame::kBottom, "axis");
  svg += label((Frame::kLeft + Frame::kRight) / 2, Frame::kHeight - 8, "below", x_name);
  return svg + "<text class=\"below\" transform=\"translate(14 " +
         printed("%.1f", (Frame::kTop + Frame::kBottom) / 2) + ") rotate(-90)\">" +
         html_text(scale.name.empty() ? name : name + " (" + scale.name + ")") + "</text>";
}

}  // namespace tessera::report

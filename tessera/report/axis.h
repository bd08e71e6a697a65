// The axes of a chart: in which unit numbers are written, round ticks, and the place of a value.
#pragma once

#include <string>
#include <vector>

namespace tessera::report {

// How numbers are written: plain, as bytes, or as seconds.
enum class Unit { None, Bytes, Seconds };

// The name by which the pages' script knows a unit.
const char* unit_name(Unit unit);

// Writes a number with at most four significant digits: "0.3125", "1.2k", "1.5 GiB", "12 ms".
std::string format_number(double value, Unit unit = Unit::None);

// Writes a number by one format of printf().
std::string printed(const char* format, double value);

// The unit of all numbers of one axis: "GiB" and its size in bytes. A plain number has size 1 and no name.
struct Scale {
  double size = 1.0;
  std::string name;
};

// Gives the largest unit of which `largest` holds one, or two where the unit is longer than a second.
Scale scale_of(Unit unit, double largest);

// The ranges of steps and values that a chart shows, and the rectangle of its plot.
struct Frame {
  static constexpr double kWidth = 560, kHeight = 276;
  static constexpr double kLeft = 76, kRight = kWidth - 20, kTop = 10, kBottom = kHeight - 44;

  double first_step, last_step, low, high;
  bool is_log;

  double x(double step) const;
  double y(double value) const;  // a value above the range lies at its upper end
};

// Gives round numbers within [low, high], about `count` of them.
std::vector<double> ticks(double low, double high, int count);

// Gives round numbers for a logarithmic axis, which end at factors of ten where these are many.
std::vector<double> log_ticks(double low, double high);

// Draws the axes as SVG with ticks, grid and names. `name` is that of the values without their unit, `x_name`
// that of the other axis.
std::string axes(const Frame& frame, const std::string& name, Unit unit, const std::string& x_name = "step");

}  // namespace tessera::report

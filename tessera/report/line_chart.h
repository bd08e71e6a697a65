// A chart of numbers over steps, as SVG.
#pragma once

#include <string>
#include <vector>

#include "tessera/report/run_record.h"

namespace tessera::report {

// How numbers are written: plain, as bytes, or as seconds.
enum class Unit { None, Bytes, Seconds };

// Writes a number with at most four significant digits: "0.3125", "1.2k", "1.5 GiB", "12 ms".
std::string format_number(double value, Unit unit = Unit::None);

struct Series {
  enum class Style { Line, Dashed, Faint };  // Faint is left out of the legend

  std::string name;
  Points points;  // in ascending order of the step
  int color = 0;  // an index of the page's palette, which repeats
  Style style = Style::Line;
};

struct Chart {
  std::string title;
  Unit unit = Unit::None;
  std::vector<Series> series;
  bool is_stacked = false;  // areas above each other; the series have the same steps
  bool is_log = false;      // for positive values alone
  // If few values lie far above all others, as those of a run that diverges, the plot ends above the others,
  // and the title says so.
  bool cuts_outliers = false;

  bool is_empty() const;
};

// Writes a <figure> with title, legend and plot. The page's style defines its classes color-0 ... color-9,
// axis, grid and so on (report/page_style.h). Of many points those are drawn that show the extremes. At least
// one series must have points.
std::string figure(const Chart& chart);

// Gives at most about `count` of the points, in order: the lowest and the highest of each stretch.
Points thin(const Points& points, size_t count);

// Gives the mean of the points up to each one, where older ones count for exponentially less: half after
// `half_life` points.
Points smooth(const Points& points, double half_life);

}  // namespace tessera::report

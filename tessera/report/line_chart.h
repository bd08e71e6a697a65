// A chart of numbers over steps, as SVG.
#pragma once

#include <string>
#include <vector>

#include "tessera/report/axis.h"
#include "tessera/report/run_record.h"

namespace tessera::report {

struct Series {
  std::string name;
  Points points;  // in ascending order of the step
  int color = 0;  // an index of the page's palette, which repeats
  int run = 0;    // an index of the page's runs
  bool is_dashed = false;
  bool is_noisy = false;   // drawn as a smoothed line before the faint one of its points, if these are many
  size_t num_missing = 0;  // values that are not finite, which are none of the points
};

struct Chart {
  std::string title;
  Unit unit = Unit::None;
  std::string axis;  // what the values are, without the unit that `unit` tells; the title if it is empty
  std::vector<Series> series;
  bool is_stacked = false;  // areas above each other; the series have the same steps
  bool is_log = false;      // for positive values alone
  // If few values lie far above all others, as those of a run that diverges, the plot ends above the others,
  // and the title says so.
  bool cuts_outliers = false;

  bool is_empty() const;
};

// Writes a <figure> with title, legend and plot. The page's style defines its classes color-0 ... color-9,
// axis, grid and so on (report/page_style.h), and the page's script draws it anew from the attributes with
// data (report/chart_script.h). If there are many points, those that show the extremes are drawn. Returns ""
// for a chart without points.
std::string figure(const Chart& chart);

// Writes pairs of a step and a value as the script reads them: "1,2.5 2,2.25".
std::string data_text(const Points& points);

// The most points that are drawn of a series.
inline constexpr size_t kMaxPoints = 600;

}  // namespace tessera::report

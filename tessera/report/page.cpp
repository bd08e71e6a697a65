#include "tessera/report/page.h"

#include <vector>

#include "tessera/core/html_text.h"
#include "tessera/core/strings.h"
#include "tessera/report/chart_script.h"
#include "tessera/report/html_page.h"
#include "tessera/report/line_chart.h"
#include "tessera/report/page_script.h"
#include "tessera/report/points.h"
#include "tessera/report/run_charts.h"
#include "tessera/report/run_clock.h"
#include "tessera/report/run_marks.h"
#include "tessera/report/run_summary.h"

namespace tessera::report {
namespace {

// Writes for each run how many tokens it had seen, and how long it had taken, by step, and its marks. The
// page's script takes the charts' other x axes from them.
std::string clocks(const std::vector<RunRecord>& runs) {
  std::string html;
  for (const RunRecord& run : runs) {
    const RunClock clock = clock_of(run);
    html += "<div class=\"run\" hidden data-name=\"" + html_text(run.name) + "\" data-tokens=\"" +
            data_text(sample(clock.tokens, kMaxPoints)) + "\" data-seconds=\"" +
            data_text(sample(clock.seconds, kMaxPoints)) + "\" data-marks=\"" + html_text(marks_text(run)) +
            "\"></div>\n";
  }
  return html;
}

std::string recipes(const std::vector<RunRecord>& runs) {
  std::string html;
  const auto differences = recipe_differences(runs);
  if (differences.size() > 1) html += "<h2>Where the recipes differ</h2>\n" + html_table(differences);
  for (const RunRecord& run : runs) {
    if (run.recipe.empty()) continue;
    html += "<details><summary>Recipe of " + html_text(run.name) + "</summary><pre>" + html_text(run.recipe) +
            "</pre></details>\n";
  }
  return html;
}

}  // namespace

std::string page(const std::vector<RunRecord>& runs) {
  std::vector<std::string> names;
  for (const RunRecord& run : runs) names.push_back(run.name);
  const std::string title = join(names, ", ");
  std::string figures;
  for (const Chart& chart : charts_of(runs)) figures += figure(chart);
  std::string samples;
  for (const RunRecord& run : runs) samples += samples_html(run.name, run.samples);
  return html_page(kPageBegin, title,
                   html_table(summary(runs)) + kChoices + clocks(runs) + "<div class=\"charts\">\n" +
                       figures + "</div>\n" + samples + recipes(runs) + "<script>" + kChartScript +
                       kPageScript + kReportScript + "</script>\n");
}

}  // namespace tessera::report

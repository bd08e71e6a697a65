#include "tessera/report/page.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tessera/core/html_text.h"
#include "tessera/core/strings.h"
#include "tessera/report/line_chart.h"
#include "tessera/report/page_style.h"
#include "tessera/report/run_summary.h"

namespace tessera::report {
namespace {

using Style = Series::Style;

// A series of fewer points than this is shown as it is.
constexpr size_t kMinToSmooth = 60;
constexpr const char* kLosses = "losses/";
constexpr const char* kEvalLosses = "eval_losses/";
constexpr const char* kTraffic = "traffic/";
constexpr const char* kDataWait = "data_wait_s";

struct Plot {
  const char* title;
  const char* number;
  Unit unit = Unit::None;
  bool is_smoothed = false, is_log = false;
};

constexpr Plot kPlots[] = {
    {"Learning rate", "lr"},
    {"Gradient norm", "grad_norm", Unit::None, true, true},
    {"Tokens per second", "tokens_per_s", Unit::None, true},
    {"Time of a step", "step_s", Unit::Seconds, true},
    {"Time of a step that waits for data", kDataWait, Unit::Seconds, true},
    {"Peak memory of a rank", "peak_rss", Unit::Bytes},
    {"Peak memory of its GPU", "peak_device", Unit::Bytes},
    {"Model FLOPs utilization", "mfu", Unit::None, true},
    {"Hardware FLOPs utilization", "hfu", Unit::None, true},
    {"Share of the roofline", "sol", Unit::None, true},
};

// The numbers that other charts and the table show.
const std::set<std::string> kShownElsewhere = {"loss",        "eval_loss",    "epoch",       "tokens",
                                               "tokens_seen", "label_tokens", "save_stall_s"};

std::set<std::string> all_numbers(const std::vector<RunRecord>& runs) {
  std::set<std::string> names;
  for (const RunRecord& run : runs) {
    for (const auto* records : {&run.steps, &run.evaluations}) {
      for (const Record& record : *records) {
        for (const auto& [name, value] : record.numbers) names.insert(name);
      }
    }
  }
  return names;
}

// Gives the rest of each name that begins with `prefix`.
std::vector<std::string> names_below(const std::set<std::string>& numbers, const std::string& prefix) {
  std::vector<std::string> names;
  for (const std::string& number : numbers) {
    if (number.starts_with(prefix)) names.push_back(number.substr(prefix.size()));
  }
  return names;
}

void add_series(Chart& chart, const std::string& name, const Points& points, int color, bool is_smoothed) {
  if (!is_smoothed || points.size() < kMinToSmooth) {
    chart.series.push_back({name, points, color, Style::Line});
    return;
  }
  chart.series.push_back({name, points, color, Style::Faint});
  chart.series.push_back({name, smooth(points, static_cast<double>(points.size()) / 50), color, Style::Line});
}

void add_loss(Chart& chart, const RunRecord& run, const std::string& loss, const std::string& eval_loss,
              const std::string& name, int color) {
  chart.cuts_outliers = true;
  add_series(chart, name, run.points(loss), color, true);
  const Points evaluated = run.points(eval_loss);
  if (!evaluated.empty()) chart.series.push_back({name + ", evaluation", evaluated, color, Style::Dashed});
}

// Makes one chart with a line for each dataset if there is one run, and a chart for each dataset if there are
// several.
std::vector<Chart> dataset_charts(const std::vector<RunRecord>& runs, const std::set<std::string>& numbers) {
  std::vector<std::string> datasets = names_below(numbers, kLosses);
  for (const std::string& name : names_below(numbers, kEvalLosses)) {
    if (std::find(datasets.begin(), datasets.end(), name) == datasets.end()) datasets.push_back(name);
  }
  std::vector<Chart> charts;
  if (runs.size() == 1) charts.push_back({"Loss by dataset"});
  for (size_t i = 0; i < datasets.size(); ++i) {
    if (runs.size() > 1) charts.push_back({"Loss of " + datasets[i]});
    for (size_t j = 0; j < runs.size(); ++j) {
      const bool is_one = runs.size() == 1;
      add_loss(charts.back(), runs[j], kLosses + datasets[i], kEvalLosses + datasets[i],
               is_one ? datasets[i] : runs[j].name, static_cast<int>(is_one ? i : j));
    }
  }
  return charts;
}

// Makes the chart of where the time of a step goes: waits for rows, and for other ranks by axis, checkpoints,
// and the rest, which is computing.
Chart section_chart(const RunRecord& run, const std::vector<std::string>& axes) {
  Chart chart{"Time of a step by section: " + run.name, Unit::Seconds};
  chart.is_stacked = true;
  std::vector<std::pair<std::string, std::string>> waits;  // what the wait is for, and the name of its number
  for (const std::string& axis : axes) waits.emplace_back(axis, kTraffic + axis + "/wait_s");
  waits.emplace_back("data", kDataWait);
  std::erase_if(waits, [&](const auto& wait) { return run.points(wait.second).empty(); });
  chart.series.push_back({"compute", {}, 0});
  for (size_t i = 0; i < waits.size(); ++i) {
    chart.series.push_back({"wait for " + waits[i].first, {}, static_cast<int>(i + 1)});
  }
  chart.series.push_back({"checkpoints", {}, static_cast<int>(waits.size() + 1)});
  int64_t before = 0;
  for (const Record& record : run.steps) {
    const auto number = [&](const std::string& name) {
      const auto found = record.numbers.find(name);
      return found == record.numbers.end() ? 0.0 : found->second;
    };
    const auto step = static_cast<double>(record.step);
    double rest = number("step_s");
    for (size_t i = 0; i < waits.size(); ++i) {
      const double wait = number(waits[i].second);
      chart.series[i + 1].points.emplace_back(step, wait);
      rest -= wait;
    }
    const auto num_steps = static_cast<double>(std::max<int64_t>(record.step - before, 1));
    chart.series.back().points.emplace_back(step, number("save_stall_s") / num_steps);
    chart.series.front().points.emplace_back(step, std::max(rest, 0.0));
    before = record.step;
  }
  return chart;
}

Chart sent_chart(const std::vector<RunRecord>& runs, const std::vector<std::string>& axes) {
  Chart chart{"Bytes that a step sends, first rank", Unit::Bytes};
  int color = 0;
  for (const RunRecord& run : runs) {
    for (const std::string& axis : axes) {
      const std::string name = runs.size() == 1 ? axis : run.name + ", " + axis;
      chart.series.push_back({name, run.points(kTraffic + axis + "/bytes_sent"), color++});
    }
  }
  return chart;
}

bool has_zero_or_less(const Chart& chart) {
  return std::any_of(chart.series.begin(), chart.series.end(), [](const Series& one) {
    return std::any_of(one.points.begin(), one.points.end(), [](const auto& at) { return at.second <= 0; });
  });
}

Chart plot_chart(const std::vector<RunRecord>& runs, const Plot& plot) {
  Chart chart{plot.title, plot.unit};
  for (size_t i = 0; i < runs.size(); ++i) {
    add_series(chart, runs[i].name, runs[i].points(plot.number), static_cast<int>(i), plot.is_smoothed);
  }
  chart.is_log = plot.is_log && !has_zero_or_less(chart);
  return chart;
}

std::vector<Chart> all_charts(const std::vector<RunRecord>& runs) {
  std::set<std::string> numbers = all_numbers(runs);
  std::vector<Chart> charts = {{"Loss"}};
  for (size_t i = 0; i < runs.size(); ++i) {
    add_loss(charts.back(), runs[i], "loss", "eval_loss", runs[i].name, static_cast<int>(i));
  }
  for (Chart& chart : dataset_charts(runs, numbers)) charts.push_back(std::move(chart));
  for (const Plot& plot : kPlots) {
    charts.push_back(plot_chart(runs, plot));
    numbers.erase(plot.number);
  }
  std::set<std::string> axes;
  for (const std::string& name : names_below(numbers, kTraffic)) axes.insert(name.substr(0, name.find('/')));
  const std::vector<std::string> axis_names(axes.begin(), axes.end());
  for (const RunRecord& run : runs) {
    Chart sections = section_chart(run, axis_names);
    // If there is nothing but compute, it is the time of a step, which has a chart.
    if (run.steps.size() > 1 && (!axes.empty() || numbers.contains("save_stall_s"))) {
      charts.push_back(std::move(sections));
    }
  }
  charts.push_back(sent_chart(runs, axis_names));
  for (const std::string& name : numbers) {
    const bool is_shown = kShownElsewhere.contains(name) || name.starts_with(kLosses) ||
                          name.starts_with(kEvalLosses) || name.starts_with(kTraffic);
    if (!is_shown) charts.push_back(plot_chart(runs, {name.c_str(), name.c_str()}));
  }
  std::erase_if(charts, [](const Chart& chart) { return chart.is_empty(); });
  return charts;
}

// Writes a table. The first row is a heading, and so is the first cell of every row.
std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::string html = "<div class=\"wide\"><table>\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    html += i == 0 ? "<thead><tr>" : "<tr>";
    for (size_t j = 0; j < rows[i].size(); ++j) {
      const char* tag = i == 0 ? "th scope=\"col\"" : j == 0 ? "th scope=\"row\"" : "td";
      html += std::string("<") + tag + ">" + html_text(rows[i][j]) + (i == 0 || j == 0 ? "</th>" : "</td>");
    }
    html += i == 0 ? "</tr></thead>\n<tbody>\n" : "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string recipes(const std::vector<RunRecord>& runs) {
  std::string html;
  const auto differences = recipe_differences(runs);
  if (differences.size() > 1) html += "<h2>Where the recipes differ</h2>\n" + table(differences);
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
  const std::string title = html_text(join(names, ", "));
  std::string figures;
  for (const Chart& chart : all_charts(runs)) figures += figure(chart);
  return std::string(kPageBegin) +
         "<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, "
         "initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>" +
         title + "</title>\n<style>" + kPageStyle + "</style>\n</head>\n<body>\n<h1>" + title + "</h1>\n" +
         table(summary(runs)) + "<div class=\"charts\">\n" + figures + "</div>\n" + recipes(runs) +
         "<script>" + kPageScript + "</script>\n</body>\n</html>\n";
}

}  // namespace tessera::report

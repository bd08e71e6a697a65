#include "tessera/report/run_charts.h"

#include <algorithm>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

namespace tessera::report {
namespace {

constexpr const char* kLosses = "losses/";
constexpr const char* kEvalLosses = "eval_losses/";
constexpr const char* kTraffic = "traffic/";
constexpr const char* kDataWait = "data_wait_s";
constexpr const char* kLossAxis = "mean loss per label token (nats)";

struct Plot {
  const char* title;
  const char* number;
  const char* axis;
  Unit unit = Unit::None;
  bool is_noisy = false, is_log = false;
};

constexpr Plot kPlots[] = {
    {"Learning rate", "lr", "learning rate"},
    {"Gradient norm", "grad_norm", "L2 norm before clipping", Unit::None, true, true},
    {"Tokens per second", "tokens_per_s", "speed (tokens/s)", Unit::None, true},
    {"Time per step", "step_s", "time", Unit::Seconds, true},
    {"Time per step spent waiting for data", kDataWait, "time", Unit::Seconds, true},
    {"Peak memory per rank", "peak_rss", "memory", Unit::Bytes},
    {"Peak GPU memory per rank", "peak_device", "memory", Unit::Bytes},
    {"Model FLOPs utilization", "mfu", "share of the peak", Unit::None, true},
    {"Hardware FLOPs utilization", "hfu", "share of the peak", Unit::None, true},
    {"Share of the roofline", "sol", "share of the roofline", Unit::None, true},
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

void add_loss(Chart& chart, const std::vector<RunRecord>& runs, int run, const std::string& name,
              const std::string& dataset, int color) {
  const RunRecord& record = runs[static_cast<size_t>(run)];
  const bool is_whole = dataset.empty();
  chart.axis = kLossAxis;
  chart.cuts_outliers = true;
  const std::string trained = is_whole ? "loss" : kLosses + dataset;
  chart.series.push_back({.name = name,
                          .points = record.points(trained),
                          .color = color,
                          .run = run,
                          .is_noisy = true,
                          .num_missing = record.num_missing(trained)});
  const std::string evaluated = is_whole ? "eval_loss" : kEvalLosses + dataset;
  Series evaluation{name + ", evaluation", record.points(evaluated), color, run, /*is_dashed=*/true};
  evaluation.num_missing = record.num_missing(evaluated);
  if (!evaluation.points.empty() || evaluation.num_missing > 0) chart.series.push_back(std::move(evaluation));
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
      add_loss(charts.back(), runs, static_cast<int>(j), is_one ? datasets[i] : runs[j].name, datasets[i],
               static_cast<int>(is_one ? i : j));
    }
  }
  return charts;
}

// Makes the chart of where the time of a step goes: waits for rows, and for other ranks by axis, checkpoints,
// and the rest, which is computing.
Chart section_chart(const std::vector<RunRecord>& runs, int index, const std::vector<std::string>& axes) {
  const RunRecord& run = runs[static_cast<size_t>(index)];
  Chart chart{"Time per step by section: " + run.name, Unit::Seconds, "time"};
  chart.is_stacked = true;
  std::vector<std::pair<std::string, std::string>> waits;  // what the wait is for, and the name of its number
  for (const std::string& axis : axes) waits.emplace_back(axis, kTraffic + axis + "/wait_s");
  waits.emplace_back("data", kDataWait);
  std::erase_if(waits, [&](const auto& wait) { return run.points(wait.second).empty(); });
  chart.series.push_back({"compute", {}, 0, index});
  for (size_t i = 0; i < waits.size(); ++i) {
    chart.series.push_back({"wait for " + waits[i].first, {}, static_cast<int>(i + 1), index});
  }
  chart.series.push_back({"checkpoints", {}, static_cast<int>(waits.size() + 1), index});
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
  Chart chart{"Bytes sent per step, first rank", Unit::Bytes, "sent"};
  int color = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const std::string& axis : axes) {
      const std::string name = runs.size() == 1 ? axis : runs[i].name + ", " + axis;
      chart.series.push_back(
          {name, runs[i].points(kTraffic + axis + "/bytes_sent"), color++, static_cast<int>(i)});
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
  Chart chart{plot.title, plot.unit, plot.axis};
  for (size_t i = 0; i < runs.size(); ++i) {
    const int run = static_cast<int>(i);
    chart.series.push_back({.name = runs[i].name,
                            .points = runs[i].points(plot.number),
                            .color = run,
                            .run = run,
                            .is_noisy = plot.is_noisy,
                            .num_missing = runs[i].num_missing(plot.number)});
  }
  chart.is_log = plot.is_log && !has_zero_or_less(chart);
  return chart;
}

}  // namespace

std::vector<Chart> charts_of(const std::vector<RunRecord>& runs) {
  std::set<std::string> numbers = all_numbers(runs);
  std::vector<Chart> charts = {{"Loss"}};
  for (size_t i = 0; i < runs.size(); ++i) {
    add_loss(charts.back(), runs, static_cast<int>(i), runs[i].name, "", static_cast<int>(i));
  }
  for (Chart& chart : dataset_charts(runs, numbers)) charts.push_back(std::move(chart));
  for (const Plot& plot : kPlots) {
    charts.push_back(plot_chart(runs, plot));
    numbers.erase(plot.number);
  }
  std::set<std::string> axes;
  for (const std::string& name : names_below(numbers, kTraffic)) axes.insert(name.substr(0, name.find('/')));
  const std::vector<std::string> axis_names(axes.begin(), axes.end());
  for (size_t i = 0; i < runs.size(); ++i) {
    Chart sections = section_chart(runs, static_cast<int>(i), axis_names);
    // If there is nothing but compute, it is the time of a step, which has a chart.
    if (runs[i].steps.size() > 1 && (!axes.empty() || numbers.contains("save_stall_s"))) {
      charts.push_back(std::move(sections));
    }
  }
  charts.push_back(sent_chart(runs, axis_names));
  for (const std::string& name : numbers) {
    const bool is_shown = kShownElsewhere.contains(name) || name.starts_with(kLosses) ||
                          name.starts_with(kEvalLosses) || name.starts_with(kTraffic);
    if (!is_shown) charts.push_back(plot_chart(runs, {name.c_str(), name.c_str(), ""}));
  }
  std::erase_if(charts, [](const Chart& chart) { return chart.is_empty(); });
  return charts;
}

std::string plots_text() {
  nlohmann::ordered_json plots = nlohmann::ordered_json::array();
  for (const Plot& plot : kPlots)
    plots.push_back({plot.title, plot.number, plot.axis, unit_name(plot.unit), plot.is_noisy, plot.is_log});
  return nlohmann::ordered_json{{"plots", plots}, {"elsewhere", kShownElsewhere}}.dump();
}

}  // namespace tessera::report

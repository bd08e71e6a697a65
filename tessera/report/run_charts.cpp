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

// One chart, or several of a kind.
enum class Kind {
  Losses,    // of training and evaluation
  Datasets,  // the losses of each dataset: one chart of a single run, else a chart for each dataset
  Number,
  Sections,  // a chart for each run: where the time of a step goes
  Sent,      // a line for each axis of the mesh
  Others,    // a chart for each number that no other row shows
};
constexpr const char* kKindNames[] = {"losses", "datasets", "number", "sections", "sent", "others"};

// The charts of a report and of the dashboard, in their order.
struct Row {
  Kind kind = Kind::Others;
  const char* title = "";
  const char* number = "";  // its name in metrics.jsonl; of Datasets, the title's begin for one of them
  const char* axis = "";
  Unit unit = Unit::None;
  bool is_noisy = false, is_log = false;
};

constexpr const char* kLossAxis = "mean loss per label token (nats)";
constexpr Row kRows[] = {
    {Kind::Losses, "Loss", "loss", kLossAxis},
    {Kind::Datasets, "Loss by dataset", "Loss of ", kLossAxis},
    {Kind::Number, "Learning rate", "lr", "learning rate"},
    {Kind::Number, "Gradient norm", "grad_norm", "L2 norm before clipping", Unit::None, true, true},
    {Kind::Number, "Tokens per second", "tokens_per_s", "speed (tokens/s)", Unit::None, true},
    {Kind::Number, "Time per step", "step_s", "time", Unit::Seconds, true},
    {Kind::Number, "Time per step spent waiting for data", kDataWait, "time", Unit::Seconds, true},
    {Kind::Number, "Peak memory per rank", "peak_rss", "memory", Unit::Bytes},
    {Kind::Number, "Peak GPU memory per rank", "peak_device", "memory", Unit::Bytes},
    {Kind::Number, "Model FLOPs utilization", "mfu", "share of the peak", Unit::None, true},
    {Kind::Number, "Hardware FLOPs utilization", "hfu", "share of the peak", Unit::None, true},
    {Kind::Number, "Share of the roofline", "sol", "share of the roofline", Unit::None, true},
    {Kind::Sections, "Time per step by section: ", "", "time", Unit::Seconds},
    {Kind::Sent, "Bytes sent per step, first rank", "", "sent", Unit::Bytes},
    {Kind::Others},
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
std::vector<Chart> dataset_charts(const std::vector<RunRecord>& runs, const std::set<std::string>& numbers,
                                  const Row& row) {
  std::vector<std::string> datasets = names_below(numbers, kLosses);
  for (const std::string& name : names_below(numbers, kEvalLosses)) {
    if (std::find(datasets.begin(), datasets.end(), name) == datasets.end()) datasets.push_back(name);
  }
  std::vector<Chart> charts;
  if (runs.size() == 1) charts.push_back({row.title, row.unit, row.axis});
  for (size_t i = 0; i < datasets.size(); ++i) {
    if (runs.size() > 1) charts.push_back({row.number + datasets[i], row.unit, row.axis});
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
Chart section_chart(const std::vector<RunRecord>& runs, int index, const std::vector<std::string>& axes,
                    const Row& row) {
  const RunRecord& run = runs[static_cast<size_t>(index)];
  Chart chart{row.title + run.name, row.unit, row.axis};
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

Chart sent_chart(const std::vector<RunRecord>& runs, const std::vector<std::string>& axes, const Row& row) {
  Chart chart{row.title, row.unit, row.axis};
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

Chart number_chart(const std::vector<RunRecord>& runs, const Row& row) {
  Chart chart{row.title, row.unit, row.axis};
  for (size_t i = 0; i < runs.size(); ++i) {
    const int run = static_cast<int>(i);
    chart.series.push_back({.name = runs[i].name,
                            .points = runs[i].points(row.number),
                            .color = run,
                            .run = run,
                            .is_noisy = row.is_noisy,
                            .num_missing = runs[i].num_missing(row.number)});
  }
  chart.is_log = row.is_log && !has_zero_or_less(chart);
  return chart;
}

// Returns the charts of a row, also those without a point.
std::vector<Chart> charts_of_row(const std::vector<RunRecord>& runs, const std::set<std::string>& numbers,
                                 const std::vector<std::string>& axes, const Row& row) {
  std::vector<Chart> charts;
  switch (row.kind) {
    case Kind::Losses:
      charts.push_back({row.title, row.unit, row.axis});
      for (size_t i = 0; i < runs.size(); ++i)
        add_loss(charts.back(), runs, static_cast<int>(i), runs[i].name, "", static_cast<int>(i));
      break;
    case Kind::Datasets: return dataset_charts(runs, numbers, row);
    case Kind::Number: return {number_chart(runs, row)};
    case Kind::Sections:
      // If there is nothing but compute, it is the time of a step, which has a chart.
      if (axes.empty() && !numbers.contains("save_stall_s")) break;
      for (size_t i = 0; i < runs.size(); ++i) {
        if (runs[i].steps.size() > 1) charts.push_back(section_chart(runs, static_cast<int>(i), axes, row));
      }
      break;
    case Kind::Sent: return {sent_chart(runs, axes, row)};
    case Kind::Others:
      for (const std::string& name : numbers) {
        const bool is_shown = kShownElsewhere.contains(name) || name.starts_with(kLosses) ||
                              name.starts_with(kEvalLosses) || name.starts_with(kTraffic) ||
                              std::ranges::any_of(kRows, [&](const Row& one) { return name == one.number; });
        if (!is_shown) charts.push_back(number_chart(runs, {Kind::Number, name.c_str(), name.c_str(), ""}));
      }
      break;
  }
  return charts;
}

}  // namespace

std::vector<Chart> charts_of(const std::vector<RunRecord>& runs) {
  const std::set<std::string> numbers = all_numbers(runs);
  std::set<std::string> axes;
  for (const std::string& name : names_below(numbers, kTraffic)) axes.insert(name.substr(0, name.find('/')));
  std::vector<Chart> charts;
  for (const Row& row : kRows) {
    for (Chart& chart : charts_of_row(runs, numbers, {axes.begin(), axes.end()}, row)) {
      if (!chart.is_empty()) charts.push_back(std::move(chart));
    }
  }
  return charts;
}

std::string chart_rows_text() {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Row& row : kRows) {
    rows.push_back({kKindNames[static_cast<size_t>(row.kind)], row.title, row.number, row.axis,
                    unit_name(row.unit), row.is_noisy, row.is_log});
  }
  return nlohmann::ordered_json{{"rows", rows}, {"elsewhere", kShownElsewhere}}.dump();
}

}  // namespace tessera::report

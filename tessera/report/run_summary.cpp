#include "tessera/report/run_summary.h"

#include <algorithm>
#include <map>
#include <set>

#include "tessera/config/load_recipe.h"
#include "tessera/core/median.h"
#include "tessera/core/strings.h"
#include "tessera/report/axis.h"
#include "tessera/report/run_clock.h"

namespace tessera::report {
namespace {

std::vector<double> values(const RunRecord& run, const std::string& number) {
  std::vector<double> values;
  for (const auto& [step, value] : run.points(number)) values.push_back(value);
  return values;
}

std::string last(const RunRecord& run, const std::string& number) {
  const Points points = run.points(number);
  return points.empty() ? "" : format_number(points.back().second);
}

std::string median_of(const RunRecord& run, const std::string& number, Unit unit = Unit::None) {
  std::vector<double> all = values(run, number);
  return all.empty() ? "" : format_number(median(std::move(all)), unit);
}

std::string largest(const RunRecord& run, const std::string& number, Unit unit) {
  const std::vector<double> all = values(run, number);
  return all.empty() ? "" : format_number(*std::max_element(all.begin(), all.end()), unit);
}

std::string sum_of(const RunRecord& run, const std::string& number) {
  double sum = 0.0;
  for (const double value : values(run, number)) sum += value;
  return sum == 0.0 ? "" : format_number(sum);
}

std::string time_of_steps(const RunRecord& run) {
  const Points seconds = clock_of(run).seconds;
  return seconds.empty() ? "" : format_duration(seconds.back().second);
}

std::string best_evaluation(const RunRecord& run) {
  const Points points = run.points("eval_loss");
  if (points.empty()) return "";
  const auto best = std::min_element(points.begin(), points.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return format_number(best->second) + " (step " + format_number(best->first) + ")";
}

}  // namespace

Table summary(const std::vector<RunRecord>& runs) {
  Table columns = {{"run"},
                   {"steps"},
                   {"epochs"},
                   {"tokens"},
                   {"time of all steps"},
                   {"final loss"},
                   {"best evaluation"},
                   {"tokens/s, median"},
                   {"step, median"},
                   {"MFU, median"},
                   {"peak memory per rank"},
                   {"peak GPU memory per rank"},
                   {"skipped steps"}};
  for (const RunRecord& run : runs) {
    const std::string cells[] = {run.name + (run.is_unfinished ? " (not finished)" : ""),
                                 run.steps.empty() ? "0" : std::to_string(run.steps.back().step),
                                 last(run, "epoch"),
                                 sum_of(run, "tokens"),
                                 time_of_steps(run),
                                 last(run, "loss"),
                                 best_evaluation(run),
                                 median_of(run, "tokens_per_s"),
                                 median_of(run, "step_s", Unit::Seconds),
                                 median_of(run, "mfu"),
                                 largest(run, "peak_rss", Unit::Bytes),
                                 largest(run, "peak_device", Unit::Bytes),
                                 sum_of(run, "skipped_steps")};
    for (size_t i = 0; i < columns.size(); ++i) columns[i].push_back(cells[i]);
  }
  std::erase_if(columns, [](const std::vector<std::string>& column) {
    return std::all_of(column.begin() + 1, column.end(),
                       [](const std::string& cell) { return cell.empty(); });
  });
  Table rows(runs.size() + 1);
  for (const auto& column : columns) {
    for (size_t i = 0; i < column.size(); ++i) rows[i].push_back(column[i]);
  }
  return rows;
}

Table recipe_differences(const std::vector<RunRecord>& runs) {
  Table rows = {{"key"}};
  std::vector<std::map<std::string, std::string>> recipes;
  std::set<std::string> names;
  for (const RunRecord& run : runs) {
    if (run.recipe.empty()) continue;
    rows[0].push_back(run.name);
    const auto values = config::top_level_values(run.recipe);
    recipes.emplace_back(values.begin(), values.end());
    for (const auto& [name, text] : recipes.back()) names.insert(name);
  }
  for (const std::string& name : names) {
    std::vector<std::string> row = {name};
    for (auto& recipe : recipes) row.push_back(recipe[name]);
    if (std::set<std::string>(row.begin() + 1, row.end()).size() > 1) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace tessera::report

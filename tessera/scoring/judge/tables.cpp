#include "tessera/scoring/judge/tables.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "tessera/scoring/judge/verdict.h"

namespace tessera::scoring::judge {
namespace {

struct Sum {
  double sum = 0.0;
  int64_t count = 0;

  void add(double value) {
    sum += value;
    ++count;
  }
  std::optional<double> mean() const {
    return count == 0 ? std::nullopt : std::optional(sum / static_cast<double>(count));
  }
};

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return names.empty() || std::ranges::find(names, name) != names.end();
}

std::string winner_of_game(const Row& row, const char* key) {
  std::string winner = row.text(key);
  for (const char* known : {"model_1", "model_2", "tie", "error"}) {
    if (winner == known) return winner;
  }
  throw row.problem(key, "model_1, model_2, tie or error");
}

std::string number(std::optional<double> value, const char* format) {
  if (!value) return "-";
  char text[64];
  std::snprintf(text, sizeof text, format, *value);
  return text;
}

Json json_number(std::optional<double> value) { return value ? Json(*value) : Json(); }

// Writes columns, the first one to the left and the others to the right.
std::string columns(const std::vector<std::vector<std::string>>& lines) {
  std::vector<size_t> widths(lines.front().size(), 0);
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string space(widths[i] - line[i].size(), ' ');
      text += i == 0 ? line[i] + space : "  " + space + line[i];
    }
    text += '\n';
  }
  return text;
}

}  // namespace

std::vector<RatedModel> rate_models(const std::vector<Row>& rows, const std::vector<std::string>& models) {
  struct Sums {
    Sum turns[2], all;
    int64_t num_unrated = 0;
  };
  std::map<std::string, Sums> by_model;
  for (const Row& row : rows) {
    const std::string model = row.text("model");
    if (!is_among(models, model)) continue;
    const double score = row.number("score");
    const int64_t turn = row.turn();
    Sums& sums = by_model[model];
    if (score == static_cast<double>(kNoRating)) {
      ++sums.num_unrated;
      continue;
    }
    sums.turns[turn - 1].add(score);
    sums.all.add(score);
  }
  std::vector<RatedModel> rated;
  rated.reserve(by_model.size());
  for (const auto& [model, sums] : by_model) {
    rated.push_back({model, sums.turns[0].mean(), sums.turns[1].mean(), sums.all.mean(), sums.all.count,
                     sums.num_unrated});
  }
  std::ranges::stable_sort(rated, std::ranges::greater(), &RatedModel::average);
  return rated;
}

Comparison compare_models(const std::vector<Row>& rows, const std::vector<std::string>& models,
                          const std::string& baseline) {
  Comparison comparison;
  std::map<std::string, ComparedModel> by_model;
  for (const Row& row : rows) {
    const std::string one = row.text("model_1"), two = row.text("model_2");
    const std::string first = winner_of_game(row, "g1_winner"), second = winner_of_game(row, "g2_winner");
    if (!baseline.empty() && one != baseline && two != baseline) continue;
    const auto counts = [&](const std::string& model) {
      return model == baseline || is_among(models, model);
    };
    if (!counts(one) || !counts(two)) continue;
    if (first == "error" || second == "error") {
      ++comparison.num_undecided;
      continue;
    }
    const bool is_tie = first == "tie" || first != second;
    const bool one_wins = first == "model_1";
    ++(is_tie ? by_model[one].tie : one_wins ? by_model[one].win : by_model[one].loss);
    ++(is_tie ? by_model[two].tie : one_wins ? by_model[two].loss : by_model[two].win);
  }
  for (auto& [model, counted] : by_model) {
    if (model == baseline) continue;
    counted.model = model;
    comparison.models.push_back(counted);
  }
  std::ranges::stable_sort(comparison.models, std::ranges::greater(), &ComparedModel::win_rate_adjusted);
  return comparison;
}

std::string table_of(const std::vector<RatedModel>& models) {
  std::vector<std::vector<std::string>> lines = {
      {"model", "first turn", "second turn", "average", "rated", "no rating"}};
  for (const RatedModel& each : models) {
    lines.push_back({each.model, number(each.first_turn, "%.2f"), number(each.second_turn, "%.2f"),
                     number(each.average, "%.2f"), std::to_string(each.num_rated),
                     std::to_string(each.num_unrated)});
  }
  return columns(lines);
}

std::string table_of(const Comparison& comparison) {
  std::vector<std::vector<std::string>> lines = {
      {"model", "win", "loss", "tie", "win_rate", "loss_rate", "win_rate_adjusted"}};
  for (const ComparedModel& each : comparison.models) {
    lines.push_back({each.model, std::to_string(each.win), std::to_string(each.loss),
                     std::to_string(each.tie), number(each.win_rate(), "%.4f"),
                     number(each.loss_rate(), "%.4f"), number(each.win_rate_adjusted(), "%.4f")});
  }
  std::string text = columns(lines);
  if (comparison.num_undecided > 0)
    text += std::to_string(comparison.num_undecided) + " matches without a verdict are left out\n";
  return text;
}

Json json_of(const std::vector<RatedModel>& models) {
  Json rows = Json::array();
  for (const RatedModel& each : models) {
    rows.push_back({{"model", each.model},
                    {"first_turn", json_number(each.first_turn)},
                    {"second_turn", json_number(each.second_turn)},
                    {"average", json_number(each.average)},
                    {"num_rated", each.num_rated},
                    {"num_unrated", each.num_unrated}});
  }
  return {{"models", rows}};
}

Json json_of(const Comparison& comparison) {
  Json rows = Json::array();
  for (const ComparedModel& each : comparison.models) {
    rows.push_back({{"model", each.model},
                    {"win", each.win},
                    {"loss", each.loss},
                    {"tie", each.tie},
                    {"win_rate", each.win_rate()},
                    {"loss_rate", each.loss_rate()},
                    {"win_rate_adjusted", each.win_rate_adjusted()}});
  }
  return {{"models", rows}, {"num_undecided", comparison.num_undecided}};
}

}  // namespace tessera::scoring::judge

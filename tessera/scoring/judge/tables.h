// The tables of judgements, with the numbers of FastChat's show_result.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/scoring/judge/match.h"
#include "tessera/scoring/judge/rows.h"

namespace tessera::scoring::judge {

// The mean ratings of a model; nothing where it has none.
struct RatedModel {
  std::string model;
  std::optional<double> first_turn, second_turn;
  std::optional<double> average;           // over the ratings of both turns
  int64_t num_rated = 0, num_unrated = 0;  // rows; those without a rating are left out of the means
};

// Returns the models of single judgements, the highest average first. Only `models` count, if there are any.
// Throws Error(Data, "JUDGE-ROW").
std::vector<RatedModel> rate_models(const std::vector<Row>& rows, const std::vector<std::string>& models);

// How often a model has won, lost or tied against the others.
struct ComparedModel {
  std::string model;
  int64_t win = 0, loss = 0, tie = 0;

  double count() const { return static_cast<double>(win + loss + tie); }
  double win_rate() const { return static_cast<double>(win) / count(); }
  double loss_rate() const { return static_cast<double>(loss) / count(); }
  // The win rate with each tie as half a win.
  double win_rate_adjusted() const {
    return (static_cast<double>(win) + 0.5 * static_cast<double>(tie)) / count();
  }
};

struct Comparison {
  std::vector<ComparedModel> models;  // the highest adjusted win rate first
  int64_t num_undecided = 0;          // rows of which a game has no winner; they are left out
};

// Counts pairwise judgements: who wins both games wins, anything else is a tie. With a `baseline` only rows
// with this model count, and it is left out of the result. If there are `models`, only rows between them (and
// the baseline) count. Throws Error(Data, "JUDGE-ROW").
Comparison compare_models(const std::vector<Row>& rows, const std::vector<std::string>& models,
                          const std::string& baseline);

// Write the tables as text, and as JSON.
std::string table_of(const std::vector<RatedModel>& models);
std::string table_of(const Comparison& comparison);
Json json_of(const std::vector<RatedModel>& models);
Json json_of(const Comparison& comparison);

}  // namespace tessera::scoring::judge

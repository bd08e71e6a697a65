// How often two judges agree on the better of two answers, as FastChat's compute_agreement.py counts it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/scoring/judge/rows.h"

namespace tessera::scoring::judge {

struct Agreement {
  int64_t turn = 1;
  bool with_ties = true;
  int64_t total = 0, agree = 0;  // pairs of votes

  double ratio() const { return static_cast<double>(agree) / static_cast<double>(total); }
};

// Votes for one of two models, by turn, question and models, and of each judge.
class Votes {
 public:
  // Adds rows of votes (model_a, model_b, winner, judge, turn) or of pairwise judgements (model_1, model_2,
  // g1_winner, g2_winner, judge, turn), whose two games count as one vote: for a model that wins both, else a
  // tie. Judgements without a verdict are left out. Throws Error(Data, "JUDGE-ROW").
  void add(const std::vector<Row>& rows);

  // Counts the pairs of a vote of each judge on the same answers, per turn, with ties and without pairs that
  // have one. Of one judge with itself ("human" with "human") these are the pairs of different votes. Throws
  // Error(Data, "JUDGE-VOTES") if there is none at all.
  std::vector<Agreement> compare(const std::string& judge, const std::string& other) const;

  int64_t num_undecided() const { return num_undecided_; }

 private:
  // All votes of each judge.
  using ByJudge = std::map<std::string, std::vector<std::string>>;

  void add_vote(const Row& row, std::string one, std::string two, std::string winner);

  std::map<Json, ByJudge> turns_[2];
  int64_t num_undecided_ = 0;
};

// Returns the name of a judge as FastChat has it: "human" for expert_..., "author" for author_...,
// "gpt4-pair" for ["gpt-4", "pair-v2"] and the like; for any other judge its own name without that of the
// prompt.
std::string judge_name(const Row& row);

// Write what was counted as text, and as JSON.
std::string table_of(const std::vector<Agreement>& agreements);
Json json_of(const std::vector<Agreement>& agreements);

}  // namespace tessera::scoring::judge

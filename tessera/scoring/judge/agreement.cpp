#include "tessera/scoring/judge/agreement.h"

#include <cstdio>
#include <set>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"

namespace tessera::scoring::judge {
namespace {

// A vote may also be "tie (inconsistent)".
bool is_tie(const std::string& vote) { return vote.find("tie") != std::string::npos; }

bool are_equal(const std::string& one, const std::string& other) {
  return one == other || (is_tie(one) && is_tie(other));
}

// Returns the vote of two games; "error" where one of them has no winner.
std::string vote_of_games(const Row& row) {
  const std::string first = row.text("g1_winner"), second = row.text("g2_winner");
  if (first == "error" || second == "error") return "error";
  if (first != second) return "tie (inconsistent)";
  if (first == "model_1") return "model_a";
  return first == "model_2" ? "model_b" : first;
}

}  // namespace

std::string judge_name(const Row& row) {
  const auto judge = row.value.find("judge");
  if (judge != row.value.end() && judge->is_array()) {
    const std::vector<std::string> parts = row.texts("judge");
    if (parts.empty()) throw row.problem("judge", "the names of a judge and of its prompt");
    const bool is_gpt4 = parts[0] == "gpt-4" && parts.size() > 1 && parts[1].starts_with("pair");
    return is_gpt4 ? "gpt4-pair" : parts[0];
  }
  const std::string name = row.text("judge");
  if (name.starts_with("expert")) return "human";
  if (name.starts_with("author")) return "author";
  // The dataset of the votes has this name, where FastChat's program has the other.
  return name == "gpt4_pair" ? "gpt4-pair" : name;
}

void Votes::add(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    if (row.value.contains("g1_winner")) {
      const std::string vote = vote_of_games(row);
      if (vote == "error") {
        ++num_undecided_;
      } else {
        add_vote(row, row.text("model_1"), row.text("model_2"), vote);
      }
    } else {
      add_vote(row, row.text("model_a"), row.text("model_b"), row.text("winner"));
    }
  }
}

void Votes::add_vote(const Row& row, std::string one, std::string two, std::string winner) {
  if (winner != "model_a" && winner != "model_b" && !is_tie(winner))
    throw row.problem(row.value.contains("winner") ? "winner" : "g1_winner", "a model or a tie");
  if (!(one < two)) {
    std::swap(one, two);
    if (!is_tie(winner)) winner = winner == "model_a" ? "model_b" : "model_a";
  }
  turns_[row.turn() - 1][Json::array({row.question_id(), one, two})][judge_name(row)].push_back(winner);
}

std::vector<Agreement> Votes::compare(const std::string& judge, const std::string& other) const {
  std::vector<Agreement> found;
  std::set<std::string> known;
  int64_t total = 0;
  for (const int64_t turn : {1, 2}) {
    for (const bool with_ties : {true, false}) {
      Agreement count{.turn = turn, .with_ties = with_ties};
      const auto compare_votes = [&](const std::string& one, const std::string& two) {
        if (!with_ties && (is_tie(one) || is_tie(two))) return;
        ++count.total;
        count.agree += are_equal(one, two) ? 1 : 0;
      };
      for (const auto& [answers, by_judge] : turns_[turn - 1]) {
        for (const auto& [name, votes] : by_judge) known.insert(name);
        const auto mine = by_judge.find(judge), theirs = by_judge.find(other);
        if (mine == by_judge.end() || theirs == by_judge.end()) continue;
        for (size_t i = 0; i < mine->second.size(); ++i) {
          for (size_t j = judge == other ? i + 1 : 0; j < theirs->second.size(); ++j)
            compare_votes(mine->second[i], theirs->second[j]);
        }
      }
      total += count.total;
      found.push_back(count);
    }
  }
  if (total == 0) {
    throw Error(ErrorKind::Data, "JUDGE-VOTES",
                "the judges " + judge + " and " + other + " have voted on no answers in common")
        .got("votes of " + (known.empty() ? "nobody" : join({known.begin(), known.end()}, ", ")))
        .hint("--judges names two of them");
  }
  return found;
}

std::string table_of(const std::vector<Agreement>& agreements) {
  std::string text = "turn  ties     total  agree  ratio\n";
  for (const Agreement& each : agreements) {
    char line[128];
    std::snprintf(line, sizeof line, "%4lld  %-7s  %5lld  %5lld  ", static_cast<long long>(each.turn),
                  each.with_ties ? "with" : "without", static_cast<long long>(each.total),
                  static_cast<long long>(each.agree));
    text += line;
    std::snprintf(line, sizeof line, "%5.2f\n", each.ratio());
    text += each.total == 0 ? "    -\n" : line;
  }
  return text;
}

Json json_of(const std::vector<Agreement>& agreements) {
  Json rows = Json::array();
  for (const Agreement& each : agreements) {
    rows.push_back({{"turn", each.turn},
                    {"with_ties", each.with_ties},
                    {"total", each.total},
                    {"agree", each.agree},
                    {"ratio", each.total == 0 ? Json() : Json(each.ratio())}});
  }
  return {{"agreements", rows}};
}

}  // namespace tessera::scoring::judge

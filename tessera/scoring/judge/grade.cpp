#include "tessera/scoring/judge/grade.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "tessera/core/log.h"
#include "tessera/core/unix_time.h"
#include "tessera/scoring/judge/ask.h"
#include "tessera/scoring/judge/verdict.h"

namespace tessera::scoring::judge {
namespace {

// Names a match in a file of judgements, whose rows may name two models in either order.
Json key_of(const Json& question_id, std::string model_1, std::string model_2, const std::string& judge,
            const std::string& prompt, int64_t turn) {
  if (model_2 < model_1) std::swap(model_1, model_2);
  return Json::array({question_id, model_1, model_2, judge, prompt, turn});
}

Json key_of(const Match& match, const std::string& judge) {
  return key_of(match.question->id, match.model_1, match.model_2, judge, match.prompt->name, match.turn);
}

Json key_of(const Row& row) {
  const std::vector<std::string> judge = row.texts("judge");
  if (judge.size() != 2) throw row.problem("judge", "the names of a judge and of its prompt");
  const bool is_pair = row.value.contains("model_1");
  return key_of(row.question_id(), row.text(is_pair ? "model_1" : "model"),
                is_pair ? row.text("model_2") : "", judge[0], judge[1], row.turn());
}

class Grader {
 public:
  Grader(const Match& match, Endpoint& endpoint, const GradeOptions& options)
      : match_(match), endpoint_(endpoint), options_(options) {}

  Json row() {
    Json row = {{"question_id", match_.question->id}};
    match_.prompt->is_pairwise ? add_pair(row) : add_single(row);
    row["turn"] = match_.turn;
    row["tstamp"] = unix_time_s();
    return row;
  }

 private:
  std::string ask(const std::string& user_prompt) {
    ChatRequest request{.max_tokens = options_.max_tokens};
    if (!match_.prompt->system_prompt.empty())
      request.messages.push_back({{"role", "system"}, {"content", match_.prompt->system_prompt}});
    request.messages.push_back({{"role", "user"}, {"content", user_prompt}});
    return endpoint_.chat("question " + match_.question->id.dump() + ", turn " + std::to_string(match_.turn) +
                              ", " + match_.model_1 +
                              (match_.model_2.empty() ? "" : " and " + match_.model_2),
                          request);
  }

  Json judge() const { return Json::array({options_.judge, match_.prompt->name}); }

  void add_single(Json& row) {
    row["model"] = match_.model_1;
    row["judge"] = judge();
    row["user_prompt"] = match_.user_prompt();
    row["judgment"] = ask(row["user_prompt"].get<std::string>());
    row["score"] = find_rating(row["judgment"].get<std::string>());
  }

  void add_pair(Json& row) {
    std::string prompts[2], judgments[2], winners[2];
    for (const int game : {0, 1}) {
      const bool is_swapped = game == 1;
      prompts[game] = match_.user_prompt(is_swapped);
      judgments[game] = ask(prompts[game]);
      winners[game] = find_winner(judgments[game], match_.prompt->output_format);
      if (winners[game] == "A") winners[game] = is_swapped ? "model_2" : "model_1";
      if (winners[game] == "B") winners[game] = is_swapped ? "model_1" : "model_2";
    }
    row["model_1"] = match_.model_1;
    row["model_2"] = match_.model_2;
    row["g1_winner"] = winners[0];
    row["g2_winner"] = winners[1];
    row["judge"] = judge();
    row["g1_user_prompt"] = prompts[0];
    row["g1_judgment"] = judgments[0];
    row["g2_user_prompt"] = prompts[1];
    row["g2_judgment"] = judgments[1];
  }

  const Match& match_;
  Endpoint& endpoint_;
  const GradeOptions& options_;
};

bool is_undecided(const Json& row) {
  if (row.contains("score")) return row.at("score") == kNoRating;
  return row.at("g1_winner") == "error" || row.at("g2_winner") == "error";
}

}  // namespace

Graded grade(const std::vector<Match>& matches, const EndpointOptions& endpoint, const GradeOptions& options,
             const std::string& path) {
  RowLog log(path);
  std::set<Json> done;
  for (const Row& row : log.rows()) done.insert(key_of(row));
  std::vector<const Match*> open;
  for (const Match& match : matches) {
    if (!done.contains(key_of(match, options.judge))) open.push_back(&match);
  }
  if (open.size() < matches.size())
    log::info(std::to_string(matches.size() - open.size()) + " of " + std::to_string(matches.size()) +
              " matches are judged already");
  Graded graded;
  std::mutex mutex;
  ask_each(endpoint, open.size(), options.parallel, "matches judged", [&](Endpoint& judge, size_t i) {
    const Json row = Grader(*open[i], judge, options).row();
    const std::lock_guard lock(mutex);
    log.append(row);
    ++graded.num_new;
    graded.num_undecided += is_undecided(row) ? 1 : 0;
  });
  return graded;
}

}  // namespace tessera::scoring::judge

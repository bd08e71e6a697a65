// The matches that a judge decides: one answer to rate, or two to compare, in one turn of a question.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/scoring/judge/bench.h"
#include "tessera/scoring/judge/prompts.h"

namespace tessera::scoring::judge {

// The kinds of judgement, by FastChat's names: single, pairwise-baseline and pairwise-all.
enum class Mode { Single, PairwiseBaseline, PairwiseAll };
inline bool is_pairwise(Mode mode) { return mode != Mode::Single; }

struct Match {
  const Question* question = nullptr;
  const JudgePrompt* prompt = nullptr;
  std::string model_1, model_2;  // model_2 is empty where there is one answer
  const std::vector<std::string>*answer_1 = nullptr, *answer_2 = nullptr;
  const std::vector<std::string>* reference = nullptr;  // null unless the question needs it
  int64_t turn = 1;

  // Returns the prompt with all texts; `is_swapped` puts the second answer first.
  std::string user_prompt(bool is_swapped = false) const;
};

// All that matches are made of; they point into it.
struct MatchInput {
  std::vector<Question> questions;
  std::map<std::string, Answers> answers;  // by model
  Answers references;
  JudgePrompts prompts;
};

// Returns the matches of these models in FastChat's order: the first turn, then the second one of questions
// with two turns, each without references and then with them. `baseline` is the other model of
// PairwiseBaseline. Throws what Answers::turns() and JudgePrompts::get() throw.
std::vector<Match> make_matches(const MatchInput& input, Mode mode, const std::vector<std::string>& models,
                                const std::string& baseline);

}  // namespace tessera::scoring::judge
